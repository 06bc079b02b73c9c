"""Reads ``uprobe:/path:symbol`` and ``uretprobe:/path:symbol``.

Behind the path stands a function's symbol, ``symbol+OFFSET``, or an offset in
the file as a number. Every passage is one occurrence.
"""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING

from opd.errors import EventError, PermissionDeniedError
from opd.events.pmu import read_pmu
from opd.events.request import EventRequest
from opd.events.tail import read_tail, with_tail, without_mask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd_native.elf import Elf

FORM = "uprobe:/path:symbol[+OFFSET][:mods][:COUNT]"
_NUMBER = re.compile("0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}")
_PLUS = re.compile(r"(.+)\+(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})")
_DEBUG_ROOT = "/usr/lib/debug"


def probe_event(text: str, *, sysfs: str, proc: str) -> EventRequest:
    """A probe on a function of a file, with the file looked into: it must be there.

    Raises EventError for what is not there, PermissionDeniedError for a file
    that this user may not read.
    """
    kind, *tokens = text.split(":")
    path, place, rest = _split(text, tokens)
    pmu = read_pmu("uprobe", sysfs=sysfs)
    if pmu is None or pmu.type is None:
        raise EventError(
            f"event {text!r}: this kernel has no PMU 'uprobe'",
            hint="it needs CONFIG_UPROBE_EVENTS and Linux 4.17",
        )
    returns = 0
    if kind == "uretprobe":
        if "retprobe" not in pmu.fields:
            raise EventError(f"event {text!r}: PMU 'uprobe' has no retprobe in its format")
        returns = pmu.fields["retprobe"].put(1)
    offset = _find(text, path, place)
    if kind == "uretprobe" and "+" in place:
        raise EventError(
            f"event {text!r}: {place!r}: a return is of a whole function, leave out the offset"
        )
    tail = without_mask(text, read_tail(text, rest, least=1, default_period=1, proc=proc))
    return with_tail(
        EventRequest(
            name=f"{kind}:{path}:{place}" + (f":{tail.mods}" if tail.mods else ""),
            type=pmu.type,
            config=returns,
            config2=offset,
            path=path,
            unit="count",
        ),
        tail,
    )


def _split(text: str, tokens: Sequence[str]) -> tuple[str, str, list[str]]:
    """Path, symbol and the rest; a path may have colons when such a file is there."""
    if not tokens or not tokens[0].startswith("/"):
        shown = tokens[0] if tokens else ""
        raise EventError(f"event {text!r}: expected an absolute path, got {shown!r}", hint=FORM)
    for end in range(1, len(tokens)):
        path = ":".join(tokens[:end])
        if end == len(tokens) - 1 or os.path.exists(path):  # noqa: PTH110
            break
    else:
        raise EventError(f"event {text!r}: expected a symbol behind the path", hint=FORM)
    if not os.path.exists(path):  # noqa: PTH110
        path, end = tokens[0], 1
    if not tokens[end]:
        raise EventError(f"event {text!r}: expected a symbol behind the path", hint=FORM)
    return path, tokens[end], list(tokens[end + 1 :])


def _find(text: str, path: str, place: str) -> int:
    """The offset in the file that ``place`` stands for."""
    from opd_native.elf import Elf
    from opd_native.errors import NativeError

    try:
        # Whatever lies there: do not wait for a FIFO's writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except PermissionError as error:
        raise PermissionDeniedError(
            f"event {text!r}: user {os.geteuid()} may not read {path}",
            hint="run as root, or give the file read permission",
        ) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise EventError(f"event {text!r}: cannot open {path}: {reason}") from error
    try:
        with Elf(fd) as elf:
            return _offset(text, elf, path, place)
    except NativeError as error:
        if error.errno in {errno.ENOEXEC, errno.ENOTSUP, errno.E2BIG}:
            raise EventError(f"event {text!r}: {path} is no ELF file of this machine") from error
        raise EventError(f"event {text!r}: cannot read {path}: {error}") from error
    finally:
        os.close(fd)


def _offset(text: str, elf: Elf, path: str, place: str) -> int:
    if _NUMBER.fullmatch(place):
        offset = _number(place)
        if not elf.is_code(offset):
            raise EventError(
                f"event {text!r}: offset {place} of {path} is in no executable segment",
                hint="an offset counts from the start of the file, not of memory",
            )
        return offset
    added = _PLUS.fullmatch(place)
    name, more = (added[1], _number(added[2])) if added else (place, 0)
    offset = _function(text, elf, path, name) + more
    if not elf.is_code(offset):
        raise EventError(f"event {text!r}: {place!r} is outside of the code of {path}")
    return offset


def _function(text: str, elf: Elf, path: str, name: str) -> int:
    from opd.symbols.files import open_debug_file
    from opd_native.errors import NativeError

    debug = None if elf.has_symtab else open_debug_file(_DEBUG_ROOT, elf.build_id)
    try:
        return elf.find_function(name, debug)
    except NativeError as error:
        if error.errno == errno.ENOENT:
            raise EventError(
                f"event {text!r}: no function {name!r} in {path}",
                hint=f"nm -D {path} shows those it exports, nm {path} all unless it is stripped",
            ) from error
        if error.errno == errno.ENOTUNIQ:
            raise EventError(
                f"event {text!r}: {path} has several functions {name!r}",
                hint="give the offset of one of them in the file instead",
            ) from error
        raise
    finally:
        if debug is not None:
            debug.close()


def _number(text: str) -> int:
    value = int(text, 16 if text[:2].lower() == "0x" else 10)
    return min(value, (1 << 64) - 1)

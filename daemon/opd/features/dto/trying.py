"""Both sides built and called once, before anything is measured."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import TYPE_CHECKING

from opd.errors import OpdError, OperationFailedError
from opd.features.dto.linking import FUNCTIONS
from opd.features.dto.pairs import Pair
from opd.features.dto.sides import SIDES, Found, find_both, own_kernel
from opd.process import die_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from opd.features.dto.sides import Sources, Tell

TRY_SECONDS = 20.0


def prepare(sources: Sources, needed: Sequence[str], tell: Tell) -> None:
    """Build both sides, and call what will be measured once. Raises OpdError.

    The call is in a process of its own, so that a library that hangs or
    crashes is told by its name.
    """
    found = find_both(sources, needed, tell)
    tell("trying both sides")
    for at, (side, one) in enumerate(zip(SIDES, found, strict=True)):
        if one.library is None:
            own_kernel(one.name)
            continue
        alone = (one, Found("libc", None)) if at == 0 else (Found("libc", None), one)
        if wrong := _tried(alone, at, needed, sources.link):
            raise OperationFailedError(f"{side}={one.name}: {wrong}")


def _tried(found: tuple[Found, Found], at: int, needed: Sequence[str], link: str) -> str:
    """What was wrong when the functions of a side were called once, in words."""
    with _forked(lambda: _call(found, at, needed, link)) as (pid, fd):
        told = b""
        until = time.monotonic() + TRY_SECONDS
        is_late = False
        while not is_late:
            if select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
                data = os.read(fd, 4096)
                if not data:
                    break
                told += data
            is_late = time.monotonic() >= until
        if is_late:
            os.kill(pid, signal.SIGKILL)
        _pid, status = os.waitpid(pid, 0)
    words = told.decode(errors="replace").strip()
    if is_late:
        return f"it did not come back within {TRY_SECONDS:g} s{_last_step(words)}"
    if os.WIFSIGNALED(status):
        return f"it was killed by {signal.Signals(os.WTERMSIG(status)).name}{_last_step(words)}"
    if os.WEXITSTATUS(status):
        lines = [line for line in words.splitlines() if not line.startswith("at ")]
        why = "\n".join(lines)
        return why or f"it ended the process, status {os.WEXITSTATUS(status)}{_last_step(words)}"
    return "" if words.endswith("done") else f"it ended the process{_last_step(words)}"


def _last_step(words: str) -> str:
    steps = [line.removeprefix("at ") for line in words.splitlines() if line.startswith("at ")]
    return f", in {steps[-1]}" if steps else ""


def _call(found: tuple[Found, Found], at: int, needed: Sequence[str], link: str) -> Iterator[str]:
    """The steps of a trial; each is told before it is done."""
    from opd_native.dto_load import wrong_result

    yield "at its constructors"
    pair = Pair(found, needed, layouts=1, link=link)
    try:
        functions = pair.functions(0)[at]
    finally:
        pair.close()
    for name, address in zip(FUNCTIONS, functions.addresses, strict=True):
        if name in needed:
            yield f"at {name}"
            if wrong := wrong_result(name, address):
                raise OperationFailedError(wrong)
    yield "done"


@contextlib.contextmanager
def _forked(steps: Callable[[], Iterator[str]]) -> Iterator[tuple[int, int]]:
    """Run steps in a forked process, which tells them through a pipe: pid and pipe."""
    read, write = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            die_with(parent)
            for step in steps():
                os.write(write, f"{step}\n".encode())
            status = 0
        except OpdError as error:
            os.write(write, f"{error}\n".encode())
        except BaseException as error:  # noqa: BLE001 - nothing may come out of a fork
            os.write(write, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)
    os.close(write)
    try:
        yield pid, read
    finally:
        os.close(read)

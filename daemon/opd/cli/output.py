"""What the programs print: JSON, CSV, tables, complaints.

Standard output may be closed, full, or read by somebody who has seen enough;
standard error may be closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from opd.errors import OperationFailedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_GAP = "  "
# A cell longer than this is shown whole but does not push the others aside.
_PAD_AT_MOST = 60
_NOT_ASCII = re.compile(r"[^\n -~]")


def print_json(value: object) -> None:
    """One document on stdout: one line, or indented where a person reads it."""
    if not sys.stdout.isatty():
        write(json.dumps(value))
        return
    # Outside of strings JSON is ASCII.
    text = json.dumps(value, indent=2, ensure_ascii=False)
    write(_NOT_ASCII.sub(lambda found: _for_json(found[0]), text))


def _for_json(letter: str) -> str:
    return letter if letter.isprintable() else json.dumps(letter)[1:-1]


def print_csv(
    names: Sequence[str], rows: Iterable[Mapping[str, Any]], *, header: bool = True
) -> None:
    """Rows, as RFC 4180 without its CR; raw but on a terminal."""
    import csv

    if sys.stdout.isatty():
        rows = (
            {key: clean(cell) if isinstance(cell, str) else cell for key, cell in row.items()}
            for row in rows
        )
    writer = csv.DictWriter(_Stdout(), names, extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)


class _Stdout:
    """A file to write to, for those who take no function."""

    def write(self, text: str) -> None:
        write(text, end="")


def print_table(
    names: Sequence[str],
    rows: Iterable[Mapping[str, Any]],
    *,
    right: Iterable[str] = (),
) -> None:
    """Columns under a header, one line a row.

    Cells are cut only where a terminal would wrap the line.
    """
    right = set(right)
    lines = [[clean(name) for name in names]]
    lines += [[clean(cell_text(row.get(name))) for name in names] for row in rows]
    widths = [
        max((len(line[at]) for line in lines if len(line[at]) <= _PAD_AT_MOST), default=0)
        for at in range(len(names))
    ]
    width = terminal_width()
    for line in lines:
        cells = [
            cell.rjust(widths[at]) if names[at] in right else cell.ljust(widths[at])
            for at, cell in enumerate(line)
        ]
        write(_GAP.join(cells).rstrip()[:width])


def print_fields(fields: Mapping[str, Any]) -> None:
    """One line a field."""
    widest = max(map(len, fields), default=0)
    for name, value in fields.items():
        write(f"{name.ljust(widest)}{_GAP}{clean(cell_text(value))}"[: terminal_width()])


def print_result(result: Mapping[str, Any], form: str, text: str) -> None:
    """A small result: whole as JSON or CSV, as the sentence ``text`` in a table."""
    if form == "json":
        print_json(result)
    elif form == "csv":
        print_csv(list(result), [result])
    else:
        write(text)


def write(line: str, end: str = "\n") -> None:
    """One line on stdout, whatever its encoding lacks. Raises OperationFailedError."""
    with _writing():
        try:
            print(line, end=end)
        except UnicodeEncodeError:
            encoding = sys.stdout.encoding or "ascii"
            print(line.encode(encoding, "backslashreplace").decode(encoding), end=end)


def write_bytes(data: bytes) -> None:
    """Bytes on stdout, after what was written. Raises OperationFailedError, BrokenPipeError."""
    with _writing():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)


def flush() -> None:
    """Let what was written arrive. Raises OperationFailedError, BrokenPipeError."""
    with _writing():
        sys.stdout.flush()


def require_stdout() -> None:
    """Raise OperationFailedError when the program was started with a closed one."""
    if sys.stdout is None:
        raise OperationFailedError("standard output is closed")


def complain(line: str) -> None:
    """One line on stderr, where there is one."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            print(line, file=sys.stderr, flush=True)


def settle() -> None:
    """Write what is left; what nobody takes is lost, so that the interpreter's exit is quiet."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read it has seen enough
    except OSError as error:
        raise OperationFailedError(f"cannot write to standard output: {error.strerror}") from error


def terminal_width() -> int | None:
    """The columns of the terminal on stdout; None when it is none."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


def clean(text: str) -> str:
    """The text on one line, what is not printable spelled out.

    Controls would let a process draw on the terminal by its name, and others
    turn the order of what is shown.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _spelled(letter) for letter in text)


def _spelled(letter: str) -> str:
    code = ord(letter)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cell_text(value: object) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value)


def size_text(size_bytes: float) -> str:
    """Bytes for people: ``12.3 MiB``."""
    for unit in ("B", "KiB", "MiB"):
        if abs(size_bytes) < 1024:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} GiB"


def moment_text(at_ns: int | None) -> str:
    """A moment in local time, to the second; empty for none."""
    if at_ns is None:
        return ""
    import time

    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ns // 1_000_000_000))
    except (OverflowError, ValueError, OSError):  # a damaged store may say anything
        return str(at_ns)


def span_text(seconds: float) -> str:
    """Seconds for people: ``3d 4h``, ``5m 6s``."""
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {whole % 60}s" if minutes else f"{seconds:.1f}s"


def _left_out_text(quality: Mapping[str, Any]) -> list[str]:
    if not (left_out := quality.get("left_out")):
        return []
    windows, seconds, probes = (left_out[name] for name in ("windows", "seconds", "probes"))
    return [f"left out {windows} windows, {seconds:.1f} s, of {probes} probes"]


def quality_text(quality: Mapping[str, Any]) -> str:
    """The quality of an answer in one line; what is zero is left out but for lost."""
    parts = []
    asked, effective = quality.get("hz_asked"), quality.get("hz_effective")
    if asked is not None:
        parts.append(f"{asked:g} Hz asked")
    if effective is not None:
        parts.append(f"{effective:.1f} Hz effective")
    if source := quality.get("source"):
        parts.append(f"source {source}")
    for name in ("lost", "degraded"):
        counts = {key: n for key, n in (quality.get(name) or {}).items() if n}
        if counts or name == "lost":
            each = ", ".join(f"{key} {n}" for key, n in counts.items())
            parts.append(f"{name} {sum(counts.values())}{f' ({each})' if counts else ''}")
    parts += [
        f"{name} {seconds:.1f} s"
        for name in ("throttled", "governed")
        if (seconds := quality.get(f"{name}_seconds"))
    ]
    if idle := quality.get("idle"):
        parts.append(f"idle {idle}")
    if missing := (quality.get("windows") or {}).get("missing"):
        parts.append(f"windows missing {missing}")
    parts += _left_out_text(quality)
    frames = quality.get("frames") or {}
    if every := sum(frames.values()):
        parts.append(f"frames named {100 * frames.get('named', 0) / every:.1f} %")
    labels = quality.get("labels") or {}
    if 0 < (unknown := labels.get("unknown", 0)) < (every := sum(labels.values())):
        parts.append(f"cgroups unknown {100 * unknown / every:.1f} %")
    return "; ".join(parts)

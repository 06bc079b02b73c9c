"""A profile buffer as readprofile(8) prints it: files of /proc/profile's format, maps, lines."""

from __future__ import annotations

import re
import sys
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from opd.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

UNKNOWN = "*unknown*"
_STEP_MOST = 1 << 31
_OTHER_ORDER = 1 << 16  # steps below are above in the other byte order
_TEXT = frozenset("tTwW")
_WORD = "I"
_CHUNK = 1 << 20  # bytes read, or words made, at a time
# A buffer of 1 GiB is the largest that opd keeps; a kernel's list has some 10 MB.
_BYTES_MOST = (1 << 30) + 4
_MAP_MOST = 1 << 28
_LINE_MOST = 1 << 16
_ADDRESS = re.compile(r"[0-9a-fA-F]{1,16}")


class Function(NamedTuple):
    """A symbol of [start, end)."""

    name: str
    start: int
    end: int


class Row(NamedTuple):
    """A function, and the ticks of its slots: (slot, ticks), in order."""

    function: Function
    bins: Sequence[tuple[int, int]]

    @property
    def ticks(self) -> int:
        """Of all its slots."""
        return sum(ticks for _slot, ticks in self.bins)

    @property
    def load(self) -> float:
        """Ticks a byte."""
        return self.ticks / max(1, self.function.end - self.function.start)


class Profile(NamedTuple):
    """Slots with ticks: slot i is of [start + i * step, start + (i + 1) * step)."""

    start: int
    step: int
    length: int
    bins: Mapping[int, int]

    def address(self, slot: int) -> int:
        """Where a slot begins."""
        return self.start + slot * self.step

    def chunks(self) -> Iterator[array[int]]:
        """The buffer as /proc/profile gives it: unsigned ints, the first the step."""
        yield array(_WORD, [self.step])
        slots = sorted(self.bins)
        for first in range(0, self.length, _CHUNK):
            words = array(_WORD, bytes(array(_WORD).itemsize * min(_CHUNK, self.length - first)))
            for slot in slots[bisect_left(slots, first) : bisect_left(slots, first + len(words))]:
                words[slot - first] = self.bins[slot]
            yield words


def read_words(path: str, *, swap: bool = True) -> array[int]:
    """A file of /proc/profile's format. Raises UsageError, OSError.

    ``swap``: turn a file of the other byte order round. A step of one order is
    one of the other too, so that the smaller of the two is meant.
    """
    data = _bytes_of(path, swap=swap)
    words = array(_WORD)
    if len(data) < 2 * words.itemsize or len(data) % words.itemsize:
        raise UsageError(f"{path}: {len(data)} bytes are no profile buffer (unsigned ints, 2 on)")
    words.frombytes(data)
    if swap and words[0] >= _OTHER_ORDER:
        words.byteswap()
    return words


def _bytes_of(path: str, *, swap: bool) -> bytearray:
    """All of a file, if its first word is a step: a device may have no end."""
    with Path(path).open("rb") as file:
        data = bytearray(file.read(array(_WORD).itemsize))
        if len(data) == array(_WORD).itemsize:
            _check_step(path, data, swap=swap)
        while more := file.read(_CHUNK):
            data += more
            if len(data) > _BYTES_MOST:
                raise UsageError(f"{path}: no profile buffer: it has more than {_BYTES_MOST} bytes")
    return data


def _check_step(path: str, first: bytearray, *, swap: bool) -> None:
    words = array(_WORD)
    words.frombytes(first)
    if swap and words[0] >= _OTHER_ORDER:
        words.byteswap()
    if not _is_step(words[0]):
        order = "" if swap else f" in {sys.byteorder}-endian order"
        raise UsageError(
            f"{path}: no profile buffer: it begins with {words[0]}{order}, not with a step"
            " (a power of two)"
        )


def _is_step(word: int) -> bool:
    return 0 < word <= _STEP_MOST and word & (word - 1) == 0


def read_map(path: str) -> list[Function]:
    """Text symbols of a System.map or kallsyms from _stext on, the first of each address.

    Raises UsageError when there is no _stext or the addresses are hidden, OSError.
    """
    symbols: dict[int, str] = {}
    marks: dict[str, int] = {}
    for line in _map_lines(path):
        fields = line.split()
        if len(fields) < 3:
            continue
        if not _ADDRESS.fullmatch(fields[0]):
            raise UsageError(f"{path}: not a line of a map: {line.strip()[:40]!r}")
        address = int(fields[0], 16)
        if fields[2] in ("_stext", "_etext"):
            marks[fields[2]] = address
        elif fields[1] in _TEXT and len(fields) == 3:
            symbols.setdefault(address, fields[2])
    start, end = marks.get("_stext"), marks.get("_etext")
    if start is None:
        raise UsageError(f"{path}: it has no _stext: not the map of a kernel")
    if not start and not any(symbols):
        raise UsageError(f"{path}: all addresses are 0", hint="as root, or see kptr_restrict")
    if end is not None and end <= start:
        raise UsageError(f"{path}: _etext ({end:#x}) is not above _stext ({start:#x})")
    symbols.setdefault(start, "_stext")
    kept = sorted(at for at in symbols if at >= start and (end is None or at < end))
    ends = [*kept[1:], end if end is not None else kept[-1] + 1]
    return [Function(symbols[at], at, to) for at, to in zip(kept, ends, strict=True)]


def _map_lines(path: str) -> Iterator[str]:
    """Lines of a map. Raises UsageError for what cannot be unpacked, or has no end, OSError."""
    if not path.endswith(".gz"):
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            yield from _bounded(path, file)
        return
    import gzip
    import zlib

    try:
        with gzip.open(path, "rt", errors="replace") as packed:
            yield from _bounded(path, packed)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path}: cannot be unpacked: {error}") from error


def _bounded(path: str, file: TextIO) -> Iterator[str]:
    read = 0
    while line := file.readline(_LINE_MOST):
        read += len(line)
        if len(line) == _LINE_MOST:
            raise UsageError(f"{path}: no map: it has a line of {_LINE_MOST} letters or more")
        if read > _MAP_MOST:
            raise UsageError(f"{path}: no map: it has more than {_MAP_MOST} letters")
        yield line


def check_fits(path: str, profile: Profile, functions: Sequence[Function]) -> None:
    """Raise UsageError unless a buffer reaches to the end of a map's code: it was cut short."""
    end = functions[-1].end
    # The kernel's own has no slot for a last part of one.
    have = (end - profile.start) // profile.step
    if profile.length < have:
        raise UsageError(
            f"{path}: {profile.length} slots of {profile.step} bytes end at"
            f" {profile.address(profile.length):#x}, the map's code at {end:#x} ({have} slots):"
            " it was cut short, or is not of that kernel"
        )


def rows_of(
    profile: Profile, functions: Sequence[Function], *, everything: bool = False
) -> tuple[list[Row], int]:
    """Functions with ticks (or all of them) by address, and the ticks that are nobody's.

    A slot is its first byte's, or, when that is nobody's, that of a function
    which begins within it.
    """
    starts = [function.start for function in functions]
    bins: list[list[tuple[int, int]]] = [[] for _ in functions]
    unknown = 0
    for slot in sorted(profile.bins):
        ticks, first = profile.bins[slot], profile.address(slot)
        for address in (first, first + profile.step - 1):
            at = bisect_right(starts, address) - 1
            if at >= 0 and address < functions[at].end:
                bins[at].append((slot, ticks))
                break
        else:
            unknown += ticks
    rows = [Row(one, mine) for one, mine in zip(functions, bins, strict=True)]
    return [row for row in rows if row.bins or everything], unknown


def counters(profile: Profile, row: Row) -> list[tuple[int, int]]:
    """All slots within a function: (address, ticks)."""
    first = max(0, row.function.start - profile.start) // profile.step
    last = -(-max(0, row.function.end - profile.start) // profile.step)
    return [
        (profile.address(slot), profile.bins.get(slot, 0))
        for slot in range(first, min(last, profile.length))
    ]


def bins_of(profile: Profile, row: Row, *, everything: bool = False) -> list[tuple[int, int]]:
    """Slots that have ticks, or with ``everything`` the others too: (address, ticks)."""
    mine = [(profile.address(slot), ticks) for slot, ticks in row.bins]
    if everything:
        mine += [(address, ticks) for address, ticks in counters(profile, row) if not ticks]
    return sorted(mine)


def lines(
    profile: Profile,
    rows: Sequence[Row],
    unknown: int,
    *,
    verbose: bool,
    bins: bool,
    subcounters: bool,
    everything: bool = False,
) -> Iterator[str]:
    """What readprofile would print; ``total`` is of all functions and over all slots."""
    for row in rows:
        function = row.function
        if bins:
            mine = bins_of(profile, row, everything=everything)
            if mine:
                yield f"{function.name}:"
                yield from (f"\t{address:x}\t{ticks}" for address, ticks in mine)
            if verbose or row.ticks:
                yield f"  total\t\t\t\t{row.ticks}"
            continue
        yield _line(function.start if verbose else None, function.name, row.ticks, row.load)
        if subcounters:
            for address, ticks in counters(profile, row):
                inside = address - function.start
                place = f"{function.name}{'-' if inside < 0 else '+'}{_hexadecimal(abs(inside))}"
                yield f"\t{address:#x}\t{place}\t{ticks}"
    yield f"{unknown:6d} {UNKNOWN}"
    total = sum(profile.bins.values()) - unknown
    size = profile.length * profile.step
    yield _line(0 if verbose else None, "total", total, total / max(1, size))


def _hexadecimal(value: int) -> str:
    """As C's %#x has it."""
    return f"{value:#x}" if value else "0"


def _line(address: int | None, name: str, ticks: int, load: float) -> str:
    if address is None:
        return f"{ticks:6d} {name:<40} {load:8.4f}"
    return f"{address:016x} {name:<40} {ticks:6d} {load:8.4f}"


def records(
    profile: Profile,
    rows: Sequence[Row],
    *,
    bins: bool,
    subcounters: bool,
    everything: bool = False,
) -> list[dict[str, Any]]:
    """The rows for JSON."""
    found = []
    for row in rows:
        function = row.function
        record: dict[str, Any] = {
            "ticks": row.ticks,
            "symbol": function.name,
            "address": function.start,
            "size": function.end - function.start,
            "load": row.load,
        }
        if bins:
            record["bins"] = [
                {"address": address, "ticks": ticks}
                for address, ticks in bins_of(profile, row, everything=everything)
            ]
        if subcounters:
            record["counters"] = [
                {"address": address, "ticks": ticks} for address, ticks in counters(profile, row)
            ]
        found.append(record)
    return found

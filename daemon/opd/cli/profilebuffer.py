"""A profile buffer as readprofile(8) prints it: files of /proc/profile's format, maps, lines."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
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

    def words(self) -> array[int]:
        """The buffer as /proc/profile gives it: unsigned ints, the first the step."""
        words = array(_WORD, [self.step])
        words.frombytes(bytes(words.itemsize * self.length))
        for slot, ticks in self.bins.items():
            words[slot + 1] = ticks
        return words


def read_words(path: str, *, swap: bool = True) -> array[int]:
    """A file of /proc/profile's format. Raises UsageError, OSError.

    ``swap``: turn a file of the other byte order round. A step of one order is
    one of the other too, so that the smaller of the two is meant.
    """
    words = array(_WORD)
    data = Path(path).read_bytes()
    if len(data) < 2 * words.itemsize or len(data) % words.itemsize:
        raise UsageError(f"{path}: {len(data)} bytes are no profile buffer (unsigned ints, 2 on)")
    words.frombytes(data)
    if swap and words[0] >= _OTHER_ORDER:
        words.byteswap()
    if not _is_step(words[0]):
        order = "" if swap else f" in {sys.byteorder}-endian order"
        raise UsageError(
            f"{path}: no profile buffer: it begins with {words[0]}{order}, not with a step"
            " (a power of two)"
        )
    return words


def _is_step(word: int) -> bool:
    return 0 < word <= _STEP_MOST and word & (word - 1) == 0


def read_map(path: str) -> list[Function]:
    """Text symbols of a System.map or kallsyms from _stext on, the first of each address.

    Raises UsageError when there is no _stext or the addresses are hidden, OSError.
    """
    symbols: dict[int, str] = {}
    marks: dict[str, int] = {}
    with _opened(path) as file:
        for line in file:
            fields = line.split()
            if len(fields) < 3:
                continue
            try:
                address = int(fields[0], 16)
            except ValueError:
                raise UsageError(f"{path}: not a line of a map: {line.strip()[:80]!r}") from None
            if fields[2] in ("_stext", "_etext"):
                marks[fields[2]] = address
            elif fields[1] in _TEXT and len(fields) == 3:
                symbols.setdefault(address, fields[2])
    start, end = marks.get("_stext"), marks.get("_etext")
    if start is None:
        raise UsageError(f"{path}: it has no _stext: not the map of a kernel")
    if not any(symbols):
        raise UsageError(f"{path}: all addresses are 0", hint="as root, or see kptr_restrict")
    symbols.setdefault(start, "_stext")
    kept = sorted(at for at in symbols if at >= start and (end is None or at < end))
    ends = [*kept[1:], end if end is not None else kept[-1] + 1]
    return [Function(symbols[at], at, to) for at, to in zip(kept, ends, strict=True)]


def _opened(path: str) -> TextIO:
    if path.endswith(".gz"):
        import gzip

        return gzip.open(path, "rt", errors="replace")
    return Path(path).open(encoding="utf-8", errors="replace")


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


def lines(
    profile: Profile,
    rows: Sequence[Row],
    unknown: int,
    *,
    verbose: bool,
    bins: bool,
    subcounters: bool,
) -> Iterator[str]:
    """What readprofile would print; ``total`` is of all functions and over all slots."""
    for row in rows:
        function = row.function
        if bins:
            yield f"{function.name}:"
            yield from (f"\t{profile.address(slot):x}\t{ticks}" for slot, ticks in row.bins)
            yield f"  total\t\t\t\t{row.ticks}"
            continue
        yield _line(function.start if verbose else None, function.name, row.ticks, row.load)
        if subcounters:
            for address, ticks in counters(profile, row):
                inside = address - function.start
                place = f"{function.name}{'-' if inside < 0 else '+'}{abs(inside):#x}"
                yield f"\t{address:#x}\t{place}\t{ticks}"
    yield f"{unknown:6d} {UNKNOWN}"
    total = sum(profile.bins.values()) - unknown
    size = profile.length * profile.step
    yield _line(0 if verbose else None, "total", total, total / max(1, size))


def _line(address: int | None, name: str, ticks: int, load: float) -> str:
    if address is None:
        return f"{ticks:6d} {name:<40} {load:8.4f}"
    return f"{address:016x} {name:<40} {ticks:6d} {load:8.4f}"


def records(
    profile: Profile, rows: Sequence[Row], *, bins: bool, subcounters: bool
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
                {"address": profile.address(slot), "ticks": ticks} for slot, ticks in row.bins
            ]
        if subcounters:
            record["counters"] = [
                {"address": address, "ticks": ticks} for address, ticks in counters(profile, row)
            ]
        found.append(record)
    return found

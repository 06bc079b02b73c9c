"""Sums hits over a range of time: from roll-ups where it can, else from windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from opd.errors import StoreError
from opd.store.blocks import SFILE_COLUMNS, UNIT, unpack_groups
from opd.store.quality import stretch_of
from opd.store.rollup import unpack_rollup
from opd.store.schema import MINUTE_NS

if TYPE_CHECKING:
    import sqlite3
    from array import array
    from collections.abc import Callable, Iterable, Sequence

_ROLLED_KEYS = frozenset(("comm", "image", "symbol", "event", "mode"))
_FAR = 1 << 62
_SYMBOL_BITS = 40
_SYMBOL_MASK = (1 << _SYMBOL_BITS) - 1
# Kept as one more, since -1 means not separated.
_ONE_MORE = frozenset(("pid", "thread", "cpu"))

Cell = int | str


class Part(NamedTuple):
    """A run as a scan sees it: names of its events, and the numbers of those wanted."""

    id: int
    events: Sequence[str]
    wanted: set[int]
    longest_ns: int


class Scan:
    """Hits by sort keys, over all runs added.

    ``sums``: for each tuple of cells (numbers of names for texts; the event's
    name) samples and weight. ``totals``: the same by event. ``damaged``:
    windows, minutes or hours whose block could not be read.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        sort: Sequence[str],
        since_ns: int | None,
        until_ns: int | None,
        *,
        rolled: bool = True,
    ) -> None:
        self._connection = connection
        self.sort = tuple(sort)
        self._since = since_ns
        self._until = until_ns
        self._rolled = rolled and _ROLLED_KEYS.issuperset(sort)
        self.sums: dict[tuple[Cell, ...], list[int]] = {}
        self.totals: dict[str, list[int]] = {}
        self.damaged = 0

    def add_run(self, run: Part, *, minutes_until: int, hours_until: int) -> None:
        """Add the hits of a run; the roll-ups hold whole minutes and hours below these."""
        self._adder = _WindowAdder(self.sort, run.events, run.wanted)
        self._add_tables(run, minutes_until, hours_until)
        for key, event, samples, weight in self._adder.results():
            for entry in (
                self.sums.setdefault(key, [0, 0]),
                self.totals.setdefault(event, [0, 0]),
            ):
                entry[0] += samples
                entry[1] += weight

    def _add_tables(self, run: Part, minutes_until: int, hours_until: int) -> None:
        """Choose what is read for which part of the range."""
        since = -_FAR if self._since is None else self._since
        until = _FAR if self._until is None else self._until
        # Whole minutes [first, last) of windows that start in them.
        first = -(-since // MINUTE_NS)
        last = min(until // MINUTE_NS, minutes_until)
        if not self._rolled or first >= last:
            self._add_windows(run, since, until)
            return
        first_hour = -(-first // 60)
        last_hour = min(last // 60, hours_until)
        if first_hour < last_hour:
            self._add_buckets(run, "minutes", first, first_hour * 60)
            self._add_buckets(run, "hours", first_hour, last_hour)
            self._add_buckets(run, "minutes", last_hour * 60, last)
        else:
            self._add_buckets(run, "minutes", first, last)
        if self._since is not None:
            self._add_windows(run, since, first * MINUTE_NS)
        self._add_windows(run, last * MINUTE_NS, until, overlapping=False)

    # ---- roll-ups

    def _add_buckets(self, run: Part, table: str, first: int, last: int) -> None:
        """Whole minutes or hours [first, last)."""
        if first >= last:
            return
        blocks = self._connection.execute(
            f"SELECT block FROM {table} WHERE run = ? AND bucket >= ? AND bucket < ?",  # noqa: S608
            (run.id, first, last),
        )
        self._add_blocks(blocks, lambda block: unpack_rollup(block)[0])

    # ---- windows

    def _add_windows(self, run: Part, since: int, until: int, *, overlapping: bool = True) -> None:
        """Windows that overlap [since, until), or those that start in it."""
        stretch = stretch_of(
            run.id,
            None if since == -_FAR else since,
            None if until == _FAR else until,
            run.longest_ns if overlapping else 0,
            first=False,
        )
        blocks = self._connection.execute(
            "SELECT groups FROM windows JOIN blocks ON blocks.window = windows.id"  # noqa: S608
            f" WHERE {stretch.where}",
            stretch.values,
        )
        self._add_blocks(blocks, unpack_groups)

    def _add_blocks(
        self, blocks: Iterable[tuple[bytes]], decode: Callable[[bytes], list[array[int]]]
    ) -> None:
        for (block,) in blocks:
            try:
                self._adder.add(decode(block))
            except StoreError:
                self.damaged += 1


class _WindowAdder:
    """Sums groups of many windows of one run.

    The cells that a sample file gives are put in a table once; a group then
    costs one lookup by a number made of that and its symbol.
    """

    def __init__(self, sort: Sequence[str], events: Sequence[str], wanted: set[int]) -> None:
        self._sort = sort
        self._events = events
        self._wanted = wanted
        self._by_symbol = "symbol" in sort
        self._cells: dict[tuple[int, ...], int] = {}
        self._samples: dict[int, int] = {}
        self._weights: dict[int, int] = {}

    def add(self, columns: Sequence[array[int]]) -> None:
        """One window's groups."""
        codes = self._codes(columns[:SFILE_COLUMNS])
        units = columns[UNIT]
        samples, weights = self._samples, self._weights
        by_symbol = self._by_symbol
        for sfile, symbol, hits, excess in zip(*columns[SFILE_COLUMNS:], strict=True):
            code = codes[sfile]
            if code < 0:
                continue
            if by_symbol:
                code |= symbol
            weight = hits * units[sfile] + excess
            if code in samples:
                samples[code] += hits
                weights[code] += weight
            else:
                samples[code] = hits
                weights[code] = weight

    def _codes(self, columns: Sequence[array[int]]) -> list[int]:
        """For each sample file the number of its cells, -1 when not wanted."""
        event, mode, tgid, tid, cpu, image, comm, _unit, _cgroup = columns
        source = {
            "pid": tgid,
            "thread": tid,
            "cpu": cpu,
            "mode": mode,
            "image": image,
            "comm": comm,
        }
        taken = [source[key] for key in self._sort if key in source]
        known = self._cells.get
        # The event is kept apart even where it is no key, for the totals.
        return [known(cells) or self._number(cells) for cells in zip(event, *taken, strict=True)]

    def _number(self, cells: tuple[int, ...]) -> int:
        """Number new cells, from 1 so that no number is false."""
        wanted = cells[0] in self._wanted and cells[0] < len(self._events)
        code = (len(self._cells) + 1) << _SYMBOL_BITS if wanted else -1
        self._cells[cells] = code
        return code

    def results(self) -> list[tuple[tuple[Cell, ...], str, int, int]]:
        """Key, event, samples and weight of every sum."""
        cells_of = {code: cells for cells, code in self._cells.items()}
        results = []
        for code, samples in self._samples.items():
            symbol = code & _SYMBOL_MASK
            number, *cells = cells_of[code ^ symbol]
            name = self._events[number]
            rest = iter(cells)
            key: list[Cell] = []
            for sort in self._sort:
                if sort == "symbol":
                    key.append(symbol)
                elif sort == "event":
                    key.append(name)
                elif sort in _ONE_MORE:
                    key.append(next(rest) - 1)
                else:
                    key.append(next(rest))
            results.append((tuple(key), name, samples, self._weights[code]))
        return results

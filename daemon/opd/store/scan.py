"""Sums hits over a range of time: from roll-ups where it can, else from windows.

A window counts whole, in the bucket of time that it begins in, or the first.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from opd.errors import StoreError, UsageError
from opd.store.blocks import GROUP_COLUMNS, inflate
from opd.store.keys import KEYS
from opd.store.quality import stretch_of
from opd.store.schema import MINUTE_NS
from opd_native.scan import NO_EVENT, BadBlockError, BlockScan, Key, TooManyRowsError

if TYPE_CHECKING:
    import sqlite3
    from array import array
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from opd.store.apart import Range
    from opd_native.scan import Rows, Series, Step, Total

_FAR = 1 << 62
_HOUR_NS = 60 * MINUTE_NS
ROWS_LIMIT = 1 << 19
KEPT_BYTES = 16 << 20

# Start, inflated block, columns of its sample files.
_Inflated = tuple[int, bytes, int]


class Part(NamedTuple):
    """A run as a scan sees it: numbers of its events (None: not wanted), how far roll-ups go."""

    id: int
    events: Sequence[int | None]
    longest_ns: int
    minutes_until: int = 0
    hours_until: int = 0
    hours_from: int = 0


class Filter(NamedTuple):
    """Which samples count: the steps of a BlockScan, and the keys that they look at."""

    steps: Sequence[Step] = ()
    keys: Collection[str] = ()


class Scan:
    """Hits by sort keys, over all runs added.

    ``ranges``: of time, ascending; no window is in two of them.
    ``maps``: by the name of a key, what its cells become. ``again``: a series
    will follow. ``damaged`` counts windows, minutes and hours whose block could
    not be read.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        sort: Sequence[str],
        ranges: Sequence[Range],
        *,
        only: Filter | None = None,
        maps: Mapping[str, array[int]] | None = None,
        rolled: bool = True,
        again: bool = False,
    ) -> None:
        only = only or Filter()
        self._connection = connection
        self._ranges = ranges
        self._minutes = rolled and all(KEYS[key].rolled for key in (*sort, *only.keys))
        self._hours = self._minutes
        self._bounds: list[int] = []
        self._blocks = BlockScan(
            [Key(KEYS[key].column, (maps or {}).get(key)) for key in sort],
            only.steps,
            row_limit=ROWS_LIMIT,
        )
        self._runs: list[Part] = []
        # Blocks that a series need not read and inflate once more.
        self._kept: dict[tuple[int, str, int, int], list[_Inflated]] = {}
        self._room = KEPT_BYTES if again else 0
        self.damaged = 0

    def add_run(self, run: Part) -> None:
        """Add the hits of a run. UsageError: more different rows than can be held."""
        self._runs.append(run)
        self._add(run)

    def _add(self, run: Part) -> None:
        self._blocks.events(NO_EVENT if number is None else number for number in run.events)
        try:
            self._add_tables(run)
        except TooManyRowsError as error:
            raise UsageError(
                f"more than {ROWS_LIMIT} different rows",
                hint="ask for fewer keys, longer buckets or a shorter range",
            ) from error

    def rows(self, limit: int = 0) -> Rows:
        """See BlockScan."""
        return self._blocks.rows(limit)

    def series(self, numbers: Iterable[int], starts: Sequence[int]) -> Series:
        """Read once more, for what the rows of these numbers have in each bucket.

        ``starts``: of the buckets, ascending, the first at or before the range.
        Totals are of this reading then.
        """
        self._bounds = list(starts[1:])
        self._minutes = self._minutes and all(at % MINUTE_NS == 0 for at in self._bounds)
        self._hours = self._minutes and all(at % _HOUR_NS == 0 for at in self._bounds)
        self._blocks.choose(numbers)
        damaged, self.damaged = self.damaged, 0
        for run in self._runs:
            self._add(run)
        # What was kept is not found damaged twice.
        self.damaged = max(damaged, self.damaged)
        return self._blocks.series()

    def totals(self) -> list[Total]:
        """See BlockScan."""
        return self._blocks.totals()

    def _add_tables(self, run: Part) -> None:
        for since_ns, until_ns in self._ranges:
            since = -_FAR if since_ns is None else since_ns
            self._add_range(run, since, _FAR if until_ns is None else until_ns)

    def _add_range(self, run: Part, since: int, until: int) -> None:
        """Choose what is read for which part of the range."""
        # Whole minutes [first, last) of windows that start in them.
        first = -(-since // MINUTE_NS)
        last = min(until // MINUTE_NS, run.minutes_until)
        if not self._minutes or first >= last:
            self._add_windows(run, since, until)
            return
        first_hour = max(-(-first // 60), run.hours_from)
        last_hour = min(last // 60, run.hours_until)
        if self._hours and first_hour < last_hour:
            self._add_rolled(run, "minutes", first, first_hour * 60)
            self._add_rolled(run, "hours", first_hour, last_hour)
            self._add_rolled(run, "minutes", last_hour * 60, last)
        else:
            self._add_rolled(run, "minutes", first, last)
        if since != -_FAR:
            self._add_windows(run, since, first * MINUTE_NS)
        self._add_windows(run, last * MINUTE_NS, until, overlapping=False)

    def _add_rolled(self, run: Part, table: str, first: int, last: int) -> None:
        """Whole minutes or hours [first, last)."""
        if first >= last:
            return
        about = (run.id, table, first, last)
        blocks: Iterable[_Inflated] | None = self._kept.get(about)
        if blocks is None:
            unit_ns = MINUTE_NS if table == "minutes" else _HOUR_NS
            rows = self._connection.execute(
                f"SELECT bucket * {unit_ns}, block FROM {table}"  # noqa: S608
                " WHERE run = ? AND bucket >= ? AND bucket < ?",
                (run.id, first, last),
            )
            blocks = self._keep(about, self._inflated(rows, rolled=True))
        self._add_blocks(blocks)

    def _keep(
        self, about: tuple[int, str, int, int], blocks: Iterable[_Inflated]
    ) -> Iterator[_Inflated]:
        """The blocks, which are remembered if there is room for all of them."""
        kept: list[_Inflated] = []
        for block in blocks:
            if self._room > 0:
                kept.append(block)
                self._room -= len(block[1])
            yield block
        if self._room > 0:
            self._kept[about] = kept

    def _add_windows(self, run: Part, since: int, until: int, *, overlapping: bool = True) -> None:
        """Windows that overlap [since, until), or those that start in it."""
        stretch = stretch_of(
            run.id,
            None if since == -_FAR else since,
            None if until == _FAR else until,
            run.longest_ns if overlapping else 0,
            first=False,
        )
        rows = self._connection.execute(
            "SELECT start_ns, groups FROM windows JOIN blocks ON blocks.window = windows.id"  # noqa: S608
            f" WHERE {stretch.where}",
            stretch.values,
        )
        self._add_blocks(self._inflated(rows))

    def _inflated(
        self, rows: Iterable[tuple[int, bytes]], *, rolled: bool = False
    ) -> Iterator[_Inflated]:
        for start_ns, block in rows:
            try:
                data, rest = inflate(block)
            except StoreError:
                self.damaged += 1
                continue
            # A roll-up of schema 1 has its squares in the block, others behind it.
            more = GROUP_COLUMNS + (1 if rolled and not rest else 0)
            yield start_ns, data, max(data[0] - more, 0)

    def _add_blocks(self, blocks: Iterable[_Inflated]) -> None:
        bounds, add = self._bounds, self._blocks.add
        for start_ns, data, sfile_columns in blocks:
            try:
                add(data, sfile_columns, bisect_right(bounds, start_ns))
            except BadBlockError:
                self.damaged += 1

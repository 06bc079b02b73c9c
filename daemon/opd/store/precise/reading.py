"""Payloads of a range of time, and which of their rows a question is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from opd.errors import StoreError, UnknownNameError
from opd.store.blocks import GROUP_COLUMNS, unpack_sample_files
from opd.store.keys import KEYS, read_labels, read_names, show
from opd.store.payloads import has_payloads, read_payload
from opd.store.runs import events_of, unseparated
from opd.store.where import Where
from opd_native.scan import CellColumn, InSet, Operator

if TYPE_CHECKING:
    import sqlite3
    from array import array
    from collections.abc import Callable, Collection, Iterator, Sequence

    from opd.store.quality import Stretch
    from opd.store.runs import Run
    from opd_native.scan import Step

# Where the columns of a sample file hold what a key's cell is; the symbol is not of them.
_SFILE_AT = {
    CellColumn.EVENT: 0,
    CellColumn.MODE: 1,
    CellColumn.PID: 2,
    CellColumn.THREAD: 3,
    CellColumn.CPU: 4,
    CellColumn.IMAGE: 5,
    CellColumn.COMM: 6,
    CellColumn.CGROUP: 8,
}
CELLS = len(CellColumn)
# By CellColumn; the event's is its number in the session.
Cells = tuple[int, ...]


class PreciseQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of payloads; as a ReportQuery, see there."""

    by: tuple[str, ...] = ()
    top: int = 20
    since_ns: int | None = None
    until_ns: int | None = None
    session: str | None = None
    where: str | None = None


def event_among(runs: Sequence[Run], names: Sequence[str]) -> str | None:
    """Give the first of the events that the runs have.

    A sample is in the rows of each event that it satisfies: only the quality
    of one of them is about samples.
    """
    events = events_of(runs)
    return next((name for name in names if name in events), None)


class Found(NamedTuple):
    """One payload of a window."""

    run: Run
    kind: str
    start_ns: int
    rows: int
    offered: int
    lost: int
    columns: dict[str, array[int]]
    records: bytes
    sfiles: Sequence[array[int]]


class Chosen:
    """The payloads of some kinds in a range, with what their rows are about.

    ``damaged`` counts payloads that could not be read.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        runs: Sequence[Run],
        stretches: Sequence[Stretch],
        where: str | None = None,
    ) -> None:
        """Raises UnknownNameError, UsageError for what ``where`` gets wrong."""
        self._connection = connection
        self._runs = runs
        self._stretches = stretches
        self.events = list(events_of(runs))
        self.damaged = 0
        steps: Sequence[Step] = ()
        if where is not None:
            steps = Where(where).resolve(connection, self.events, not_separated=unseparated(runs))
        self._passes = compile_filter(steps)
        self._known: dict[Cells, bool] = {}

    def read(self, kinds: Collection[str]) -> Iterator[Found]:
        """All payloads of these kinds, by run and time."""
        if not has_payloads(self._connection):
            return
        marks = ", ".join("?" * len(kinds))
        for run, stretch in zip(self._runs, self._stretches, strict=True):
            rows = self._connection.execute(
                "SELECT start_ns, groups, payloads.kind, payloads.rows, offered, lost, block"  # noqa: S608
                " FROM windows JOIN payloads ON payloads.window = windows.id"
                " JOIN blocks ON blocks.window = windows.id"
                f" WHERE {stretch.where} AND payloads.kind IN ({marks})"
                " ORDER BY start_ns, payloads.id",
                (*stretch.values, *kinds),
            )
            for start_ns, groups, kind, count, offered, lost, block in rows:
                try:
                    columns, records = read_payload(kind, block)
                    sfiles = unpack_sample_files(groups, GROUP_COLUMNS)
                    _check(columns, sfiles)
                except StoreError:
                    self.damaged += 1
                    continue
                yield Found(run, kind, start_ns, count, offered, lost, columns, records, sfiles)

    def cells(self, found: Found) -> Callable[[int, int], Cells]:
        """What a row is about, by its sample file and the number of its symbol."""
        numbers = [self.events.index(event.name) for event in found.run.info.events]
        sfiles = found.sfiles
        made: dict[int, list[int]] = {}

        def cells_of(sfile: int, symbol: int) -> Cells:
            cells = made.get(sfile)
            if cells is None:
                cells = [0] * CELLS
                for column, at in _SFILE_AT.items():
                    cells[column] = sfiles[at][sfile]
                event = cells[CellColumn.EVENT]
                cells[CellColumn.EVENT] = numbers[event] if event < len(numbers) else 0
                made[sfile] = cells
            return (*cells[: CellColumn.SYMBOL], symbol)

        return cells_of

    def passes(self, cells: Cells) -> bool:
        """Whether ``where`` lets a row through."""
        if self._passes is None:
            return True
        known = self._known.get(cells)
        if known is None:
            if len(self._known) > 1 << 16:
                self._known.clear()
            known = self._known[cells] = self._passes(cells)
        return known


def _check(columns: dict[str, array[int]], sfiles: Sequence[array[int]]) -> None:
    if max(columns.get("sfile", ()), default=-1) >= len(sfiles[0]):
        raise StoreError("damaged block: a payload names a sample file that is not there")


def compile_filter(steps: Sequence[Step]) -> Callable[[Cells], bool] | None:
    """The steps of a scan as a function of a row's cells; None: all pass."""
    if not steps:
        return None

    def passes(cells: Cells) -> bool:
        results: list[bool] = []
        for step in steps:
            if step is Operator.NOT:
                results[-1] = not results[-1]
            elif step is Operator.AND:
                right = results.pop()
                results[-1] = results[-1] and right
            elif step is Operator.OR:
                right = results.pop()
                results[-1] = results[-1] or right
            elif isinstance(step, InSet):
                cell = cells[step.column]
                bits = step.bits
                results.append(cell >> 3 < len(bits) and bool(bits[cell >> 3] >> (cell & 7) & 1))
            else:
                results.append(step.low <= cells[step.column] <= step.high)
        return results[0]

    return passes


def check_keys(asked: Sequence[str], runs: Sequence[Run], extra: Sequence[str] = ()) -> None:
    """Raises UnknownNameError for what is neither a key of reports nor one of ``extra``."""
    missing = unseparated(runs)
    valid = [*extra, *(key for key in KEYS if key not in missing)]
    for key in asked:
        if key not in valid:
            why = " (not separated in this session)" if key in missing else ""
            raise UnknownNameError(f"unknown key {key!r}{why}", hint=f"valid: {', '.join(valid)}")


class Shower:
    """The cells of keys as a report shows them, for many rows at once."""

    def __init__(
        self, connection: sqlite3.Connection, keys: Sequence[str], events: list[str]
    ) -> None:
        self._connection = connection
        self._keys = [KEYS[key] for key in keys]
        self._events = events
        fields = {key.field for key in self._keys if key.kind == "label"}
        self._labels = {field: read_labels(connection, field) for field in fields}

    def key(self, cells: Cells) -> tuple[int, ...]:
        """The cells that tell rows apart; labels by their text."""
        return tuple(
            self._label(key.field, cells[key.column]) if key.kind == "label" else cells[key.column]
            for key in self._keys
        )

    def _label(self, field: str, cell: int) -> int:
        which = self._labels[field].which
        return which[cell] if cell < len(which) else 0

    def columns(self, rows: Sequence[tuple[int, ...]]) -> dict[str, list[str] | list[int]]:
        """A column a key, of the ``key`` of each row."""
        shown: dict[str, list[str] | list[int]] = {}
        for at, key in enumerate(self._keys):
            cells = [row[at] for row in rows]
            names = read_names(self._connection, cells) if key.kind == "text" else {}
            shown[key.name] = show(
                key, cells, names=names, events=self._events, labels=self._labels
            )
        return shown

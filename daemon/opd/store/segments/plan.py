"""Which hours of the window log are to be written, or written anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from opd.errors import StoreError
from opd.store.schema import QUALITY_COLUMNS
from opd.store.segments.files import HOUR_NS, list_segments
from opd.store.segments.footer import About, numbers_of, read_about
from opd.store.segments.samples import Window

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from opd.store.segments.files import Segment
    from opd.store.segments.samples import Run

SECOND_NS = 1_000_000_000


_FAR_NS = 1 << 62

# A run, when its session began (names change), and an hour.
Key = tuple[str, int, int]


class Written(NamedTuple):
    """A segment and what it says of itself; ``stamp`` tells this file from its successor."""

    segment: Segment
    about: About
    sequences: frozenset[int]
    stamp: tuple[int, int, int]

    @property
    def key(self) -> Key:
        """Whose hour it is."""
        return self.about.run, self.about.session_started_ns, self.about.hour

    def is_there(self) -> bool:
        """Whether the file has been neither replaced nor removed."""
        return _stamp(self.segment.path) == self.stamp


class Owner(NamedTuple):
    """A row of ``runs``: its run, and when its session began."""

    run: str
    started_ns: int


class Hour(NamedTuple):
    """An hour of a run that has windows in the log which are in no segment."""

    run: Run
    session_started_ns: int
    hour: int
    windows: list[Window]
    before: Written | None


class Known:
    """Segments read once; a file that is replaced is read again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[tuple[str, tuple[int, int, int]], Written | None] = {}

    def list(self) -> list[Written]:
        """The segments that can be read, oldest first."""
        seen, found = {}, []
        for segment in list_segments(self._directory):
            stamp = _stamp(segment.path)
            if stamp is None:  # retention took it
                continue
            key = (segment.path.name, stamp)
            written = self._read[key] if key in self._read else _read(segment, stamp)
            seen[key] = written
            if written is not None:
                found.append(written)
        self._read = seen
        return found


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read(segment: Segment, stamp: tuple[int, int, int]) -> Written | None:
    """None for a file that is damaged: the hour is written again where the log has it."""
    try:
        about = read_about(segment.path)
        return Written(segment, about, frozenset(numbers_of(about.windows)), stamp)
    except StoreError:
        return None


def owners_of(connection: sqlite3.Connection) -> dict[int, Owner]:
    """Every row of ``runs`` by its number."""
    return {
        number: Owner(run, started)
        for number, run, started in connection.execute(
            "SELECT runs.id, run, sessions.started_ns FROM runs"
            " JOIN sessions ON sessions.id = runs.session"
        )
    }


def logged_hours(
    connection: sqlite3.Connection, *, since_ns: int | None = None, until_ns: int | None = None
) -> list[tuple[int, int, int, int, int]]:
    """Row of runs, hour, number of windows, least and greatest sequence, by hour.

    Of windows that begin in the range.
    """
    return connection.execute(
        "SELECT run, start_ns / ?1, count(*), min(sequence), max(sequence) FROM windows"
        " WHERE start_ns >= ?2 AND start_ns < ?3 GROUP BY 1, 2 ORDER BY 2, 1",
        (
            HOUR_NS,
            -_FAR_NS if since_ns is None else since_ns,
            _FAR_NS if until_ns is None else until_ns,
        ),
    ).fetchall()


def unwritten(
    connection: sqlite3.Connection,
    hours: Iterable[tuple[int, int, int, int, int]],
    written: Mapping[Key, Written],
    owners: Mapping[int, Owner],
) -> Iterator[tuple[int, int, list[Window]]]:
    """Row of runs, hour, and its windows that have blocks and are in no segment."""
    for row, hour, count, first, last in hours:
        before = written.get((*owners[row], hour))
        known = before.sequences if before else frozenset()
        # Mostly nothing is missing, which can be told without asking for each.
        if count == last - first + 1 <= len(known) and known.issuperset(range(first, last + 1)):
            continue
        windows = [
            window for window in windows_of(connection, row, hour) if window.sequence not in known
        ]
        if windows:
            yield row, hour, windows


def plan_hours(
    connection: sqlite3.Connection,
    directory: Path,
    runs: Iterable[Run],
    *,
    now_ns: int,
    grace_ns: int,
) -> list[Hour]:
    """What there is to write, oldest first: only hours that are over for ``grace_ns``."""
    by_id = {run.id: run for run in runs}
    owners = owners_of(connection)
    until_ns = (now_ns - grace_ns) // HOUR_NS * HOUR_NS
    hours = logged_hours(connection, until_ns=until_ns)
    written = {one.key: one for one in Known(directory).list()}
    passing = _passing(connection)
    # Retention deletes the oldest first, and what it deleted is not written again. Without
    # segments nothing was deleted; hours that were missed are caught up from the oldest on.
    mine = {owners[row] for row in passing}
    oldest = min((hour for run, started, hour in written if (run, started) in mine), default=None)

    def went(row: int, hour: int) -> bool:
        return oldest is not None and hour < oldest and row in passing

    return [
        Hour(
            *(by_id[row], owners[row].started_ns, hour, windows),
            written.get((*owners[row], hour)),
        )
        for row, hour, windows in unwritten(connection, hours, written, owners)
        if row in by_id and (not went(row, hour) or (*owners[row], hour) in written)
    ]


def _passing(connection: sqlite3.Connection) -> set[int]:
    """Rows of runs whose windows go when they get old."""
    columns = {row[1] for row in connection.execute("PRAGMA table_info(sessions)")}
    saved = "saved" if "saved" in columns else "0"
    return {
        row
        for (row,) in connection.execute(
            "SELECT runs.id FROM runs JOIN sessions ON sessions.id = runs.session"  # noqa: S608
            f" WHERE kind = 'live' AND NOT {saved}"
        )
    }


def quality_columns(connection: sqlite3.Connection) -> str:
    """QUALITY_COLUMNS of the table ``windows`` as SQL: 0 for one that an older schema lacks."""
    there = {row[1] for row in connection.execute("PRAGMA table_info(windows)")}
    return ", ".join(f"windows.{name}" if name in there else "0" for name in QUALITY_COLUMNS)


def windows_of(connection: sqlite3.Connection, run: int, hour: int) -> list[Window]:
    """The windows of an hour that still have their blocks, in order.

    Without them only quality is left, which makes no samples.
    """
    rows = connection.execute(
        "SELECT id, sequence, start_ns, end_ns FROM windows WHERE run = ? AND start_ns >= ?"
        " AND start_ns < ? AND id IN (SELECT window FROM blocks) ORDER BY id",
        (run, hour * HOUR_NS, (hour + 1) * HOUR_NS),
    )
    return [Window(*row) for row in rows]

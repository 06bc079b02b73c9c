"""Which hours of the window log are to be written, or written anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from opd.errors import StoreError
from opd.store.segments.files import HOUR_NS, list_segments, short_run
from opd.store.segments.footer import About, numbers_of, read_about
from opd.store.segments.samples import Window

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable
    from pathlib import Path

    from opd.store.segments.files import Segment
    from opd.store.segments.samples import Run

SECOND_NS = 1_000_000_000


class Written(NamedTuple):
    """A segment and what it says of itself."""

    segment: Segment
    about: About
    sequences: frozenset[int]


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
        self._read: dict[tuple[str, int, int, int], Written | None] = {}

    def list(self, hours: Iterable[tuple[str, int]] | None = None) -> list[Written]:
        """The segments that can be read, or those of these (run8, hour)."""
        wanted = None if hours is None else set(hours)
        seen, found = {}, []
        for segment in list_segments(self._directory):
            if wanted is not None and (segment.run8, segment.hour) not in wanted:
                continue
            try:
                status = segment.path.stat()
            except FileNotFoundError:  # retention took it
                continue
            key = (segment.path.name, status.st_ino, status.st_mtime_ns, status.st_size)
            written = self._read[key] if key in self._read else _read(segment)
            seen[key] = written
            if written is not None:
                found.append(written)
        if wanted is None:
            self._read = seen
        return found


def _read(segment: Segment) -> Written | None:
    """None for a file that is damaged: the hour is written again where the log has it."""
    try:
        about = read_about(segment.path)
        return Written(segment, about, frozenset(numbers_of(about.windows)))
    except StoreError:
        return None


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
    started = dict(
        connection.execute(
            "SELECT runs.id, sessions.started_ns FROM runs"
            " JOIN sessions ON sessions.id = runs.session"
        )
    )
    last = (now_ns - grace_ns) // HOUR_NS
    # Windows whose blocks are gone cannot be written; quality alone makes no segment.
    logged = connection.execute(
        "SELECT run, start_ns / ?1, count(*), min(sequence), max(sequence)"
        " FROM windows WHERE start_ns < ?2 AND id IN (SELECT window FROM blocks)"
        " GROUP BY 1, 2 ORDER BY 2, 1",
        (HOUR_NS, last * HOUR_NS),
    ).fetchall()
    pairs = {(short_run(by_id[run].run), hour) for run, hour, *_ in logged if run in by_id}
    written = {
        (one.about.run, one.about.session_started_ns, one.about.hour): one
        for one in Known(directory).list(pairs)
    }
    hours = []
    for number, hour, count, first, final in logged:
        run = by_id.get(number)
        if run is None:
            continue
        before = written.get((run.run, started[number], hour))
        known = before.sequences if before else frozenset()
        # Mostly nothing is missing, which the ends tell without asking for all.
        if (
            count == final - first + 1
            and known.issuperset((first, final))
            and _whole(known, first, final)
        ):
            continue
        windows = [
            window
            for window in windows_of(connection, number, hour)
            if window.sequence not in known
        ]
        if windows:
            hours.append(Hour(run, started[number], hour, windows, before))
    return hours


def _whole(known: frozenset[int], first: int, last: int) -> bool:
    return last - first + 1 <= len(known) and all(n in known for n in range(first, last + 1))


def windows_of(connection: sqlite3.Connection, run: int, hour: int) -> list[Window]:
    """The windows of an hour that still have their blocks, in order."""
    rows = connection.execute(
        "SELECT id, sequence, start_ns, end_ns FROM windows WHERE run = ? AND start_ns >= ?"
        " AND start_ns < ? AND id IN (SELECT window FROM blocks) ORDER BY id",
        (run, hour * HOUR_NS, (hour + 1) * HOUR_NS),
    )
    return [Window(*row) for row in rows]

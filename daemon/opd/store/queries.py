"""Answers from a store: reports, sessions, runs, events, quality.

A window belongs to a range of time when it overlaps it, whole. Where the sort
keys allow, whole minutes and hours come from the roll-ups and only the edges
from the blocks of windows; both give the same answer.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from itertools import repeat
from typing import TYPE_CHECKING, Any, Self

import msgspec

from opd.errors import StoreError, UnknownNameError
from opd.events.catalogue import BY_NAME
from opd.sampling.window import EventInfo, RunInfo
from opd.store.database import ReadConnection, check_version, snapshot
from opd.store.quality import Stretch, read_quality, stretch_of
from opd.store.scan import Part, Scan
from opd.store.stacks import StackReader, StoredStack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

KEYS = ("comm", "pid", "image", "symbol", "event", "mode", "thread", "cpu")
# Texts are kept by number, and these two as they are.
_TEXT_KEYS = ("comm", "image", "symbol")
_MODES = ("user", "kernel")
_ASKED_AT_ONCE = 500
DEFAULT_SORT = ("comm", "image", "symbol")


class ReportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a report is asked for.

    ``event``: a name as asked of the daemon, or the session's first. ``sort``:
    keys of KEYS; with ``event`` among them and no event named, all events,
    each with percents of its own. ``top`` 0: all rows. Times in ns since
    1970, ``until_ns`` exclusive. ``session`` None: the latest.
    """

    event: str | None = None
    sort: tuple[str, ...] = DEFAULT_SORT
    top: int = 20
    since_ns: int | None = None
    until_ns: int | None = None
    session: str | None = None


class ReportResult(msgspec.Struct, frozen=True, kw_only=True):
    """Rows as columns, heaviest first.

    ``keys``: one list for each sort key (pid, thread and cpu are numbers,
    -1 where not separated; the rest text). ``percent`` is of the event's
    weight. ``total`` and ``weight_total`` are of the range, whatever ``top``
    says. ``damaged`` counts windows whose block could not be read; their
    samples are not in the answer.
    """

    event: str
    session: str
    keys: dict[str, list[str] | list[int]]
    samples: list[int]
    weight: list[int]
    percent: list[float]
    total: int
    weight_total: int
    quality: dict[str, object]
    damaged: int = 0


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A session and how much is in it; times None while it is empty."""

    name: str
    started_ns: int
    kinds: list[str]
    runs: int
    windows: int
    samples: int
    first_ns: int | None
    last_ns: int | None


class _Run(msgspec.Struct, frozen=True):
    """A row of ``runs``."""

    id: int
    info: RunInfo
    threads: bool
    processors: bool
    longest_ns: int
    minutes_until: int
    hours_until: int
    first: bool


def open_reader(directory: Path) -> Reader:
    """Open the store of a session directory. StoreError: none there, or too new."""
    return Reader(ReadConnection(directory))


class Reader:
    """A store opened to read. Threads take turns; every answer is one snapshot."""

    def __init__(self, store: ReadConnection) -> None:
        self._store = store
        self._connection = store.connection
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store."""
        with self._turn:
            self._store.close()

    # ---- the calls

    def report(self, query: ReportQuery) -> ReportResult:
        """The hits of an event by the sort keys.

        UnknownNameError: session, event or key that is not there, with those
        that are. A session without hits has total 0.
        """
        with self._snapshot():
            runs = self._runs(self._session(query.session))
            sort = self._check_sort(query.sort, runs)
            event = _find_event(query.event, runs)
            together = query.event is not None or "event" not in sort
            scan = Scan(self._connection, sort, query.since_ns, query.until_ns)
            for run in runs:
                names = [info.name for info in run.info.events]
                wanted = {
                    index for index, name in enumerate(names) if not together or name == event.name
                }
                if wanted:
                    scan.add_run(
                        Part(run.id, names, wanted, run.longest_ns),
                        minutes_until=run.minutes_until,
                        hours_until=run.hours_until,
                    )
            only = event.name if together else None
            stretches = self._stretches(runs, query.since_ns, query.until_ns, only)
            return self._result(query, scan, event=event, runs=runs, stretches=stretches)

    def sessions(self) -> list[SessionInfo]:
        """All sessions, oldest first."""
        with self._snapshot():
            rows = self._connection.execute(
                "SELECT sessions.name, sessions.started_ns, group_concat(DISTINCT kind),"
                " count(DISTINCT runs.id), count(windows.id), total(samples),"
                " min(start_ns), max(end_ns)"
                " FROM sessions LEFT JOIN runs ON runs.session = sessions.id"
                " LEFT JOIN windows ON windows.run = runs.id"
                " GROUP BY sessions.id ORDER BY sessions.started_ns, sessions.id"
            ).fetchall()
        return [
            SessionInfo(
                name=name,
                started_ns=started,
                kinds=sorted((kinds or "").split(",")) if kinds else [],
                runs=runs,
                windows=windows,
                samples=int(samples),
                first_ns=first,
                last_ns=last,
            )
            for name, started, kinds, runs, windows, samples, first, last in rows
        ]

    def runs(self, session: str | None = None) -> list[RunInfo]:
        """The runs of a session (None: the latest), oldest first."""
        with self._snapshot():
            return [run.info for run in self._runs(self._session(session))]

    def events(self, session: str | None = None) -> list[EventInfo]:
        """The events of a session, those of its latest run first."""
        with self._snapshot():
            return list(_events(self._runs(self._session(session))).values())

    def quality(
        self,
        *,
        session: str | None = None,
        since_ns: int | None = None,
        until_ns: int | None = None,
        event: str | None = None,
    ) -> dict[str, object]:
        """The quality of a range, see opd.store.quality."""
        with self._snapshot():
            runs = self._runs(self._session(session))
            stretches = self._stretches(runs, since_ns, until_ns, event)
            return read_quality(self._connection, stretches, _find_event(event, runs))

    def stacks(self, numbers: Sequence[int]) -> list[StoredStack]:
        """Stacks by their numbers in the ``rows`` blocks, leaf first, with identities."""
        with self._snapshot():
            return StackReader(self._connection).read(numbers)

    # ---- what they share

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Hold one state of the store while a worker may go on writing."""
        with self._turn:
            try:
                with snapshot(self._connection):
                    # The worker may have upgraded it since it was opened.
                    self._version = check_version(self._connection, self._store.path)
                    yield
            except sqlite3.Error as error:
                raise StoreError(f"{self._store.path}: cannot read the store: {error}") from error

    def _session(self, name: str | None) -> int:
        rows = self._connection.execute(
            "SELECT id, name FROM sessions ORDER BY started_ns, id"
        ).fetchall()
        if not rows:
            raise StoreError(f"{self._store.path}: no session in the store yet")
        if name is None:
            return int(rows[-1][0])
        for number, known in rows:
            if known == name:
                return int(number)
        raise UnknownNameError(
            f"no session {name!r}", hint=f"there are: {', '.join(known for _id, known in rows)}"
        )

    def _runs(self, session: int) -> list[_Run]:
        rows = self._connection.execute(
            "SELECT runs.id, run, boot, kind, name, origin, kernel_release, kernel_build_id, host,"
            " cpus, runs.started_ns, events, threads, processors, longest_ns, minutes_until,"
            " hours_until, NOT EXISTS (SELECT 1 FROM runs AS earlier"
            "   WHERE earlier.run = runs.run AND earlier.id < runs.id)"
            " FROM runs JOIN sessions ON sessions.id = runs.session"
            " WHERE session = ? ORDER BY runs.started_ns, runs.id",
            (session,),
        ).fetchall()
        return [
            _Run(
                number,
                _run_info(about, events),
                *(bool(threads), bool(processors), longest, minutes, hours, bool(first)),
            )
            for number, *about, events, threads, processors, longest, minutes, hours, first in rows
        ]

    def _check_sort(self, sort: Sequence[str], runs: Sequence[_Run]) -> tuple[str, ...]:
        kept = {
            "thread": any(run.threads for run in runs),
            "cpu": any(run.processors for run in runs),
        }
        valid = [key for key in KEYS if kept.get(key, True)]
        for key in sort:
            if key not in valid:
                why = " (not separated in this session)" if key in kept else ""
                raise UnknownNameError(
                    f"unknown sort key {key!r}{why}", hint=f"valid: {', '.join(valid)}"
                )
        if not sort:
            raise UnknownNameError("no sort key", hint=f"valid: {', '.join(valid)}")
        return tuple(dict.fromkeys(sort))

    @staticmethod
    def _stretches(
        runs: Sequence[_Run], since_ns: int | None, until_ns: int | None, event: str | None
    ) -> list[Stretch]:
        """The windows of each run in the range; of one event, where a run has several."""
        stretches = []
        for run in runs:
            stretch = stretch_of(run.id, since_ns, until_ns, run.longest_ns, first=run.first)
            names = [info.name for info in run.info.events]
            if event in names and len(names) > 1:
                stretch = stretch._replace(event=names.index(event))
            stretches.append(stretch)
        return stretches

    def _result(
        self,
        query: ReportQuery,
        scan: Scan,
        *,
        event: EventInfo,
        runs: Sequence[_Run],
        stretches: Sequence[Stretch],
    ) -> ReportResult:
        """Order, cut to the top, and put texts for numbers."""
        sort = scan.sort
        together = query.event is not None or "event" not in sort
        entries = list(scan.sums.items())
        if 0 < query.top < len(entries):
            # Ties at the cut are decided by text, so they all come along.
            least = sorted((sums[1] for _key, sums in entries), reverse=True)[query.top - 1]
            entries = [entry for entry in entries if entry[1][1] >= least]
        texts = self._texts(sort, [key for key, _sums in entries])
        rows = [
            (
                -sums[1],
                tuple(_cell(name, cell, texts) for name, cell in zip(sort, key, strict=True)),
                sums,
            )
            for key, sums in entries
        ]
        rows.sort(key=lambda row: (row[0], row[1]))
        if query.top > 0:
            del rows[query.top :]
        weight_total = sum(weight for _samples, weight in scan.totals.values())
        at = sort.index("event") if not together else -1
        percent = []
        for _weight, key, sums in rows:
            whole = weight_total if together else scan.totals[str(key[at])][1]
            percent.append(100.0 * sums[1] / whole if whole else 0.0)
        columns: dict[str, list[str] | list[int]] = {
            column: [row[1][index] for row in rows]  # type: ignore[misc]
            for index, column in enumerate(sort)
        }
        return ReportResult(
            event=event.name if together else ",".join(_events(runs)),
            session=runs[-1].info.session,
            keys=columns,
            samples=[sums[0] for _weight, _key, sums in rows],
            weight=[sums[1] for _weight, _key, sums in rows],
            percent=percent,
            total=sum(samples for samples, _weight in scan.totals.values()),
            weight_total=weight_total,
            quality=read_quality(self._connection, stretches, event),
            damaged=scan.damaged,
        )

    def _texts(
        self, sort: Sequence[str], keys: Sequence[tuple[int | str, ...]]
    ) -> dict[int | str, str]:
        """The texts of the numbers that the keys use."""
        columns = [index for index, name in enumerate(sort) if name in _TEXT_KEYS]
        numbers = list({key[index] for key in keys for index in columns})
        texts: dict[int | str, str] = {}
        for at in range(0, len(numbers), _ASKED_AT_ONCE):
            some = numbers[at : at + _ASKED_AT_ONCE]
            marks = ",".join(repeat("?", len(some)))
            texts.update(
                self._connection.execute(
                    f"SELECT id, text FROM names WHERE id IN ({marks})",  # noqa: S608
                    some,
                )
            )
        return texts


def _run_info(about: Sequence[Any], events: bytes) -> RunInfo:
    """The columns run..started_ns, in the order of RunInfo's fields, and its events."""
    fields = RunInfo.__struct_fields__
    info = dict(zip(fields, about, strict=False))
    return RunInfo(**info, events=msgspec.msgpack.decode(events, type=list[EventInfo]))


def _cell(name: str, cell: int | str, texts: dict[int | str, str]) -> int | str:
    """A cell as the report shows it."""
    if name in _TEXT_KEYS:
        return texts.get(cell, "[unknown]")
    if name == "mode":
        return _MODES[int(cell) & 1]
    return cell


def _events(runs: Sequence[_Run]) -> dict[str, EventInfo]:
    """The events by name; where runs differ the latest run says what one is."""
    events: dict[str, EventInfo] = {}
    for run in reversed(runs):
        for event in run.info.events:
            events.setdefault(event.name, event)
    return events


def _find_event(name: str | None, runs: Sequence[_Run]) -> EventInfo:
    events = _events(runs)
    if name is None and events:
        return next(iter(events.values()))
    if name in events:
        return events[name]
    # Also by what really runs, by its name without modifiers, or its other name.
    known = BY_NAME.get(name or "")
    meant = {name, known.name if known else name}
    alike = [
        event
        for event in events.values()
        if meant & {event.source, event.name.partition(":")[0], event.source.partition(":")[0]}
    ]
    if len(alike) == 1:
        return alike[0]
    raise UnknownNameError(f"no event {name!r}", hint=f"there are: {', '.join(events) or 'none'}")

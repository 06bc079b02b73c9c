"""Sessions, runs and events as questions about a store see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from opd.errors import StoreError, UnknownNameError
from opd.sampling.window import EventInfo, RunInfo

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence


class Run(msgspec.Struct, frozen=True):
    """A row of ``runs``.

    Of hours below ``hours_from`` only minutes are there. ``first``: the run
    began in this session, and none of its windows went with age or for room.
    """

    id: int
    info: RunInfo
    threads: bool
    processors: bool
    longest_ns: int
    minutes_until: int
    hours_until: int
    hours_from: int
    first: bool


def find_session(connection: sqlite3.Connection, name: str | None) -> int:
    """The number of a session; None: the latest. Raises UnknownNameError, StoreError.

    A burst is the latest only of a store that has nothing else.
    """
    rows = connection.execute(
        "SELECT id, name,"
        " EXISTS (SELECT 1 FROM runs WHERE session = sessions.id AND kind = 'burst')"
        " FROM sessions ORDER BY started_ns, id"
    ).fetchall()
    if not rows:
        raise StoreError("no session in the store yet")
    if name is None:
        return int(([row for row in rows if not row[2]] or rows)[-1][0])
    for number, known, _burst in rows:
        if known == name:
            return int(number)
    raise UnknownNameError(
        f"no session {name!r}", hint=f"there are: {', '.join(known for _id, known, _burst in rows)}"
    )


def runs_of(connection: sqlite3.Connection, session: int) -> list[Run]:
    """The runs of a session, oldest first."""
    columns = {row[1] for row in connection.execute("PRAGMA table_info(runs)")}
    # What schema 2 brought, as it is or would be.
    hours_from, deleted = ("hours_from", "deleted") if "deleted" in columns else ("0", "0")
    cpuid = "cpuid" if "cpuid" in columns else "''"  # schema 3
    rows = connection.execute(
        "SELECT runs.id, run, boot, kind, name, origin, kernel_release, kernel_build_id, host,"  # noqa: S608
        f" cpus, runs.started_ns, {cpuid}, events, threads, processors, longest_ns, minutes_until,"
        f" hours_until, {hours_from}, {deleted} = 0 AND NOT EXISTS (SELECT 1 FROM runs AS earlier"
        "   WHERE earlier.run = runs.run AND earlier.id < runs.id)"
        " FROM runs JOIN sessions ON sessions.id = runs.session"
        " WHERE session = ? ORDER BY runs.started_ns, runs.id",
        (session,),
    ).fetchall()
    return [_run(row) for row in rows]


def _run(row: Sequence[Any]) -> Run:
    id_, *about, cpuid, events, threads, processors, longest, minutes, hours, since, first = row
    return Run(
        *(id_, _run_info(about, cpuid, events), bool(threads), bool(processors)),
        *(longest, minutes, hours, since, bool(first)),
    )


def _run_info(about: Sequence[Any], cpuid: str, events: bytes) -> RunInfo:
    """The columns run..started_ns, in the order of RunInfo's fields, and the last ones."""
    fields = RunInfo.__struct_fields__
    info = dict(zip(fields, about, strict=False))
    infos = msgspec.msgpack.decode(events, type=list[EventInfo])
    return RunInfo(**info, events=infos, cpuid=cpuid)


def events_of(runs: Sequence[Run]) -> dict[str, EventInfo]:
    """The events by name; where runs differ the latest run says what one is."""
    events: dict[str, EventInfo] = {}
    for run in reversed(runs):
        for event in run.info.events:
            events.setdefault(event.name, event)
    return events


def find_event(name: str | None, runs: Sequence[Run]) -> EventInfo:
    """The event of that name, None: the first. Raises UnknownNameError."""
    events = events_of(runs)
    if name is None and events:
        return next(iter(events.values()))
    if name in events:
        return events[name]
    # A recording has a PMU's event as perf named it: `ibs_op//` is also asked for by `ibs_op`.
    of_pmu = [event for event in events.values() if event.name.partition("/")[0] == name]
    if len(of_pmu) == 1:
        return of_pmu[0]
    from opd.events.catalogue import BY_NAME  # seldom asked, and answers have a budget

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


def unseparated(runs: Sequence[Run]) -> list[str]:
    """The keys that no run of the session kept apart."""
    kept = {
        "thread": any(run.threads for run in runs),
        "cpu": any(run.processors for run in runs),
    }
    return [key for key, there in kept.items() if not there]

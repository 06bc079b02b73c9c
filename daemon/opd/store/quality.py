"""The quality of a stretch of a session: what was lost, degraded, missing.

``hz_effective`` is ``hz_asked * (1 - throttled / elapsed) * taken / (taken +
lost)``: throttled and elapsed in CPU time (wall-clock time times CPUs), taken
and lost in samples. It is None for an event with a fixed period. A window's
``throttled_ns`` is what the kernel and the governor took together; the
governor's part, where there is one, is also in ``extra``.

Of a run of several events, what can be told apart (EVENT_COLUMNS) is that of
the event asked for; windows dropped, throttling and idle are of all events.

``windows.missing`` are the gaps in the run's sequence numbers: between the
windows of the range, and before the first one when the range is open at its
start and the run began in this session.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from opd.sampling.window import GOVERNED, LABELS
from opd.store.schema import EVENT_COLUMNS, EVENTS, QUALITY_COLUMNS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from opd.sampling.window import EventInfo

# Of a window; a clock that was set back makes none shorter than nothing.
_LENGTH = "max(end_ns - start_ns, 0)"
_ASKED_APART = 100
_FAR_NS = 1 << 62
_LOST = ("ring_full", "window_dropped", "hash_full")
_DEGRADED = ("no_mapping", "stack_truncated", "unwind_failed", "inexact_ip", "unnamed")


class Stretch(NamedTuple):
    """The windows of one row of ``runs`` that overlap a range of time."""

    run: int
    where: str
    values: tuple[int, ...]
    from_start: bool
    event: int | None = None  # only this event's, where it can be told apart


def stretch_of(
    run: int, since_ns: int | None, until_ns: int | None, longest_ns: int, *, first: bool
) -> Stretch:
    """``where`` is about a table ``windows``; ``first``: the run began here."""
    where = "windows.run = ?"
    values = [run]
    if since_ns is not None:
        # Overlaps the range; the bound on the start lets the index find it.
        where += " AND start_ns >= ? AND (end_ns > ? OR start_ns >= ?)"
        values += [since_ns - longest_ns, since_ns, since_ns]
    if until_ns is not None:
        where += " AND start_ns < ?"
        values.append(until_ns)
    return Stretch(run, where, tuple(values), since_ns is None and first)


def read_quality(
    connection: sqlite3.Connection, stretches: Iterable[Stretch], event: EventInfo | None
) -> dict[str, object]:
    """The ``quality`` of DESIGN's wire protocol, summed over the stretches."""
    return read_range(connection, stretches, event)[0]


def read_range(
    connection: sqlite3.Connection, stretches: Iterable[Stretch], event: EventInfo | None
) -> tuple[dict[str, object], float]:
    """``read_quality``, and the seconds that the windows cover."""
    covered_ns = 0
    sums = dict.fromkeys(QUALITY_COLUMNS, 0)
    have = missing = governed = 0
    # Windows of an older schema lack the last ones.
    present = {row[1] for row in connection.execute("PRAGMA table_info(windows)")}
    columns = [name for name in QUALITY_COLUMNS if name in present]
    selected = ", ".join(f"sum({name})" for name in columns)
    for stretch in stretches:
        count, first, last, length_ns, *row = connection.execute(
            f"SELECT count(*), min(sequence), max(sequence), sum({_LENGTH}), {selected}"  # noqa: S608
            f" FROM windows WHERE {stretch.where}",
            stretch.values,
        ).fetchone()
        if not count:
            continue
        have += count
        covered_ns += length_ns
        missing += last + 1 - (0 if stretch.from_start else first) - count
        of_run = dict(zip(columns, row, strict=True))
        if of_run["throttled_ns"]:
            governed += _governed(connection, stretch)
        if stretch.event is not None:
            of_run |= _of_event(connection, stretch, stretch.event)
        for name, value in of_run.items():
            sums[name] += value
    hz = event.hz if event else None
    quality: dict[str, object] = {
        "hz_asked": hz,
        "hz_effective": None if hz is None else _effective(hz, sums),
        "source": event.source if event else "",
        "lost": {name: sums[name] for name in _LOST},
        "degraded": {name: sums[name] for name in _DEGRADED},
        "throttled_seconds": max(sums["throttled_ns"] - governed, 0) / 1e9,
        "governed_seconds": governed / 1e9,
        "idle": sums["idle"],
        "windows": {"have": have, "missing": missing},
        "frames": {
            "named": sums["frames_named"],
            "ranges": sums["frames_ranges"],
            "unknown": sums["frames_unknown"],
        },
        "labels": {
            **{name.removeprefix("label_"): sums[name] for name in LABELS},
            "unknown": max(0, sums["samples"] - sum(sums[name] for name in LABELS)),
        },
    }
    return quality, covered_ns / 1e9


def read_extent(
    connection: sqlite3.Connection, stretches: Iterable[Stretch]
) -> tuple[int | None, int | None]:
    """When the first and the last window of the stretches begin; None: there is none."""
    found = [
        [
            connection.execute(
                f"SELECT start_ns FROM windows WHERE {stretch.where}"  # noqa: S608
                f" ORDER BY start_ns {order} LIMIT 1",
                stretch.values,
            ).fetchone()
            for order in ("ASC", "DESC")
        ]
        for stretch in stretches
    ]
    firsts = [first[0] for first, _last in found if first is not None]
    lasts = [last[0] for _first, last in found if last is not None]
    return min(firsts, default=None), max(lasts, default=None)


def read_covered(
    connection: sqlite3.Connection, stretches: Iterable[Stretch], starts: Sequence[int]
) -> dict[int, float]:
    """Seconds that the windows of the stretches cover, by the bucket that they begin in.

    ``starts``: of the buckets, ascending; what begins before the second one is
    in bucket 0.
    """
    covered: dict[int, float] = {}
    if len(starts) <= _ASKED_APART:
        # SQLite adds them up, a bucket at a time.
        ends = [*starts[1:], _FAR_NS][: len(starts)]
        for bucket, (start, end) in enumerate(zip(starts, ends, strict=True)):
            first = -_FAR_NS if bucket == 0 else start
            for stretch in stretches:
                (length_ns,) = connection.execute(
                    f"SELECT sum({_LENGTH}) FROM windows"  # noqa: S608
                    f" WHERE {stretch.where} AND start_ns >= ? AND start_ns < ?",
                    (*stretch.values, first, end),
                ).fetchone()
                if length_ns is not None:
                    covered[bucket] = covered.get(bucket, 0.0) + length_ns / 1e9
        return covered
    for stretch in stretches:
        spans = connection.execute(
            f"SELECT start_ns, {_LENGTH} FROM windows WHERE {stretch.where}",  # noqa: S608
            stretch.values,
        )
        for start_ns, length_ns in spans:
            bucket = max(bisect_right(starts, start_ns) - 1, 0)
            covered[bucket] = covered.get(bucket, 0.0) + length_ns / 1e9
    return covered


def _governed(connection: sqlite3.Connection, stretch: Stretch) -> int:
    """CPU time, in ns, that the governor gave up in the stretch."""
    rows = connection.execute(
        f"SELECT extra FROM windows WHERE {stretch.where}"  # noqa: S608
        " AND throttled_ns > 0 AND extra IS NOT NULL",
        stretch.values,
    )
    return sum(int(msgspec.msgpack.decode(extra).get(GOVERNED, 0)) for (extra,) in rows)


def _of_event(connection: sqlite3.Connection, stretch: Stretch, event: int) -> dict[str, int]:
    """EVENT_COLUMNS of one event of the stretch, from the windows' ``extra``."""
    sums = dict.fromkeys(EVENT_COLUMNS, 0)
    for (extra,) in connection.execute(
        f"SELECT extra FROM windows WHERE {stretch.where}",  # noqa: S608
        stretch.values,
    ):
        events = msgspec.msgpack.decode(extra).get(EVENTS, []) if extra else []
        if event < len(events):
            for name, value in zip(EVENT_COLUMNS, events[event], strict=False):
                sums[name] += value
    return sums


def _effective(hz: int, sums: dict[str, int]) -> float:
    elapsed, throttled = sums["elapsed_ns"], sums["throttled_ns"]
    taken = sums["samples"]
    lost = sum(sums[name] for name in _LOST)
    running = 1 - min(1.0, throttled / elapsed) if elapsed else 1.0
    kept = taken / (taken + lost) if taken + lost else 1.0
    return hz * running * kept

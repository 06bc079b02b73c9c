"""Time that a report leaves out: the windows in which probes ran."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from opd.store.runs import Run

Range = tuple[int | None, int | None]

# The schema that brought probes.
_SINCE = 4
_FAR_NS = 1 << 62
_MARK = re.compile(r"probe \S+ (\d+) (begins|ends)")
# A comparison that opd ended with ran each of its processes for so many time limits at most.
_COMPARED = 45


class LeftOut(NamedTuple):
    """The parts of a range that count, in order, and how much does not."""

    ranges: Sequence[Range]
    probes: int
    windows: int
    seconds: float

    def told(self) -> dict[str, int | float]:
        """For the quality of an answer."""
        return {"probes": self.probes, "windows": self.windows, "seconds": self.seconds}


def without_probes(
    connection: sqlite3.Connection,
    version: int,
    runs: Sequence[Run],
    since_ns: int | None,
    until_ns: int | None,
) -> LeftOut:
    """Take out of a range each whole window of the runs in which a probe ran.

    The daemon ends a window where a probe begins and where it ends; a probe that
    it does not know of (``opctl --session-dir DIR probe run``) takes the windows that
    it began and ended in with it.
    """
    spans = _spans(connection, since_ns, until_ns) if version >= _SINCE else []
    gaps: list[tuple[int, int]] = []
    windows, covered = 0, 0
    found = 0
    for begin, end in spans:
        count, first, last, length = _windows(connection, runs, begin, end)
        if count:
            found += 1
            gaps.append((min(first, begin), max(last, end)))
            windows += count
            covered += length
    return LeftOut(_between(_joined(gaps), since_ns, until_ns), found, windows, covered / 1e9)


def _spans(
    connection: sqlite3.Connection, since_ns: int | None, until_ns: int | None
) -> list[tuple[int, int]]:
    """When probes ran, by the marks at the windows' ends where there are any; joined, ascending."""
    marks: dict[tuple[int, str], int] = {}
    for at_ns, text in connection.execute("SELECT at_ns, text FROM marks WHERE kind = 'probe'"):
        if match := _MARK.fullmatch(text):
            marks[int(match[1]), match[2]] = at_ns
    spans = []
    rows = connection.execute(
        "SELECT id, started_ns, ended_ns, origin, parameters FROM probe_runs ORDER BY id"
    )
    for number, started, ended, origin, parameters in rows:
        begin = marks.get((number, "begins"), started)
        end = marks.get((number, "ends"), ended)
        if end is None:
            end = _end_of_unended(connection, started, origin, parameters)
        if end > begin and begin < (until_ns or _FAR_NS) and end > (since_ns or -_FAR_NS):
            spans.append((begin, end))
    return _joined(spans)


def _end_of_unended(
    connection: sqlite3.Connection, started: int, origin: str, parameters: str
) -> int:
    """Of one that runs, or that opd ended with: its time limit, or opd's next start."""
    limit = float(json.loads(parameters).get("time_limit", 0.0))
    latest = started + int(limit * (_COMPARED if origin == "compare" else 1) * 1e9)
    (next_start,) = connection.execute(
        "SELECT min(started_ns) FROM runs WHERE started_ns > ? AND kind = 'live'", (started,)
    ).fetchone()
    return latest if next_start is None else min(latest, int(next_start))


def _windows(
    connection: sqlite3.Connection, runs: Sequence[Run], begin: int, end: int
) -> tuple[int, int, int, int]:
    """Of the windows that overlap a span: how many, first start, last end, their lengths."""
    count, first, last, length = 0, _FAR_NS, -_FAR_NS, 0
    for run in runs:
        found = connection.execute(
            "SELECT count(*), min(start_ns), max(end_ns), sum(max(end_ns - start_ns, 0))"
            " FROM windows WHERE run = ? AND start_ns >= ? AND start_ns < ? AND end_ns > ?",
            (run.id, begin - run.longest_ns, end, begin),
        ).fetchone()
        if found[0]:
            count += found[0]
            first, last = min(first, found[1]), max(last, found[2])
            length += found[3]
    return count, first, last, length


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order, those that touch as one.

    >>> _joined([(5, 7), (1, 3), (3, 4)])
    [(1, 4), (5, 7)]
    """
    found: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _between(gaps: Sequence[tuple[int, int]], since: int | None, until: int | None) -> list[Range]:
    """What of a range is in no gap.

    >>> _between([(2, 4), (6, 9)], None, 8)
    [(None, 2), (4, 6)]
    """
    low, high = (-_FAR_NS if since is None else since), (_FAR_NS if until is None else until)
    edges = [low, *(edge for gap in gaps for edge in gap), high]
    found = []
    for begin, end in list(pairwise(edges))[::2]:
        begin, end = max(begin, low), min(end, high)  # noqa: PLW2901
        if begin < end:
            found.append((None if begin == -_FAR_NS else begin, None if end == _FAR_NS else end))
    return found

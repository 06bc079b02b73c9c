"""Reports: the hits of an event by the sort keys, of a range whole or in buckets of time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from opd.errors import UnknownNameError
from opd.store.buckets import divide
from opd.store.keys import KEYS, read_labels, read_names, show
from opd.store.quality import read_covered, read_extent, read_range, stretch_of
from opd.store.runs import events_of, find_event, unseparated
from opd.store.scan import Filter, Part, Scan
from opd.store.where import Where

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from opd.sampling.window import EventInfo
    from opd.store.apart import LeftOut
    from opd.store.extracolumns import ExtraColumn
    from opd.store.keys import Labels
    from opd.store.quality import Stretch
    from opd.store.runs import Run
    from opd_native.scan import Rows, Total

DEFAULT_SORT = ("comm", "image", "symbol")


class ReportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a report is asked for.

    ``event``: a name as asked of the daemon, or the session's first. ``sort``:
    keys of KEYS; with ``event`` among them and no event named, all events,
    each with percents of its own; so it is when ``where`` is about events.
    ``top`` 0: all rows. Times in ns since 1970, ``until_ns`` exclusive.
    ``session`` None: the latest. ``where``: an expression (opd.store.where).
    ``per_s``: seconds of a bucket, for a series. ``without_probes``: windows in
    which a probe ran do not count; the quality says how many.
    """

    event: str | None = None
    sort: tuple[str, ...] = DEFAULT_SORT
    top: int = 20
    since_ns: int | None = None
    until_ns: int | None = None
    session: str | None = None
    where: str | None = None
    per_s: int | None = None
    without_probes: bool = False


class Buckets(msgspec.Struct, frozen=True, kw_only=True):
    """The buckets in which there are windows, ascending; each column has one cell a bucket.

    ``covered_s``: seconds of the windows that begin in it. The sums are of all
    that the filter lets through, whatever ``top`` says.
    """

    time_ns: list[int]
    covered_s: list[float]
    samples: list[int]
    weight: list[int]


class ReportResult(msgspec.Struct, kw_only=True):
    """Rows as columns, heaviest first; of a series by time, then heaviest first.

    ``keys``: one list for each sort key (pid, thread and cpu are numbers, -1
    where not separated; the rest text). ``total`` and ``weight_total`` are of
    the range and of what ``where`` lets through, whatever ``top`` says, and
    ``percent`` is of the event's such weight (of a series: in the bucket);
    ``all_total`` and ``all_weight`` are the same before ``where``. ``cores``:
    weight in seconds by the seconds that windows cover, None for events whose
    weight is no time. ``time_ns``: of a series, the start of each row's
    bucket. ``damaged`` counts windows whose block could not be read; their
    samples are not in the answer. ``extra``: the extra columns of the event.
    """

    event: str
    session: str
    keys: dict[str, list[str] | list[int]]
    samples: list[int]
    weight: list[int]
    percent: list[float]
    cores: list[float | None]
    total: int
    weight_total: int
    all_total: int
    all_weight: int
    covered_s: float
    cores_total: float | None
    quality: dict[str, object]
    damaged: int = 0
    where: str | None = None
    time_ns: list[int] | None = None
    buckets: Buckets | None = None
    extra: list[ExtraColumn] = []


class _Line(NamedTuple):
    """One row of the answer: what the row ``place`` has in a bucket."""

    bucket: int
    place: int
    samples: int
    weight: int


class Report:
    """One question to one snapshot of a store."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        query: ReportQuery,
        runs: Sequence[Run],
        *,
        left_out: LeftOut | None = None,
    ) -> None:
        """Check the names in the question. Raises UnknownNameError, UsageError.

        ``left_out``: what of the range counts, where it is not all.
        """
        self._connection = connection
        self._left_out = left_out
        self._ranges = [(query.since_ns, query.until_ns)] if left_out is None else left_out.ranges
        self._query = query
        self._runs = runs
        self._events = list(events_of(runs).values())
        not_separated = unseparated(runs)
        where = None if query.where is None else Where(query.where)
        sort = _check_sort(query.sort, not_separated)
        asked = where.keys if where is not None else set()
        if "event" in asked and query.event is None and "event" not in sort:
            sort = (*sort, "event")
        self._sort = sort
        self._event = find_event(query.event, runs)
        self._together = query.event is not None or "event" not in sort
        self._filter = Filter()
        if where is not None:
            names = [event.name for event in self._events]
            steps = where.resolve(connection, names, not_separated=not_separated)
            self._filter = Filter(steps, asked)

    def answer(self) -> ReportResult:
        """Read and sum. Raises UsageError when that is too much."""
        query = self._query
        labels = {
            KEYS[key].field: read_labels(self._connection, KEYS[key].field)
            for key in self._sort
            if KEYS[key].kind == "label"
        }
        stretches = self._stretches()
        starts = self._starts(stretches)
        scan = self._scan(labels)
        rows = scan.rows(query.top)
        order, keys = self._order(rows, labels)
        if query.per_s is None:
            lines = [
                _Line(0, place, rows.samples[at], rows.weight[at]) for place, at in enumerate(order)
            ]
        else:
            series = scan.series((rows.numbers[at] for at in order), starts)
            lines = [_Line(*cells) for cells in zip(*series, strict=True)]
            lines.sort(key=lambda line: (line.bucket, -line.weight, line.place))
        totals = scan.totals()
        quality, covered_s = read_range(self._connection, stretches, self._event)
        if self._left_out is not None:
            quality["left_out"] = self._left_out.told()
        covered = (
            {0: covered_s}
            if query.per_s is None
            else read_covered(self._connection, stretches, starts)
        )
        percent, cores = self._ratios(rows, order, lines, totals=totals, covered=covered)
        weight_total = sum(total.weight for total in totals)
        timed = all(event.unit == "ns" for event in self._wanted())
        return ReportResult(
            event=",".join(event.name for event in self._wanted()),
            session=self._runs[-1].info.session,
            keys={
                name: [column[line.place] for line in lines]  # type: ignore[misc]
                for name, column in keys.items()
            },
            samples=[line.samples for line in lines],
            weight=[line.weight for line in lines],
            percent=percent,
            cores=cores,
            total=sum(total.samples for total in totals),
            weight_total=weight_total,
            all_total=sum(total.all_samples for total in totals),
            all_weight=sum(total.all_weight for total in totals),
            covered_s=covered_s,
            cores_total=_cores(weight_total, covered_s) if timed else None,
            quality=quality,
            damaged=scan.damaged,
            where=query.where,
            time_ns=None if query.per_s is None else [starts[line.bucket] for line in lines],
            buckets=None if query.per_s is None else _buckets(starts, covered, totals),
        )

    # ---- its parts

    def _wanted(self) -> list[EventInfo]:
        return [self._event] if self._together else self._events

    def _stretches(self) -> list[Stretch]:
        """The windows of each run in the range; of one event, where a run has several."""
        only = self._event.name if self._together else None
        return [
            stretch
            for since, until in self._ranges
            for stretch in stretches_of(self._runs, since, until, only)
        ]

    def _starts(self, stretches: Sequence[Stretch]) -> list[int]:
        """The starts of the buckets of a series, as far as there are windows."""
        if self._query.per_s is None:
            return []
        first, last = read_extent(self._connection, stretches)
        if first is None or last is None:
            return []
        since = first if self._query.since_ns is None else max(first, self._query.since_ns)
        return divide(since, last + 1, self._query.per_s)

    def _scan(self, labels: dict[str, Labels]) -> Scan:
        query = self._query
        scan = Scan(
            self._connection,
            self._sort,
            self._ranges,
            only=self._filter,
            maps={
                key: labels[KEYS[key].field].which
                for key in self._sort
                if KEYS[key].kind == "label"
            },
            again=query.per_s is not None,
        )
        wanted = {event.name for event in self._wanted()}
        numbers = {
            event.name: number if event.name in wanted else None
            for number, event in enumerate(self._events)
        }
        for run in self._runs:
            events = [numbers[event.name] for event in run.info.events]
            if any(number is not None for number in events):
                scan.add_run(
                    Part(
                        *(run.id, events, run.longest_ns),
                        *(run.minutes_until, run.hours_until, run.hours_from),
                    )
                )
        return scan

    def _order(
        self, rows: Rows, labels: dict[str, Labels]
    ) -> tuple[list[int], dict[str, list[str] | list[int]]]:
        """The rows of the answer, heaviest first and ties by what is shown, and that."""
        infos = [KEYS[key] for key in self._sort]
        names = read_names(
            self._connection,
            (
                cell
                for info, cells in zip(infos, rows.cells, strict=True)
                if info.kind == "text"
                for cell in cells
            ),
        )
        events = [event.name for event in self._events]
        columns = [
            show(info, cells, names=names, events=events, labels=labels)
            for info, cells in zip(infos, rows.cells, strict=True)
        ]
        shown = list(zip(*columns, strict=True))
        order = sorted(range(len(shown)), key=lambda at: (-rows.weight[at], shown[at]))
        if self._query.top > 0:
            del order[self._query.top :]
        keys = {
            key: [column[at] for at in order]
            for key, column in zip(self._sort, columns, strict=True)
        }
        return order, keys  # type: ignore[return-value]

    def _ratios(
        self,
        rows: Rows,
        order: Sequence[int],
        lines: Sequence[_Line],
        *,
        totals: Sequence[Total],
        covered: dict[int, float],
    ) -> tuple[list[float], list[float | None]]:
        """Percent and cores of each line."""
        if self._together:
            event = self._events.index(self._event)
            of = [event] * len(order)
        else:
            cells = rows.cells[self._sort.index("event")]
            of = [cells[at] for at in order]
        wholes = {(total.bucket, total.event): total.weight for total in totals}
        percent: list[float] = []
        cores: list[float | None] = []
        for line in lines:
            event = of[line.place]
            whole = wholes.get((line.bucket, event), 0)
            percent.append(100.0 * line.weight / whole if whole else 0.0)
            timed = self._events[event].unit == "ns"
            cores.append(_cores(line.weight, covered.get(line.bucket, 0.0)) if timed else None)
        return percent, cores


def _cores(weight_ns: int, covered_s: float) -> float | None:
    return weight_ns / 1e9 / covered_s if covered_s > 0 else None


def _buckets(starts: Sequence[int], covered: dict[int, float], totals: Sequence[Total]) -> Buckets:
    samples, weight = Counter[int](), Counter[int]()
    for total in totals:
        samples[total.bucket] += total.samples
        weight[total.bucket] += total.weight
    numbers = sorted(covered.keys() | samples.keys())
    return Buckets(
        time_ns=[starts[number] for number in numbers],
        covered_s=[covered.get(number, 0.0) for number in numbers],
        samples=[samples[number] for number in numbers],
        weight=[weight[number] for number in numbers],
    )


def _check_sort(sort: Sequence[str], not_separated: Sequence[str]) -> tuple[str, ...]:
    valid = [key for key in KEYS if key not in not_separated]
    for key in sort:
        if key not in valid:
            why = " (not separated in this session)" if key in not_separated else ""
            raise UnknownNameError(
                f"unknown sort key {key!r}{why}", hint=f"valid: {', '.join(valid)}"
            )
    if not sort:
        raise UnknownNameError("no sort key", hint=f"valid: {', '.join(valid)}")
    return tuple(dict.fromkeys(sort))


def stretches_of(
    runs: Sequence[Run], since_ns: int | None, until_ns: int | None, event: str | None
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

"""``report --metric NAME``: ratios, means, quantiles by the sort keys, with their intervals."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from opd.errors import UnknownNameError, UsageError
from opd.stats.histogram import Histogram
from opd.stats.intervals import mean_interval, share_interval
from opd.store.precise.definitions import METRICS, Metric
from opd.store.precise.reading import Chosen, Shower
from opd.store.reports import Report, ReportQuery, stretches_of
from opd.store.runs import events_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from opd.store.reports import ReportResult
    from opd.store.runs import Run

_Row = tuple[Any, ...]


class MetricRow(msgspec.Struct, frozen=True):
    """A value and how sure it is: ``numerator`` / ``denominator``, of ``n`` samples, at 95 %.

    ``value``, ``low`` and ``high`` are None where there is nothing to tell
    them from.
    """

    value: float | None
    low: float | None
    high: float | None
    numerator: int
    denominator: int
    n: int


class MetricResult(msgspec.Struct, frozen=True, kw_only=True):
    """Rows as columns, largest numerator first; ``total`` is of all rows, whatever ``top`` says.

    ``in_histogram``: of a latency, the samples in histograms by those counted;
    the rest had no room, and quantiles do not know of them.
    """

    metric: Metric
    session: str
    keys: dict[str, list[str] | list[int]]
    rows: list[MetricRow]
    total: MetricRow
    covered_s: float
    quality: dict[str, object]
    damaged: int = 0
    in_histogram: tuple[int, int] | None = None
    where: str | None = None


def find_metric(name: str) -> Metric:
    """The metric of that name. Raises UnknownNameError with the close and all valid ones."""
    metric = METRICS.get(name)
    if metric is None:
        from opd.config.nearest import did_you_mean  # for mistakes alone

        raise UnknownNameError(
            f"no metric {name[:100]!r}{did_you_mean(name[:100], METRICS)}",
            hint=f"there are: {' '.join(METRICS)}",
        )
    return metric


def answer_metric(
    connection: sqlite3.Connection, name: str, query: ReportQuery, runs: Sequence[Run]
) -> MetricResult:
    """One metric of a range. Raises UnknownNameError: no such metric, or its events are not there.

    UsageError for a question that a metric has no answer to.
    """
    metric = find_metric(name)
    if query.event is not None or query.per_s is not None or "event" in query.sort:
        raise UsageError("a metric has its own events: leave out the event and --per")
    have = events_of(runs)
    missing = [event for event in (*metric.events, *metric.over) if event not in have]
    if missing:
        raise UnknownNameError(
            f"metric {name} needs {', '.join(missing)}, which this session does not have",
            hint=f"there are: {', '.join(have)}",
        )
    if metric.kind in ("mean", "quantile"):
        return _Latency(connection, metric, query, runs).answer()
    return _share(connection, metric, query, runs)


def _report(
    connection: sqlite3.Connection, query: ReportQuery, runs: Sequence[Run], event: str
) -> ReportResult:
    asked = msgspec.structs.replace(query, event=event, top=0)
    return Report(connection, asked, runs).answer()


def _by_key(result: ReportResult) -> list[tuple[_Row, int, int]]:
    """Key, samples and weight of each row."""
    return list(
        zip(zip(*result.keys.values(), strict=True), result.samples, result.weight, strict=True)
    )


def _share(
    connection: sqlite3.Connection, metric: Metric, query: ReportQuery, runs: Sequence[Run]
) -> MetricResult:
    sums: dict[_Row, list[int]] = defaultdict(lambda: [0, 0])
    total = [0, 0]
    results: list[ReportResult] = []
    for side, events in enumerate((metric.events, metric.over)):
        for event in events:
            result = _report(connection, query, runs, event)
            results.append(result)
            total[side] += result.total
            for key, samples, _weight in _by_key(result):
                sums[key][side] += samples
    order = sorted(sums, key=lambda key: (-sums[key][0], -sums[key][1], *map(str, key)))
    if query.top > 0:
        del order[query.top :]
    whole = results[-1]  # of the denominator: its quality is what counts
    return MetricResult(
        metric=metric,
        session=whole.session,
        keys=_columns(tuple(whole.keys), order),
        rows=[_share_row(*sums[key]) for key in order],
        total=_share_row(*total),
        covered_s=whole.covered_s,
        quality=whole.quality,
        damaged=max(result.damaged for result in results),
        where=query.where,
    )


def _columns(names: Sequence[str], rows: Sequence[_Row]) -> dict[str, list[str] | list[int]]:
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def _share_row(numerator: int, denominator: int) -> MetricRow:
    if denominator == 0:
        return MetricRow(None, None, None, numerator, 0, 0)
    low, high = share_interval(numerator, denominator)
    return MetricRow(numerator / denominator, low, high, numerator, denominator, denominator)


class _Latency:
    """Means and quantiles: sums from the rows, spread and quantiles from the histograms."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        metric: Metric,
        query: ReportQuery,
        runs: Sequence[Run],
    ) -> None:
        self._connection = connection
        self._metric = metric
        self._query = query
        self._runs = runs
        self._event = metric.events[0]

    def answer(self) -> MetricResult:
        query = self._query
        result = _report(self._connection, query, self._runs, self._event)
        histograms, damaged = self._histograms(tuple(result.keys))
        whole = Histogram()
        for histogram in histograms.values():
            whole.merge(histogram)
        rows = [
            (key, self._row(samples, weight, histograms.get(key) or Histogram()))
            for key, samples, weight in _by_key(result)
        ]
        rows.sort(key=lambda row: (-row[1].numerator, -row[1].denominator, *map(str, row[0])))
        if query.top > 0:
            del rows[query.top :]
        return MetricResult(
            metric=self._metric,
            session=result.session,
            keys=_columns(tuple(result.keys), [key for key, _row in rows]),
            rows=[row for _key, row in rows],
            total=self._row(result.total, result.weight_total, whole),
            covered_s=result.covered_s,
            quality=result.quality,
            damaged=max(result.damaged, damaged),
            in_histogram=(whole.n, result.total),
            where=query.where,
        )

    def _row(self, samples: int, weight: int, histogram: Histogram) -> MetricRow:
        value = low = high = None
        if self._metric.kind == "mean" and samples:
            value = weight / samples
            if histogram.n > 1:
                low, high = mean_interval(value, histogram.variance(), samples)
                low = max(low, 0.0)
        elif self._metric.kind == "quantile" and histogram.n:
            value, low, high = histogram.quantile(self._metric.quantile)
        return MetricRow(_finite(value), _finite(low), _finite(high), weight, samples, samples)

    def _histograms(self, sort: tuple[str, ...]) -> tuple[dict[_Row, Histogram], int]:
        """By what a report shows of the keys."""
        query = self._query
        stretches = stretches_of(self._runs, query.since_ns, query.until_ns, None)
        chosen = Chosen(self._connection, self._runs, stretches, query.where)
        shower = Shower(self._connection, sort, chosen.events)
        found: dict[tuple[int, ...], Histogram] = defaultdict(Histogram)
        for payload in chosen.read(("latency",)):
            names = [event.name for event in payload.run.info.events]
            if self._event not in names:
                continue
            event = names.index(self._event)
            events, cells_of = payload.sfiles[0], chosen.cells(payload)
            keys: dict[tuple[int, int], tuple[int, ...] | None] = {}
            columns = payload.columns
            for sfile, symbol, bucket, count in zip(
                *(columns[name] for name in ("sfile", "symbol", "bucket", "count")), strict=True
            ):
                if events[sfile] != event:
                    continue
                about = (sfile, symbol)
                if about not in keys:
                    cells = cells_of(sfile, symbol)
                    keys[about] = shower.key(cells) if chosen.passes(cells) else None
                key = keys[about]
                if key is not None:
                    found[key].add(bucket, count)
        order = list(found)
        shown = zip(*shower.columns(order).values(), strict=True)
        return dict(zip(shown, (found[key] for key in order), strict=True)), chosen.damaged


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None

"""Ratios, means and quantiles of derived events against counts of the single samples."""

import math
from collections import Counter, defaultdict

import pytest
from precise_samples import random_ops, store_ops, symbol

from opd.errors import UnknownNameError, UsageError
from opd.query.backend import OfflineBackend
from opd.query.tables import to_rows
from opd.stats.intervals import share_interval
from opd.store.precise.definitions import METRICS
from opd.store.queries import ReportQuery, open_reader

OPS = [random_ops(seed, 800) for seed in range(3)]
ALL = [op for ops in OPS for op in ops]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of the ops."""
    directory = tmp_path_factory.mktemp("metrics")
    store_ops(directory, OPS)
    return directory


def test_a_share_is_its_numerator_by_its_denominator(store):
    """By symbol, as counted from the ops, with Wilson's interval."""
    misses, accesses = Counter(), Counter()
    for op in ALL:
        if op.load or op.store:
            accesses[symbol(op)] += 1
            misses[symbol(op)] += op.missed
    with open_reader(store) as reader:
        result = reader.metric("dc_miss_ratio", ReportQuery(sort=("symbol",), top=0))
    found = dict(zip(result.keys["symbol"], result.rows, strict=True))
    assert found.keys() == accesses.keys()
    for name, row in found.items():
        assert (row.numerator, row.denominator) == (misses[name], accesses[name])
        assert row.value == misses[name] / accesses[name]
        assert (row.low, row.high) == share_interval(misses[name], accesses[name])
        assert row.low <= row.value <= row.high
    numerators = [row.numerator for row in result.rows]
    assert numerators == sorted(numerators, reverse=True)
    assert result.total.n == sum(accesses.values())
    assert result.total.numerator == sum(misses.values())


def test_a_filter_and_a_top_change_rows_not_the_rule(store):
    """The total is of what the filter lets through, whatever top says."""
    with open_reader(store) as reader:
        query = ReportQuery(sort=("symbol",), top=2, where="comm=worker1")
        result = reader.metric("dc_miss_ratio", query)
    chosen = [op for op in ALL if op.comm == "worker1" and (op.load or op.store)]
    assert len(result.rows) == 2
    assert result.total.denominator == len(chosen)
    assert result.total.numerator == sum(op.missed for op in chosen)


def test_quantiles_are_exact_within_a_bucket(store):
    """Each is in the bucket of the exact one, a sixteenth wide, and the interval has it."""
    latencies = defaultdict(list)
    for op in ALL:
        if op.load and op.missed:
            latencies[op.comm].append(op.latency)
    with open_reader(store) as reader:
        for percent in (50, 90, 95, 99):
            metric = f"load_latency_p{percent}"
            result = reader.metric(metric, ReportQuery(sort=("comm",), top=0))
            found = dict(zip(result.keys["comm"], result.rows, strict=True))
            assert found.keys() == latencies.keys()
            for comm, row in found.items():
                values = sorted(latencies[comm])
                exact = values[math.ceil(percent / 100 * len(values)) - 1]
                assert abs(row.value - exact) <= max(exact / 16, 0.5)
                assert row.low <= exact <= row.high
                assert row.n == len(values)
            assert result.in_histogram == (result.total.n, result.total.n)


def test_a_mean_is_exact(store):
    """The sum of the latencies by their number; the interval is that of their spread."""
    values = [op.latency for op in ALL if op.load and op.missed]
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    half = 1.96 * spread / math.sqrt(len(values))
    with open_reader(store) as reader:
        total = reader.metric("load_latency_mean", ReportQuery(sort=("comm",))).total
    assert total.value == mean
    assert total.n == len(values)
    assert total.low == pytest.approx(mean - half, rel=0.02)
    assert total.high == pytest.approx(mean + half, rel=0.02)


def test_a_metric_says_what_it_lacks(store):
    """A wrong name lists all; an event that is not there is named; other questions are refused."""
    with open_reader(store) as reader:
        with pytest.raises(UnknownNameError, match="no metric 'dc_mis_ratio'; did you mean dc_mi"):
            reader.metric("dc_mis_ratio", ReportQuery())
        with pytest.raises(UnknownNameError, match="ic_miss_ratio needs IBS_FETCH_ICACHE_MISSES"):
            reader.metric("ic_miss_ratio", ReportQuery())
        with pytest.raises(UsageError, match="a metric has its own events"):
            reader.metric("dc_miss_ratio", ReportQuery(event="ibs_op"))
        empty = reader.metric("dc_miss_ratio", ReportQuery(where="comm=nobody"))
    assert (empty.total.value, empty.total.n, empty.rows) == (None, 0, [])


def test_a_metric_travels(store):
    """As report's answer does, with what was divided by what."""
    with OfflineBackend(store) as backend:
        answer = backend.call("report", {"metric": "dc_miss_ratio", "sort": "comm"})
        nothing = backend.call(
            "report", {"metric": "load_latency_p99", "where": "comm=nobody", "sort": "comm"}
        )
    rows = to_rows(answer["rows"])
    assert [row["numerator"] / row["denominator"] for row in rows] == [row["value"] for row in rows]
    assert answer["numerator"] == ["IBS_OP_DATA_CACHE_MISS"]
    assert answer["denominator"] == ["IBS_OP_ALL_LOAD_STORE"]
    assert nothing["total"] == {
        **dict.fromkeys(("value", "low", "high")),
        **dict.fromkeys(("numerator", "denominator", "n"), 0),
    }


def test_every_metric_is_of_events_that_there_are():
    """Their names are those of the table of derived events, of one PMU each."""
    from opd_native.ibs import derived_event

    for metric in METRICS.values():
        found = [derived_event(name) for name in (*metric.events, *metric.over)]
        assert None not in found
        assert len({event.flavour for event in found}) == 1
        if metric.kind in ("mean", "quantile"):
            assert found[0].sums
            assert metric.unit == found[0].unit

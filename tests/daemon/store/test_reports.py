"""Reports in buckets of time, cores, and what percent is of."""

import time
from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_names import PlainNames
from synthetic import IMAGES, START_NS, WINDOW_NS, expected, make_run, make_window, random_hits

from opd.errors import UsageError
from opd.sampling.window import EventInfo
from opd.store.queries import ReportQuery, open_reader
from opd.store.writer import StoreWriter

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS
TWO = [EventInfo("cpu-clock", "cpu-clock", "ns", hz=99), EventInfo("faults", "faults", "count")]


def write(directory, windows, **run):
    """A store of these windows."""
    writer = StoreWriter(directory, PlainNames)
    writer.open_run(make_run(**run))
    writer.add_images([(info, None) for info in IMAGES])
    for window in windows:
        writer.append(window)
    writer.close()


@pytest.fixture(scope="module", params=["UTC", "Asia/Kolkata"])
def history(tmp_path_factory, request):
    """Three hours in windows of 30 s with gaps, in a zone; the reader, and times and hits."""
    directory = tmp_path_factory.mktemp("history")
    windows, facts = [], []
    start = START_NS + 17 * MINUTE_NS
    for sequence in range(300):
        start += (30 if sequence % 40 else 700) * SECOND_NS
        hits = random_hits(sequence, rows=8)
        windows.append(make_window(sequence, hits, start, start + 30 * SECOND_NS))
        facts.append((start, hits))
    write(directory, windows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        with open_reader(directory) as reader:
            yield reader, facts
    time.tzset()


@settings(max_examples=60, deadline=None)
@given(
    per=st.sampled_from([5, 10, 60, 300, 420, 3600, 7200]),
    since=st.none() | st.integers(0, 200),
    length=st.none() | st.integers(1, 200),
    sort=st.sampled_from([("comm", "symbol"), ("pid",), ("mode",)]),
    where=st.none() | st.just("comm=worker1 or mode=kernel"),
)
def test_a_series_is_the_sum_of_its_windows(history, *, per, since, length, sort, where):
    """From roll-ups or windows: each bucket has what the windows that begin in it have."""
    reader, facts = history
    since_ns = None if since is None else START_NS + since * MINUTE_NS
    until_ns = None if length is None else START_NS + ((since or 0) + length) * MINUTE_NS
    result = reader.report(
        ReportQuery(sort=sort, top=0, since_ns=since_ns, until_ns=until_ns, per_s=per, where=where)
    )
    inside = [
        (start, hits)
        for start, hits in facts
        if (since_ns is None or start + 30 * SECOND_NS > since_ns)
        and (until_ns is None or start < until_ns)
    ]
    starts = result.buckets.time_ns
    assert starts == sorted(set(starts))
    mine = {}
    for start, hits in inside:
        at = starts[max(0, bisect_right(starts, start) - 1)]
        # In the bucket that it begins in; what began before the range in the first.
        assert at <= start < at + per * SECOND_NS or (since_ns is not None and start < since_ns)
        kept = [hit for hit in hits if where is None or hit.comm == "worker1" or hit.mode]
        for key, sums in expected(kept, sort).items():
            entry = mine.setdefault((at, *key), [0, 0])
            entry[0] += sums[0]
            entry[1] += sums[1]
    keys = zip(result.time_ns, *result.keys.values(), strict=True)
    sums = map(list, zip(result.samples, result.weight, strict=True))
    assert dict(zip(keys, sums, strict=True)) == mine
    order = list(zip(result.time_ns, (-weight for weight in result.weight), strict=True))
    assert order == sorted(order)
    assert sum(result.buckets.covered_s) == pytest.approx(30 * len(inside))
    assert sum(result.buckets.weight) == result.weight_total
    plain = reader.report(ReportQuery(sort=sort, since_ns=since_ns, until_ns=until_ns, where=where))
    assert (plain.total, plain.covered_s) == (result.total, pytest.approx(result.covered_s))


def test_the_top_is_chosen_over_the_whole_range(history):
    """The same few keys in every bucket; percent is of the whole bucket."""
    reader, _facts = history
    query = ReportQuery(sort=("symbol",), top=3)
    overall = reader.report(query)
    result = reader.report(ReportQuery(sort=("symbol",), top=3, per_s=600))
    assert set(result.keys["symbol"]) == set(overall.keys["symbol"])
    whole = dict(zip(result.buckets.time_ns, result.buckets.weight, strict=True))
    for at, weight, percent in zip(result.time_ns, result.weight, result.percent, strict=True):
        assert percent == pytest.approx(100 * weight / whole[at])
    assert len(set(result.time_ns)) > 10


def test_hours_come_from_hours_where_the_zone_allows(history):
    """They are read once; a zone half an hour off has its hours out of minutes."""
    reader, facts = history
    read = []
    for per_s in (None, 3600):
        statements = []
        reader._connection.set_trace_callback(statements.append)
        result = reader.report(ReportQuery(sort=("comm",), per_s=per_s, top=0))
        reader._connection.set_trace_callback(None)
        tables = ("FROM hours", "FROM minutes")
        read.append([any(table in text for table in tables) for text in statements].count(True))
    assert any("FROM hours" in statement for statement in statements)
    assert (read[1] == read[0]) == (time.timezone == 0)
    assert result.total == sum(hit.hits for _start, hits in facts for hit in hits)
    assert all((at - time.timezone * SECOND_NS) % HOUR_NS == 0 for at in result.buckets.time_ns)


def test_cores_are_weight_by_the_time_covered(tmp_path):
    """A gap between windows is not time that was idle; events that count have no cores."""
    hits = [
        random_hits(1, rows=1)[0]._replace(weight=5 * SECOND_NS),
        random_hits(1, rows=1)[0]._replace(event=1, weight=7),
    ]
    windows = [
        make_window(0, hits, START_NS, START_NS + WINDOW_NS),
        make_window(1, hits, START_NS + 100 * WINDOW_NS, START_NS + 101 * WINDOW_NS),
    ]
    write(tmp_path, windows, events=TWO)
    with open_reader(tmp_path) as reader:
        result = reader.report(ReportQuery(sort=("comm",)))
        assert (result.covered_s, result.cores, result.cores_total) == (20.0, [0.5], 0.5)
        counted = reader.report(ReportQuery(sort=("comm",), event="faults"))
        assert (counted.cores, counted.cores_total) == ([None], None)
        both = reader.report(ReportQuery(sort=("event",)))
        cores = dict(zip(both.keys["event"], both.cores, strict=True))
        assert cores == {"cpu-clock": 0.5, "faults": None}
        series = reader.report(ReportQuery(sort=("comm",), per_s=60))
        assert series.cores == [0.5, 0.5]
        assert series.buckets.covered_s == [10.0, 10.0]


def test_a_window_of_no_length_has_no_cores(tmp_path):
    """Nothing is divided by nothing."""
    write(tmp_path, [make_window(0, random_hits(1), START_NS, START_NS)])
    with open_reader(tmp_path) as reader:
        result = reader.report(ReportQuery(sort=("comm",)))
        assert result.total > 0
        assert (result.covered_s, result.cores_total) == (0.0, None)
        assert set(result.cores) == {None}


def test_an_empty_range_has_no_buckets(tmp_path):
    """A series of nothing is an answer."""
    write(tmp_path, [])
    with open_reader(tmp_path) as reader:
        result = reader.report(ReportQuery(per_s=60))
        assert (result.time_ns, result.buckets.time_ns, result.total) == ([], [], 0)
        assert result.cores_total is None


def test_a_series_too_long_is_refused(tmp_path):
    """Seconds of a year: the error says how many."""
    windows = [
        make_window(0, random_hits(0)),
        make_window(1, random_hits(0), START_NS + 300 * 24 * HOUR_NS),
    ]
    write(tmp_path, windows)
    with open_reader(tmp_path) as reader:
        with pytest.raises(UsageError, match="buckets"):
            reader.report(ReportQuery(per_s=1))
        assert len(reader.report(ReportQuery(sort=("mode",), per_s=86400)).buckets.time_ns) == 2

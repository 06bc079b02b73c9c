"""What features feed in, from the call to a report of the store."""

from __future__ import annotations

from array import array

import pytest
from inline_plugin import EVENT, empty_window
from plain_names import PlainNames
from synthetic import IMAGES, Hit, make_run, make_window

from opd.features.declared import U64_MOST, Feature
from opd.features.records import SYMBOLS_MOST, FeatureImages, Records, Rows, events_of
from opd.features.samplefile import SampleWindow
from opd.sampling.window import CgroupInfo, EventInfo, RunInfo
from opd.store.queries import ReportQuery, open_reader
from opd.store.writer import StoreWriter
from opd.symbols.resolver import Resolver

FEATURE = Feature(name="feat", summary="of a test", events=(EVENT,))
FIRST = EventInfo("cpu-clock", "cpu-clock", "ns", hz=99)
EVENTS = [FIRST, *events_of(FEATURE, ["RECORD"])]
IDS = {event.name: number for number, event in enumerate(EVENTS) if event.feature}


def add(records, weight=1, **more):
    """Add a record, most of it by default."""
    fields = {"hits": 1, "symbol": "", "comm": "", "pid": 0, "columns": {}, **more}
    return records.add("RECORD", weight=weight, **fields)


def test_columns_are_events_of_their_own():
    """Each follows its event, with the unit of its own."""
    assert [(event.name, event.unit, event.column) for event in EVENTS[1:]] == [
        ("RECORD", "bytes", False),
        ("RECORD.one", "count", True),
        ("RECORD.two", "bytes", True),
    ]


def test_records_come_out_in_reports(tmp_path):
    """Samples, weight, process, symbol and extra columns are the sums of what was fed in."""
    records, images, window = Records(FEATURE), FeatureImages(), empty_window()
    for size in (10, 20, 30):
        add(records, size, symbol="sda", comm="cp", pid=7, columns={"one": 1, "two": size * 2})
    add(records, 5, symbol="sdb", comm="dd", pid=8, hits=4)
    rows = Rows(window)
    records.take(IDS, images, rows)
    rows.append(len(EVENTS))
    writer = StoreWriter(tmp_path, Resolver)
    writer.open_run(
        RunInfo(
            *("a" * 32, "b", "live", "s", "", "6.1", "", "h", 1, window.start_ns),
            events=EVENTS,
        )
    )
    writer.add_images((info, None) for info in images.take_new())
    writer.append(window)
    writer.close()
    with open_reader(tmp_path) as reader:
        keys = ("comm", "pid", "image", "symbol", "mode")
        result = reader.report(ReportQuery(event="RECORD", sort=keys))
        assert (result.total, result.weight_total) == (7, 65)
        assert result.keys["symbol"] == ["sda", "sdb"]
        assert result.keys["image"] == ["[feat]", "[feat]"]
        assert result.keys["comm"] == ["cp", "dd"]
        assert result.keys["pid"] == [7, 8]
        assert result.keys["mode"] == ["user", "user"]
        assert result.samples == [3, 4]
        assert {column.name: column.values for column in result.extra} == {
            "one": [3, 0],
            "two": [120, 0],
        }
        filtered = reader.report(ReportQuery(event="RECORD", sort=("comm",), where="symbol=sda"))
        assert [column.values for column in filtered.extra] == [[3], [120]]
        assert reader.report(ReportQuery(event="cpu-clock")).extra == []
        assert reader.quality(event="RECORD")["frames"] == {"named": 7, "ranges": 0, "unknown": 0}


def test_a_window_of_samples_keeps_them_all(tmp_path):
    """Rows, stacks and cgroups of the sampler stand as they were; a column is beside its rows."""
    hits = [
        Hit(0, "cat", 7, 0, ((2, 0x10), (3, 0x20)), 5, 500, cgroup=1),
        Hit(0, "cat", 7, 1, ((1, 0x30),), 2, 200),
        Hit(1, "dd", 8, 0, ((2, 0x10),), 4, 40, cgroup=1),
        Hit(1, "dd", 8, 0, ((2, 0x99),), 1, 10, cgroup=1),
    ]
    window = make_window(0, hits)
    window.event_quality = [{"samples": 7}, {"samples": 5}]
    stacks, weights = array("I", window.row_stack), array("Q", window.row_weight)
    dd = [row for row, sfile in enumerate(array("I", window.row_sfile)) if sfile == 2]
    view = SampleWindow(
        sequence=0,
        start_ns=0,
        end_ns=1,
        stack=array("I", [stacks[row] for row in dd]),
        hits=array("Q", [4, 1]),
        weight=array("Q", [weights[row] for row in dd]),
        columns=("one",),
    )
    records, images, rows = Records(FEATURE), FeatureImages(), Rows(window)
    add(records, 3, symbol="sda", comm="dd", pid=8)
    records.take(IDS, images, rows)
    rows.add_column(IDS["RECORD.one"], 2, view, array("Q", [100, 7]))
    rows.append(len(EVENTS))
    writer = StoreWriter(tmp_path, PlainNames)
    writer.open_run(make_run(events=EVENTS))
    writer.add_images((info, None) for info in [*IMAGES, *images.take_new()])
    writer.add_cgroups([CgroupInfo(1, "/system.slice/dd.service")])
    writer.append(window)
    writer.close()
    with open_reader(tmp_path) as reader:
        first = reader.report(ReportQuery(event="cpu-clock", sort=("comm", "mode", "unit")))
        assert list(zip(*first.keys.values(), first.samples, first.weight, strict=True)) == [
            ("cat", "user", "dd.service", 5, 500),
            ("cat", "kernel", "[unknown]", 2, 200),
        ]
        own = reader.report(ReportQuery(event="RECORD", sort=("comm", "image")))
        assert list(zip(*own.keys.values(), own.samples, own.weight, strict=True)) == [
            ("dd", "/usr/lib/libc.so.6", 5, 50),
            ("dd", "[feat]", 1, 3),
        ]
        assert {column.name: column.values for column in own.extra} == {
            "one": [107, 0],
            "two": [0, 0],
        }
        assert sum(reader.quality(event="RECORD")["frames"].values()) == 6


def test_an_image_is_told_once():
    """A symbol keeps its number for the whole run."""
    images = FeatureImages()
    first = images.uid("feat", "a")
    assert images.uid("feat", "b") != first
    assert [info.symbol for info in images.take_new()] == ["a", "b"]
    assert images.uid("feat", "a") == first
    assert images.take_new() == []


def test_too_many_different_records_are_refused_and_counted():
    """Both the keys of a window and the symbols of a run are bounded."""
    records = Records(FEATURE, keys_most=3)
    assert [add(records, symbol=str(n), hits=2) for n in range(5)] == [True] * 3 + [False] * 2
    assert (records.added, records.refused) == (6, 4)
    assert add(records, symbol="0")
    rows = Rows(empty_window())
    records.take(IDS, FeatureImages(), rows)
    assert add(records, symbol="4")
    many = Records(FEATURE)
    for n in range(SYMBOLS_MOST):
        add(many, symbol=str(n))
    assert not add(many, symbol="one more")
    assert add(many, symbol="5", pid=9)


def test_sums_end_at_the_largest_number():
    """They never wrap."""
    records = Records(FEATURE)
    add(records, U64_MOST)
    add(records, 10)
    window = empty_window()
    rows = Rows(window)
    records.take(IDS, FeatureImages(), rows)
    rows.append(len(EVENTS))
    assert array("Q", window.row_weight)[0] == U64_MOST


def test_an_event_that_the_run_does_not_have_is_refused():
    """Its feature chose others in opd_ext_init."""
    records = Records(FEATURE)
    add(records, hits=3)
    window = empty_window()
    rows = Rows(window)
    records.take({}, FeatureImages(), rows)
    rows.append(1)
    assert (window.rows, records.refused) == (0, 3)


@pytest.mark.parametrize(
    ("event", "more", "part"),
    [
        ("OTHER", {}, "no event 'OTHER'; there are: RECORD"),
        ("RECORD", {"columns": {"three": 1}}, "no extra column 'three'; there are: one two"),
        ("RECORD", {"weight": -1}, "0 or more"),
        ("RECORD", {"weight": 1.5}, "0 or more"),
        ("RECORD", {"weight": U64_MOST + 1}, "0 or more"),
        ("RECORD", {"hits": 0}, "hits are 1 or more"),
        ("RECORD", {"columns": {"one": "x"}}, "0 or more"),
        ("RECORD", {"pid": -1}, "pid -1 is none"),
    ],
)
def test_nonsense_is_refused_where_it_is_fed_in(event, more, part):
    """The plugin that does so gets the ValueError."""
    fields = {"weight": 1, "hits": 1, "symbol": "", "comm": "", "pid": 0, "columns": {}, **more}
    with pytest.raises(ValueError, match=part):
        Records(FEATURE).add(event, **fields)


def test_columns_set_for_rows_of_the_window_are_rows_beside_them():
    """The same sample file and stacks, the column's event, its values as weights."""
    window = empty_window()
    records, images = Records(FEATURE), FeatureImages()
    add(records, 10, symbol="a", comm="x", pid=3)
    add(records, 20, symbol="b", comm="x", pid=3)
    rows = Rows(window)
    records.take({"RECORD": 1, "RECORD.one": 2, "RECORD.two": 3}, images, rows)
    rows.append(len(EVENTS))
    had = window.rows
    view = SampleWindow(
        sequence=0,
        start_ns=0,
        end_ns=1,
        stack=array("I", [0]),
        hits=array("Q", [1]),
        weight=array("Q", [10]),
        columns=("one",),
    )
    view.set_column("one", [99])
    rows = Rows(window)
    rows.add_column(2, 0, view, view.take_columns()["one"])
    rows.append(len(EVENTS))
    assert window.rows == had + 1
    assert array("Q", window.row_weight)[-1] == 99
    new = array("I", window.row_sfile)[-1]
    assert new == window.sfiles - 1
    assert array("H", window.sfile_event)[new] == 2
    assert array("i", window.sfile_tgid)[new] == 3
    assert window.quality["samples"] == 2


@pytest.mark.parametrize(
    ("values", "part"),
    [([1], "expected 2 values, got 1"), ([1, 2, 3], "more than 2"), ([1, -1], "no u64")],
)
def test_a_column_of_another_length_or_kind_is_refused(values, part):
    """In the hook that sets it."""
    two = array("I", [0, 1])
    view = SampleWindow(
        sequence=0,
        start_ns=0,
        end_ns=1,
        stack=two,
        hits=array("Q", [1, 1]),
        weight=array("Q", [1, 1]),
        columns=("one",),
    )
    with pytest.raises(ValueError, match=part):
        view.set_column("one", values)
    with pytest.raises(ValueError, match="no extra column 'two'"):
        view.set_column("two", [1, 2])
    assert view.take_columns() == {}

"""One feature over its life: hooks in order, with the right arguments, in quarantine none."""

from __future__ import annotations

from array import array

import pytest
from inline_plugin import EVENT, Inline, Log, activation_of, empty_window

from opd.features.declared import Event, Feature, Stats, UnavailableError
from opd.features.files import FILES_MOST
from opd.features.records import FeatureImages
from opd.features.running import QUARANTINED, RUNNING, UNAVAILABLE, WAITING, RunningFeature
from opd.features.thread import Budget

BUDGET = Budget(30.0, 1 << 30)
EVENTS = 3
IDS = {"RECORD": 0, "RECORD.one": 1, "RECORD.two": 2}


@pytest.fixture
def log():
    """Lines that were written."""
    return Log()


@pytest.fixture
def make(log):
    """Give a function that makes a feature of a target; all end with the test."""
    made = []

    def make(target):
        running = RunningFeature(
            activation_of(target), budget=BUDGET, log=log, images=FeatureImages()
        )
        running.ids = IDS
        made.append(running)
        return running

    yield make
    for running in made:
        running.end()


def feeding(**records):
    """A plugin that feeds in these weights by symbol with each window."""
    target = Inline()

    def init(_feature, _options, context):
        def each(_start, _end):
            for symbol, weight in records.items():
                context.record("RECORD", weight, symbol=symbol, pid=weight)

        context.each_window(each)

    target.does["init"] = init
    return target


def names(target):
    """Hooks in the order of their calls."""
    return [call[0] for call in target.calls]


def test_hooks_come_in_order_with_their_arguments(make):
    """init; create and sync of a window; dup and close at a save; close and deinit."""
    target = feeding(a=1)
    running = make(target)
    assert running.state == WAITING
    running.begin()
    assert running.state == RUNNING
    running.window(empty_window(0), EVENTS, {})
    running.window(empty_window(1), EVENTS, {})
    running.turn_over(saved=True)
    running.window(empty_window(2), EVENTS, {})
    running.turn_over(saved=False)
    running.window(empty_window(3), EVENTS, {})
    running.end()
    assert names(target) == [
        *("init", "create", "sync", "sync", "dup", "close", "sync"),
        *("close", "create", "sync", "close", "deinit"),
    ]
    _hook, feature, options, context = target.calls[0]
    assert feature is target.feature
    assert options == running.activation.options
    assert context.feature is target.feature
    created = target.calls[1][1]
    assert (created.event, created.tgid, created.mode, created.session) == ("RECORD", 1, "user", 0)
    to, source = target.calls[4][1:]
    assert (to.session, source) == (1, created)
    assert target.calls[5][1] == created


def test_sync_sees_whole_columns_and_adds_to_them(make):
    """A column that it sets is in the window that is stored."""
    target = feeding(a=10)
    seen = []

    def sync(_sfile, window):
        seen.append((list(window.hits), list(window.weight), len(window.stack), window.sequence))
        window.set_column("two", [7] * len(window))

    target.does["sync"] = sync
    running = make(target)
    running.begin()
    window = empty_window(5)
    running.window(window, EVENTS, {})
    assert seen == [([1], [10], 1, 5)]
    events = array("H", window.sfile_event)
    weights = [
        (events[sfile], weight)
        for sfile, weight in zip(
            array("I", window.row_sfile), array("Q", window.row_weight), strict=True
        )
    ]
    assert sorted(weights) == [(0, 10), (1, 0), (2, 0), (2, 7)]


def test_a_failure_is_logged_counted_and_followed_by_rest(make, log):
    """No hook is called in quarantine, what was fed in is stored all the same."""
    target = feeding(a=1)
    target.does["sync"] = lambda _sfile, _window: 1 // 0
    running = make(target)
    running.begin()
    window = empty_window(0)
    running.window(window, EVENTS, {})
    assert window.rows == 3
    assert running.state == QUARANTINED
    [line] = log.of("feature.failed")
    assert (line["feature"], line["plugin"], line["hook"]) == (
        "inline",
        "inline",
        "opd_sfile_sync",
    )
    assert "ZeroDivisionError" in line["error"]
    before = list(target.calls)
    running.window(empty_window(1), EVENTS, {})
    running.turn_over(saved=False)
    assert running.stats() == Stats()
    assert target.calls == before
    assert running.skipped_windows == 1
    assert running.guard.costs["opd_sfile_sync"].failures == 1


def test_after_quarantine_it_goes_on_where_it_was(make, monkeypatch):
    """What was owed meanwhile is called first."""
    target = feeding(a=1)
    target.does["sync"] = lambda _sfile, _window: 1 // 0
    running = make(target)
    running.begin()
    running.window(empty_window(0), EVENTS, {})
    running.turn_over(saved=False)
    del target.does["sync"]
    monkeypatch.setattr(running.guard.quarantine, "_until", 0.0)
    assert running.state == RUNNING
    running.window(empty_window(1), EVENTS, {})
    assert names(target) == ["init", "create", "sync", "close", "create", "sync"]


def test_a_create_that_fails_comes_again(make, monkeypatch):
    """The file counts as not seen."""
    target = feeding(a=1)
    target.does["create"] = lambda _sfile: 1 // 0
    running = make(target)
    running.begin()
    running.window(empty_window(0), EVENTS, {})
    monkeypatch.setattr(running.guard.quarantine, "_until", 0.0)
    del target.does["create"]
    running.window(empty_window(1), EVENTS, {})
    assert names(target) == ["init", "create", "create", "sync"]


def test_a_feature_that_keeps_a_little_of_each_call_is_not_called_for_ever(make, monkeypatch):
    """Once opd has grown by several budgets while its hooks ran; but deinit always is."""
    size = [0]
    monkeypatch.setattr("opd.features.guard.resident_bytes", lambda: size[0])
    target = Inline()

    def grow(_start, _end):
        size[0] += BUDGET.memory_bytes // 2

    target.does["init"] = lambda _feature, _options, context: context.each_window(grow)
    running = make(target)
    running.begin()
    for sequence in range(20):
        running.window(empty_window(sequence), EVENTS, {})
    cost = running.guard.costs["each_window"]
    assert (cost.calls, cost.failures, running.skipped_windows) == (9, 1, 10)
    assert "opd grew by 4608 MiB in its calls together" in running.guard.quarantine.last_error
    running.end()
    assert names(target) == ["init", "deinit"]


def test_unavailable_is_no_failure(make, log):
    """By the check or by init: the reason is told, and no window asks again."""
    checked = Inline(Feature(name="inline", summary="x", unavailable=lambda: "no such  PMU\n"))
    raised = Inline()
    raised.does["init"] = _raise_unavailable
    for target, reason in ((checked, "no such PMU"), (raised, "not here")):
        running = make(target)
        running.begin()
        assert (running.state, running.reason) == (UNAVAILABLE, reason)
        assert running.events() == []
        running.window(empty_window(0), EVENTS, {})
        assert running.guard.quarantine.failures == 0
    assert [line["reason"] for line in log.of("feature.unavailable")] == ["no such PMU", "not here"]
    running.end()
    assert names(raised) == ["init", "deinit"]
    assert names(checked) == []


def _raise_unavailable(*_arguments):
    raise UnavailableError("not here")


def test_an_init_that_failed_is_tried_again(make, monkeypatch):
    """At a window, once its quarantine is over."""
    target = feeding(a=1)
    good = target.does["init"]
    target.does["init"] = lambda *_: 1 // 0
    running = make(target)
    running.begin()
    assert running.state == QUARANTINED
    assert [event.name for event in running.events()] == ["RECORD", "RECORD.one", "RECORD.two"]
    running.window(empty_window(0), EVENTS, {})
    monkeypatch.setattr(running.guard.quarantine, "_until", 0.0)
    target.does["init"] = good
    window = empty_window(1)
    running.window(window, EVENTS, {})
    assert running.state == RUNNING
    assert window.rows == 3
    assert names(target) == ["init", "init", "create", "sync"]


def test_deinit_is_called_once_whatever_happened(make):
    """Also after init failed, and in quarantine; and its own failure ends nothing."""
    target = Inline()
    target.does["init"] = lambda *_: 1 // 0
    target.does["deinit"] = lambda _feature: 1 // 0
    running = make(target)
    running.begin()
    running.end()
    running.end()
    assert names(target) == ["init", "deinit"]


def test_only_chosen_events_are_in_the_run(make):
    """use_events says which; it and what else registers are closed after init."""
    more = Event(name="MORE", number=8, summary="another")
    target = Inline(Feature(name="inline", summary="x", events=(EVENT, more)))
    kept = []

    def init(_feature, _options, context):
        kept.append(context)
        with pytest.raises(ValueError, match="no event 'LESS'; there are: RECORD MORE"):
            context.use_events(["LESS"])
        context.use_events(["MORE", "MORE"])

    target.does["init"] = init
    running = make(target)
    running.begin()
    assert running.state == RUNNING
    assert [event.name for event in running.events()] == ["MORE"]
    for late in (lambda c: c.use_events([]), lambda c: c.each_window(print)):
        with pytest.raises(ValueError, match="only in opd_ext_init"):
            late(kept[0])


def test_too_many_sample_files_are_evicted_and_closed(make):
    """Those not seen for the longest go first; beyond the bound of a window they are counted."""
    target = feeding()
    state = {"first": 0}

    def init(_feature, _options, context):
        def each(_start, _end):
            for pid in range(state["first"], state["first"] + state["count"]):
                context.record("RECORD", pid=pid)

        context.each_window(each)

    target.does["init"] = init
    running = make(target)
    running.begin()
    state["count"] = FILES_MOST
    running.window(empty_window(0), EVENTS, {})
    state["first"], state["count"] = FILES_MOST, 2
    running.window(empty_window(1), EVENTS, {})
    closed = [call[1].tgid for call in target.calls if call[0] == "close"]
    assert closed == [0, 1]
    assert len(running.files) == FILES_MOST


def test_stats_come_back_and_are_remembered(make):
    """In quarantine the last word is given."""
    target = Inline()
    target.does["print_stats"] = lambda _feature: Stats({"n": 3, "word": "x", "share": 0.5})
    running = make(target)
    assert running.stats() == Stats()
    running.begin()
    assert running.stats().values == {"n": 3, "word": "x", "share": 0.5}
    target.does["print_stats"] = lambda _feature: {"n": 4}
    assert running.stats().values["n"] == 3
    assert running.state == QUARANTINED
    assert "expected Stats, got a dict" in running.guard.quarantine.last_error
    assert running.stats().values["n"] == 3


@pytest.mark.parametrize(
    "stats",
    [
        None,
        42,
        Stats({"x" * 65: 1}),
        Stats({"": 1}),
        Stats({"n": None}),
        Stats({"n": 1 << 70}),
        Stats({"n": float("nan")}),
        Stats({"n": "x" * 2000}),
        Stats({str(n): n for n in range(300)}),
    ],
)
def test_stats_that_cannot_travel_are_nonsense(make, stats):
    """The wire and the log take numbers of 64 bits and short texts."""
    target = Inline()
    target.does["print_stats"] = lambda _feature: stats
    running = make(target)
    running.begin()
    assert running.stats() == Stats()
    assert running.state == QUARANTINED

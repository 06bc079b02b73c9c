import os
import random

import pytest

from opd.errors import StoreError
from opd.probes.jobs import Comparison, Control, compare_now, measure_all
from opd.probes.local import LocalKeeper
from opd.probes.running import plan
from opd.query.probes import probe_answer
from opd.store.probes import RUNS_MOST, UNENDED
from opd.store.queries import open_reader


def control(cancelled=""):
    """Give a control that tells nobody."""
    return Control(lambda: cancelled, lambda *_: None)


@pytest.fixture
def keeper(tmp_path):
    """Give a store without a daemon."""
    kept = LocalKeeper(str(tmp_path))
    yield kept
    kept.close()


def kept_runs(tmp_path):
    """Read all that is kept."""
    with open_reader(tmp_path) as reader:
        return reader.probe_runs()


def test_a_run_is_kept_with_its_samples_and_machine(tmp_path, keeper):
    """All that was measured can be read again, in order."""
    measure_all(plan("calibrate", "repeats=3,samples=4"), "asked", keeper, control())
    (run,) = kept_runs(tmp_path)
    assert (run.probe, run.void, run.origin) == ("calibrate", None, "asked")
    assert run.parameters["repeats"] == 3
    assert run.machine["kernel"] == os.uname().release
    assert run.ended_ns > run.started_ns
    with open_reader(tmp_path) as reader:
        (column,) = reader.probe_samples(run.id)
        marks = [mark.text for mark in reader.marks()]
    assert list(column.repeats) == [r for r in range(3) for _ in range(4)]
    assert run.metrics[0]["n"] == 12
    assert min(column.values) <= run.metrics[0]["median"] <= max(column.values)
    assert marks == ["probe calibrate 1 begins", "probe calibrate 1 ends"]


def test_a_sweep_keeps_a_run_each_and_goes_on_after_a_void_one(tmp_path, keeper):
    """One that takes too long does not end the others."""
    planned = plan("calibrate", "rest=60+0,repeats=1,time_limit=5")
    numbers = measure_all(planned, "asked", keeper, control())
    first, second = kept_runs(tmp_path)
    assert numbers == [first.id, second.id]
    assert "time limit" in first.void
    assert second.void is None


def test_a_run_that_nobody_ended_is_void(tmp_path, keeper):
    """What opd did not survive says so."""
    keeper.begin({"probe": "calibrate", "parameters": {}, "origin": "asked", "at_ns": 5})
    (run,) = kept_runs(tmp_path)
    assert (run.void, run.ended_ns) == (UNENDED, None)


def test_more_work_is_regressed_and_the_same_is_ok(tmp_path, keeper):
    """Three times the work is found, also on a busy machine; both are kept with their verdict.

    How much worse is not asked here: beside other work the interval may leave out the true 200 %.
    """
    how = Comparison(processes=2, rounds=8)
    a, b = (plan("calibrate", f"work={work},repeats=1,samples=9") for work in (1000, 3000))
    _numbers, worse = compare_now(a, b, how, keeper, control())
    _numbers, same = compare_now(a, a, how, keeper, control())
    assert worse.result == "REGRESSED"
    assert worse.low > 0
    assert same.result != "REGRESSED"  # a busy machine may leave it open
    told = [run.verdict for run in kept_runs(tmp_path)]
    assert [verdict and verdict["result"] for verdict in told] == [
        *(None, "REGRESSED"),
        *(None, same.result),
    ]


def test_a_cancelled_comparison_has_no_verdict(tmp_path, keeper):
    """It is void."""
    a = plan("calibrate", "rest=5")
    _numbers, verdict = compare_now(a, a, Comparison(), keeper, control("cancelled"))
    assert verdict is None
    assert [run.void for run in kept_runs(tmp_path)] == ["cancelled", "cancelled"]


def test_runs_are_bounded(tmp_path, keeper):
    """The oldest go beyond ten thousand."""
    keeper._connection.executemany(
        "INSERT INTO probe_runs (id, probe, parameters, origin, started_ns)"
        " VALUES (?, 'x', '{}', '', 0)",
        [(1,), (RUNS_MOST + 4,)],
    )
    measure_all(plan("calibrate", "repeats=1"), "asked", keeper, control())
    assert [run.id for run in kept_runs(tmp_path)] == [RUNS_MOST + 4, RUNS_MOST + 5]


def test_where_a_scheduled_probe_changed_its_level_is_told(tmp_path, keeper):
    """Of its whole history, one series for each set of options; void runs are no points."""
    draw = random.Random(7)
    for at in range(40):
        slower = 1.10 if at >= 25 else 1.0
        for work in (1, 2):
            number = keeper.begin(
                {"probe": "p", "parameters": {"work": work}, "origin": "schedule", "at_ns": at + 1}
            )
            level = 100.0 * work * (slower if work == 1 else 1.0) * draw.gauss(1, 0.01)
            metric = {"name": "ns", "unit": "ns", "better": "lower", "median": level}
            void = "killed" if at == 10 else None
            keeper.end(
                {
                    "id": number,
                    "probe": "p",
                    "machine": {},
                    "verdict": None,
                    "void": void,
                    "started_ns": at + 1,
                    "ended_ns": at + 2,
                    "notes": [],
                    "details": {},
                    "metrics": [metric if void is None else {**metric, "median": 1e9}],
                    "samples": [],
                }
            )
    with open_reader(tmp_path) as reader:
        answer = probe_answer(reader, "probe_list", {"probe": "p", "changes": True})
    (change,) = answer["changes"]
    assert (change["metric"], change["parameters"]) == ("ns", {"work": 1})
    assert abs(change["started_ns"] - 26) <= 2
    assert change["change_percent"] == pytest.approx(10, abs=2)


def test_a_store_that_is_full_is_an_error_in_words(keeper):
    """What was measured cannot be kept: said, with where."""
    asked = {"probe": "x", "origin": "asked", "at_ns": 5}
    number = keeper.begin(asked | {"parameters": {}})
    keeper._connection.execute("PRAGMA max_page_count = 1")
    large = {"text": "x" * (1 << 20)}
    with pytest.raises(StoreError, match="not kept: database or disk is full"):
        keeper.begin(asked | {"parameters": large})
    assert keeper.runs == [number]

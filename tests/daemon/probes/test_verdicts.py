"""Verdicts that probes give themselves: told, kept, judged together, and as exit status."""

import math

import pytest

from opd.errors import UsageError
from opd.features.declared import Metric
from opd.probes.history import changes, compare_runs
from opd.probes.local import LocalKeeper
from opd.probes.measuring import Measuring
from opd.probes.results import judge_together, status_of, verdict_map
from opd.probes.running import Outcome, _take
from opd.probes.wire import Splitter, frame
from opd.stats.verdict import Verdict
from opd.store.probes import ProbeRun
from opd.store.queries import open_reader


def verdict(result="OK", p=1.0, **more):
    """Give one."""
    fields = {"reason": "", "change_percent": 0.0, "low": -0.1, "high": 0.1, "n": 8, "processes": 8}
    return Verdict(result=result, p=p, **(fields | more))


def told(result="OK", p=1.0, *, gating=True, **more):
    """Give one as it is kept."""
    return {**verdict_map(verdict(result, p, **more)), "metric": "x", "gating": gating}


def test_a_probe_gives_its_run_a_verdict():
    """It goes through the pipe to the outcome, of the arm that was measured; the latest counts."""
    sent = []
    run = Measuring((Metric(name="x", unit="ns"),), (0,), sent.append)
    run.begin(1, 0)
    run.verdict(verdict(), metric="x")
    run.verdict(verdict("REGRESSED", low=-math.inf), metric="x", gating=False)
    outcome = Outcome(started_ns=0)
    for message in Splitter().feed(b"".join(map(frame, sent))):
        _take(outcome, message)
    assert list(outcome.verdicts) == [1]
    kept = outcome.verdicts[1]
    assert (kept["result"], kept["metric"], kept["gating"]) == ("REGRESSED", "x", False)
    assert kept["low"] is None  # JSON has no infinity
    with pytest.raises(ValueError, match="declared: x"):
        run.verdict(verdict(), metric="y")


def test_a_sweeps_verdicts_are_judged_together():
    """Holm's method takes back what one of many comparisons may well show by luck."""
    alone = told("REGRESSED", 0.009)
    assert judge_together([alone]) == [alone]
    many = [told("REGRESSED", 0.009), *[told(p=0.5) for _ in range(9)]]
    reference = told("REGRESSED", 0.009, gating=False, low=-math.inf)
    judged = judge_together([*many, None, reference, told("REGRESSED", 1e-6, high=math.inf)])
    assert judged[0]["result"] == "UNDECIDED"
    assert "one of 11 comparisons" in judged[0]["reason"]
    assert judged[10] is None
    assert judged[11] == reference
    assert (judged[12]["result"], judged[12]["family"]) == ("REGRESSED", 11)
    assert judged[12]["metric"] == "x"


@pytest.mark.parametrize(
    ("results", "status"),
    [
        ([], 1),
        ([told()], 0),
        ([None], 0),
        ([told(), told("UNDECIDED")], 4),
        ([told("UNDECIDED"), told("INVALID")], 5),
        ([told("INVALID"), told("REGRESSED"), told("UNDECIDED")], 3),
        ([told("REGRESSED", gating=False)], 0),
    ],
)
def test_the_exit_status_is_of_the_worst_verdict_that_gates(results, status):
    """3, then 5, then 4; a void run is 1 whatever the others say."""
    runs = [{"verdict": one, "void": None} for one in results]
    assert status_of(runs) == status
    assert status_of([*runs, {"verdict": None, "void": "killed"}]) == 1


def test_a_kept_verdict_can_be_replaced(tmp_path):
    """What was judged alone is judged again with the others, when they are measured."""
    keeper = LocalKeeper(str(tmp_path))
    number = keeper.begin({"probe": "x", "parameters": {}, "origin": "asked", "at_ns": 5})
    keeper.judge({"id": number, "verdict": told("UNDECIDED")})
    keeper.close()
    with open_reader(tmp_path) as reader:
        (run,) = reader.probe_runs()
    assert run.verdict == told("UNDECIDED")


def kept(number, level, ratio):
    """Give a kept run with a level that is for information, and a ratio."""
    metrics = [
        {"name": "level", "median": level, "better": "neither"},
        {"name": "ratio", "median": ratio, "better": "lower"},
    ]
    return ProbeRun(
        id=number,
        probe="x",
        parameters={},
        origin="asked",
        started_ns=number,
        ended_ns=number,
        machine={},
        metrics=metrics,
        verdict=None,
        void=None,
        notes=[],
        details={},
        bytes=0,
    )


def test_history_looks_only_at_metrics_with_a_better_way():
    """A level that jumps from run to run is no change; a ratio that does is."""
    runs = [kept(i, 100.0 if i < 10 else 200.0, 1.0 + i % 3 * 0.001) for i in range(20)]
    assert changes(runs) == []
    runs = [kept(i, 100.0 + i, 1.0 if i < 10 else 1.1) for i in range(20)]
    assert [change["metric"] for change in changes(runs)] == ["ratio"]
    assert compare_runs(runs[0], runs[19], runs[:10]).result == "REGRESSED"
    with pytest.raises(UsageError, match="no metric"):
        compare_runs(runs[0], runs[19], runs, metric="z")
    with pytest.raises(UsageError, match="neither better nor worse"):
        compare_runs(runs[0], runs[19], runs, metric="level")

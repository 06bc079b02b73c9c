import os
import signal
import threading
import time
from pathlib import Path

import pytest

from opd.errors import OperationFailedError, PermissionDeniedError, UnknownNameError, UsageError
from opd.probes import running
from opd.probes.running import Limits

LIMITS = Limits(seconds=60.0)


def one(text=""):
    """Give the parameters of one measurement, or of a sweep."""
    return running.plan("calibrate", text).parameters


def test_a_plan_has_complete_parameters_and_the_metrics():
    """A text of options becomes every option with its value."""
    planned = running.plan("calibrate", "memory=1GiB,repeats=3,cpus=0")
    assert planned.parameters == [
        {
            "cpus": ["0"],
            "nice": 0,
            "fifo": 0,
            "memory_cap": 0,
            "time_limit": 600.0,
            "what": "loop",
            "work": 100,
            "turns": 1000,
            "samples": 25,
            "repeats": 3,
            "memory": 1 << 30,
            "rest": 0.0,
        }
    ]
    assert planned.memory_bytes == [1 << 30]
    assert ("ns_per_turn", "ns", "lower") in planned.metrics


def test_lists_and_suites_sweep():
    """A list given to a plain option, or a suite, is a measurement for each combination."""
    pairs = [(p["what"], p["work"]) for p in one("what=loop+clock,work=1+2")]
    assert pairs == [("loop", 1), ("loop", 2), ("clock", 1), ("clock", 2)]
    assert [p["what"] for p in one("suite=all,work=7")] == ["loop", "syscall", "clock"]


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("memory=100000g", OperationFailedError, "leaves"),
        ("memory=2g,memory_cap=1g", UsageError, "memory_cap is 1 GiB"),
        ("memory=9999999999999999999999g", UsageError, "no machine has so much"),
        ("memory=-1", UsageError, "memory"),
        ("what=lop", UsageError, "loop or syscall or clock"),
        ("wat=loop", UsageError, "valid: cpus"),
        ("cpus=4000", UsageError, "CPU 4000 is not there"),
        ("cpus=x", UsageError, "expected CPUs such as"),
        ("work=0", UsageError, "from 1"),
        ("suite=none", UsageError, "there are: all"),
        ("work=" + "+".join(map(str, range(1, 600))), UsageError, "at most 512"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(text, kind, words):
    """Wrong options and more than there is are told with what is there instead."""
    with pytest.raises(kind, match=words):
        running.plan("calibrate", text)


def test_an_unknown_probe_names_those_there_are():
    """A wrong name gets the closest one."""
    with pytest.raises(UnknownNameError, match="did you mean calibrate"):
        running.plan("calibrat", "")


def test_samples_come_by_arm_with_their_repeats():
    """Arms take turns for as many rounds; repeats go on counting."""
    arms = one("what=loop+clock,repeats=2,samples=3,turns=10")
    outcome = running.measure("calibrate", arms, rounds=2, limits=LIMITS)
    assert outcome.void == ""
    assert set(outcome.samples) == {(0, "ns_per_turn", -1), (1, "ns_per_turn", -1)}
    column = outcome.samples[0, "ns_per_turn", -1]
    assert list(column.repeats) == [r for r in range(4) for _ in range(3)]
    assert all(value > 0 for value in column.values)
    assert outcome.machine["kernel"] == os.uname().release
    assert {"seconds", "steal_cpus", "other_cpus"} <= set(outcome.machine["run"])
    counters = outcome.machine["run"]["counters"]
    assert counters["pgfault"] >= 0
    if Path("/proc/pressure/memory").exists():
        assert counters["memory_stalled_us"] >= 0


def test_the_probe_runs_on_its_cpus_and_policy():
    """Affinity and SCHED_FIFO are those asked for, while it runs."""
    cpu = max(os.sched_getaffinity(0))
    seen = {}

    def look(done, _of):
        if done == 1:
            seen["cpus"] = os.sched_getaffinity(pid[0])
            seen["policy"] = os.sched_getscheduler(pid[0])

    pid = []
    try:
        arms = one(f"cpus={cpu},fifo=3,rest=0.3,repeats=2")
    except PermissionDeniedError:
        pytest.skip("SCHED_FIFO is not permitted")
    outcome = running.measure("calibrate", arms, limits=LIMITS, progress=look, began=pid.append)
    assert outcome.void == ""
    assert seen == {"cpus": {cpu}, "policy": os.SCHED_FIFO}


def test_its_time_limit_kills_it():
    """A run that takes too long is void and says so."""
    outcome = running.measure("calibrate", one("rest=60"), limits=Limits(seconds=1.5))
    assert "time limit, 1.5 s" in outcome.void


def test_its_memory_cap_kills_it():
    """A run that uses more than its cap is void and says so."""
    arms = one("memory=700m,repeats=40")
    outcome = running.measure("calibrate", arms, limits=Limits(seconds=60, memory_bytes=1 << 20))
    assert "more than its memory cap, 1 MiB" in outcome.void


def test_a_cancelled_run_keeps_what_it_measured():
    """The reason is the run's, and its samples are kept."""
    since = []
    outcome = running.measure(
        "calibrate",
        one("rest=1,repeats=60"),
        limits=LIMITS,
        progress=lambda *_: since.append(time.monotonic()),
        cancelled=lambda: "cancelled by a test" if since else "",
    )
    assert outcome.void == "cancelled by a test"
    assert len(outcome.samples[0, "ns_per_turn", -1].values) >= 25


def test_a_killed_probe_is_void_and_says_by_what():
    """Kill -9 of the probe in mid-run."""
    outcome = running.measure(
        "calibrate",
        one("rest=60"),
        limits=LIMITS,
        began=lambda pid: threading.Timer(1.5, os.kill, (pid, signal.SIGKILL)).start(),
    )
    assert outcome.void in (
        "its process was killed by SIGKILL",
        "killed by the OOM killer: the machine or its cgroup ran out of memory",
    )

"""Probes asked of a running daemon: results, statuses, ends of all kinds, schedules."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from installed_plugins import PLUGINS, lay_out
from opd.store.probes import UNENDED
from opd.store.queries import open_reader
from places import BIN

CONTRACT = {"probe", "parameters", "machine", "metrics", "verdict", "void"}
METRIC = {"name", "unit", "median", "low", "high", "cv", "n"}


@pytest.fixture
def daemon(start_daemon):
    """Give a daemon of one's own."""
    return start_daemon()


def kept_runs(store):
    """Read all that is kept."""
    with open_reader(store) as reader:
        return reader.probe_runs()


def wait_for(condition, seconds=30.0):
    """Wait until it holds."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return found


def child_of(daemon):
    """Give the pid of the probe that runs under a daemon, 0 for none."""
    for task in Path(f"/proc/{daemon.process.pid}/task").iterdir():
        for pid in (task / "children").read_text().split():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text() == "opd-probe\n":
                    return int(pid)
    return 0


def test_the_result_is_the_contracts(daemon):
    """JSON of a single run, and of a sweep in results."""
    one = daemon.ask("probe", "run", "calibrate", "repeats=2")
    assert set(one) >= CONTRACT
    assert {frozenset(metric) for metric in one["metrics"]} == {frozenset(METRIC)}
    assert (one["verdict"], one["void"]) == (None, None)
    sweep = daemon.ask("probe", "run", "calibrate", "repeats=1,what=loop+clock")
    assert [r["parameters"]["what"] for r in sweep["results"]] == ["loop", "clock"]
    runs = daemon.ask("probe", "list")["runs"]
    assert [run["id"] for run in runs] == [1, 2, 3]
    stats = daemon.ask("stats", "calibrate")["features"]["calibrate"]["probe"]
    assert (stats["runs"], stats["void"], stats["last"]["id"]) == (3, 0, 3)
    assert "runs: 3, 0 of them void" in daemon.opctl("stats").stdout
    assert daemon.opctl("stats", "nothing", check=False).returncode == 2
    shown = daemon.ask("probe", "show", "1", "--samples")
    assert sum(len(column["values"]) for column in shown["samples"]) == one["metrics"][0]["n"]
    table = daemon.opctl("probe", "show", "1").stdout
    assert "run.counters.pgfault" in table
    assert "{" not in table  # a line for each figure, none of Python's


def test_exit_statuses_are_the_contracts(daemon):
    """0 done, 1 void or not possible, 2 wrong words, 3 REGRESSED."""
    tries = [
        (["probe", "run", "calibrate", "repeats=1"], 0),
        (["probe", "run", "calibrate", "rest=9,time_limit=1"], 1),
        (["probe", "run", "calibrate", "memory=100000g"], 1),
        (["probe", "run", "calibrate", "wat=1"], 2),
        (["probe", "run", "nothing"], 2),
        (["probe", "run", "calibrate", "repeats"], 2),
        (["probe", "run", "calibrate", "repeats=1,repeats=2"], 2),
        (["probe", "list", "nothing"], 2),
        (["probe", "list", "dto"], 0),
        (["probe", "compare", "1", "calibrate:work=1"], 2),
        (["probe", "cancel", "1"], 1),
        (["probe", "show", "99"], 2),
        (["probe", "show", "x"], 2),
        (["probe", "walk"], 2),
        (["probe", "run"], 2),
        (["probe", "cancel"], 1),
        (["probe", "run", "calibrate", "repeats=1", "--format", "pft"], 2),
        (
            ["probe", "compare", "calibrate:work=100,repeats=1", "calibrate:work=150,repeats=1"]
            + ["--rounds", "8", "--processes", "2"],
            3,
        ),
    ]
    for words, status in tries:
        done = daemon.opctl(*words, check=False)
        assert done.returncode == status, (words, done.stderr)


def test_history_without_enough_runs_is_undecided(daemon):
    """Two kept runs are judged, advisory, by the spread of their like: 4."""
    for _ in range(2):
        daemon.opctl("probe", "run", "calibrate", "repeats=1")
    done = daemon.opctl("--format", "json", "probe", "compare", "1", "2", check=False)
    assert done.returncode == 4
    verdict = json.loads(done.stdout)["verdict"]
    assert (verdict["advisory"], verdict["more"]) == (True, 5)


def test_a_second_probe_is_refused_and_names_the_first(daemon):
    """One at a time; the first is not disturbed, and can be cancelled."""
    first = threading.Thread(
        target=daemon.opctl, args=("probe", "run", "calibrate", "rest=60"), kwargs={"check": False}
    )
    first.start()
    wait_for(lambda: child_of(daemon))
    second = daemon.opctl("probe", "run", "calibrate", check=False)
    assert second.returncode == 1
    assert "opctl probe cancel 1" in second.stderr
    run = daemon.ask("probe", "show", "1")
    assert (run["void"], run["ended_ns"]) == (None, None)
    assert "running" in daemon.opctl("probe", "list").stdout
    assert "1: it runs still" in daemon.opctl("probe", "show", "1").stdout
    done = daemon.opctl("probe", "compare", "1", "1", check=False)
    assert (done.returncode, "run 1 is not over yet" in done.stderr) == (2, True)
    daemon.opctl("probe", "cancel")
    first.join(30)
    (run,) = daemon.ask("probe", "list")["runs"]
    assert run["void"] == "cancelled"


def test_the_probe_killed_leaves_a_void_run(daemon):
    """Kill -9 of the probe: the daemon lives, the run says by what it ended."""
    asked = threading.Thread(
        target=daemon.opctl, args=("probe", "run", "calibrate", "rest=60"), kwargs={"check": False}
    )
    asked.start()
    os.kill(wait_for(lambda: child_of(daemon)), signal.SIGKILL)
    asked.join(30)
    (run,) = daemon.ask("probe", "list")["runs"]
    assert "killed" in run["void"]
    assert daemon.opctl("probe", "run", "calibrate", "repeats=1").returncode == 0


def test_the_daemon_killed_takes_the_probe_with_it(daemon):
    """Kill -9 of the daemon: no probe stays, and the run is void in the store."""
    asked = threading.Thread(
        target=daemon.opctl, args=("probe", "run", "calibrate", "rest=60"), kwargs={"check": False}
    )
    asked.start()
    pid = wait_for(lambda: child_of(daemon))
    time.sleep(0.5)
    daemon.stop(signal.SIGKILL)
    asked.join(30)
    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    (run,) = kept_runs(daemon.store)
    assert run.void == UNENDED


def test_the_daemon_that_ends_ends_the_probe(daemon):
    """SIGTERM: the run is kept as void, and nothing is left."""
    asked = threading.Thread(
        target=daemon.opctl, args=("probe", "run", "calibrate", "rest=60"), kwargs={"check": False}
    )
    asked.start()
    pid = wait_for(lambda: child_of(daemon))
    time.sleep(0.5)
    assert daemon.stop() == 0
    asked.join(30)
    assert not Path(f"/proc/{pid}").exists()
    (run,) = kept_runs(daemon.store)
    assert run.void == "opd ended"


def test_taskset_of_opctl_holds_for_the_daemons_probe(daemon):
    """It runs where opctl may, and the parameters say so; what was asked for wins."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one CPU is no choice")
    endpoint = ["--endpoint", daemon.endpoint, "--format", "json"]
    command = ["taskset", "-c", str(cpus[1]), BIN / "opctl", *endpoint, "probe", "run", "pft"]
    for more, expected in (("", cpus[1]), (f",cpus={cpus[0]}", cpus[0])):
        text = f"memory=1m,repeats=1{more}"
        done = subprocess.run([*command, text], capture_output=True, check=True, text=True)
        result = json.loads(done.stdout)
        assert result["parameters"]["cpus"] == [str(expected)]
        assert result["machine"]["cpus"] == [expected]


def test_a_schedule_runs_and_can_be_cancelled(daemon):
    """every= begins a schedule of the daemon, which runs at once and is listed."""
    made = daemon.ask("probe", "run", "calibrate", "repeats=1,every=1h")
    wait_for(lambda: any(r["ended_ns"] for r in daemon.ask("probe", "list")["runs"]))
    listed = wait_for(
        lambda: [s for s in daemon.ask("probe", "list")["schedules"] if s["runs"] == 1]
    )
    assert 3500 < listed[0]["due_seconds"] <= 3600
    assert daemon.ask("probe", "list")["runs"][0]["origin"] == "schedule"
    daemon.opctl("probe", "cancel", str(made["schedule"]))
    assert daemon.ask("probe", "list")["schedules"] == []


def test_sighup_changes_the_schedules(start_daemon, tmp_path):
    """What is new runs, what stays is not measured again, what is wrong changes nothing."""
    settings = tmp_path / "opd.toml"
    first = "calibrate:repeats=1,every=1h"
    settings.write_text(f'[probes]\nschedule = ["{first}"]\n')
    daemon = start_daemon("--config", str(settings))

    def runs(number):
        listed = daemon.ask("probe", "list")
        ended = [one for one in listed["runs"] if one["ended_ns"]]
        return [one["text"] for one in listed["schedules"]] if len(ended) == number else None

    assert wait_for(lambda: runs(1)) == [first]
    second = "calibrate:repeats=1,what=clock,every=2h"
    settings.write_text(f'[probes]\nschedule = ["{first}", "{second}"]\n')
    daemon.process.send_signal(signal.SIGHUP)
    assert wait_for(lambda: runs(2)) == [first, second]
    settings.write_text('[probes]\nschedule = ["calibrate:every=soon"]\n')
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "every: expected a time" in daemon.log())
    assert runs(2) == [first, second]
    settings.write_text(f'[probes]\nschedule = ["{second}"]\n')
    daemon.process.send_signal(signal.SIGHUP)
    assert wait_for(lambda: runs(2) if len(runs(2)) == 1 else None) == [second]
    origins = {one["origin"] for one in daemon.ask("probe", "list")["runs"]}
    assert origins == {"schedule"}


def test_a_profile_leaves_a_probe_out(daemon):
    """Its samples are of opd-probe, and windows end where it begins and ends."""
    options = "turns=1000000,repeats=1,samples=20,rest=1"
    asked = threading.Thread(target=daemon.opctl, args=("probe", "run", "calibrate", options))
    asked.start()
    pid = wait_for(lambda: child_of(daemon))
    asked.join(60)
    (run,) = daemon.ask("probe", "list")["runs"]

    def report(*options):
        """Give the comms of the probe's process; others on the machine may measure too."""
        answer = daemon.ask("report", "--sort", "comm,pid", "--top", "0", *options)
        return {row["comm"] for row in answer["rows"] if row["pid"] == pid}

    daemon.ask("dump")
    assert "opd-probe" in report()
    assert "opd-probe" not in report("--where", "comm!=opd-probe")
    assert report("--until", f"mark:calibrate {run['id']} begins") == set()
    assert report("--since", f"mark:calibrate {run['id']} ends") == set()
    assert report("--without-probes") == set()
    left_out = daemon.ask("report", "--without-probes")["quality"]["left_out"]
    assert left_out["probes"] == 1
    assert left_out["seconds"] >= 1
    assert "left out" in daemon.opctl("report", "--without-probes").stdout


@pytest.fixture
def third_party(start_daemon, tmp_path):
    """Give a daemon with an installed package that offers a probe, and its environment."""
    site = tmp_path / "site"
    points = {"measuring": "measuring"}
    env = lay_out(site, "opd_measuring", points, module=PLUGINS / "measuring.py")
    return start_daemon(env=env), env


def test_a_package_offers_a_probe(third_party, monkeypatch):
    """As one's own: measured, listed, refused, swept, with a form of its own and statistics."""
    daemon, env = third_party
    monkeypatch.setenv("PYTHONPATH", env["PYTHONPATH"])  # of opctl, which makes its text
    one = daemon.ask("probe", "run", "touch", "memory=64k,repeats=5")
    assert (one["probe"], one["metrics"][0]["n"]) == ("touch", 5)
    assert (one["notes"], one["details"]["table"]) == (["touched"], {"a": [1, 2]})
    sweep = daemon.ask("probe", "run", "touch", "suite=two")
    assert [r["parameters"]["memory"] for r in sweep["results"]] == [65536, 131072]
    assert daemon.opctl("probe", "run", "touch", "--format", "words").stdout == "touch 1048576\n"
    assert daemon.ask("stats", "touch")["features"]["touch"]["own"]["colour"] == "blue"
    assert daemon.opctl("probe", "run", "touch", "memory=900g", check=False).returncode == 1
    wrong = daemon.opctl("probe", "run", "touch", "memory=1", check=False)
    assert wrong.returncode == 2
    assert "from 4096" in wrong.stderr or "4096 or more" in wrong.stderr
    assert "opctl probe run touch" in daemon.opctl("features", "measuring").stdout


def test_a_bad_probe_costs_nobody_else(third_party):
    """What it does wrong makes its run void with a reason, and the next one runs."""
    daemon, _env = third_party
    for how, reason in (
        ("void", "the disk is on fire"),
        ("raise", "the probe broke: RuntimeError: on purpose"),
        ("exit", "its process ended with status 3"),
        ("unknown", "no metric 'wat'; declared: ns_per_page"),
        ("infinite", "no finite number"),
        ("stats", "numbers or texts by name"),
    ):
        done = daemon.opctl("probe", "run", "touch", f"how={how}", "--format", "json", check=False)
        assert done.returncode == 1, how
        assert reason in json.loads(done.stdout)["void"]
    assert daemon.ask("probe", "run", "touch", "how=print")["void"] is None
    told = daemon.ask("stats", "touch")["features"]["touch"]["probe"]
    assert (told["runs"], told["void"], told["last_void"]["id"]) == (7, 6, 6)

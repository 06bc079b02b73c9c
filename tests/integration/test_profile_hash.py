"""profile-hash in a real daemon: what it counts, what judges say, what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from places import BIN

WAIT_S = 60.0
KEYS = {
    *("hits", "shared_updates", "updates_per_hit", "amortisation", "flushes", "flips"),
    *("evictions", "probe_max", "ns_per_hit", "flip_ns", "bytes"),
}


@pytest.fixture
def kernel_bound():
    """A process that is nearly always in one function of the kernel."""
    process = subprocess.Popen(
        ["dd", "if=/dev/zero", "of=/dev/null", "bs=1M"], stderr=subprocess.DEVNULL
    )
    yield process
    process.kill()
    process.wait()


def document(daemon):
    """The one JSON object of ``opctl stats profile-hash``."""
    return daemon.ask("stats", "profile-hash")


def counted(daemon, hits):
    """Statistics once there are so many hits."""
    until = time.monotonic() + WAIT_S
    while (stats := document(daemon))["hits"] < hits:
        assert time.monotonic() < until
        time.sleep(0.2)
    return stats


def test_hits_are_counted_by_cpu_and_flushed_before_they_are_told(start_daemon, kernel_bound):
    """The document has its keys; CPUs add up; a busy kernel needs few updates."""
    daemon = start_daemon("-e", "cpu-clock:997hz", "-x", "profile-hash")
    stats = counted(daemon, 300)
    assert kernel_bound.poll() is None
    assert set(stats) == KEYS | {"per_cpu"}
    assert sum(one["hits"] for one in stats["per_cpu"]) == stats["hits"]
    assert sum(one["shared_updates"] for one in stats["per_cpu"]) == stats["shared_updates"]
    assert 0 < stats["shared_updates"] <= stats["hits"]
    assert stats["amortisation"] == pytest.approx(stats["hits"] / stats["shared_updates"], 0.01)
    assert stats["flips"] >= 1
    assert document(daemon)["flips"] > stats["flips"]
    text = daemon.opctl("stats", "profile-hash").stdout
    assert "flushes a minute" in text
    assert "one in 26" in text


def test_the_event_of_the_daemon_is_not_opened_twice(start_daemon):
    """Asked for by name and rate it is the same; another rate is an event beside it."""
    same = start_daemon("-e", "cpu-clock:99hz", "-x", "profile-hash:event=cpu-clock,rate=99")
    assert [one["hz"] for one in same.ask("events")["events"]] == [99]
    other = start_daemon("-e", "cpu-clock:99hz", "-x", "profile-hash:rate=499")
    hz = {one["name"]: one["hz"] for one in other.ask("events")["events"]}
    assert hz == {"cpu-clock": 99, "profile_hash": 499}
    assert "cpu-clock, 499 Hz" in other.opctl("stats", "profile-hash").stdout


def test_a_file_is_counted_wherever_it_is_mapped(start_daemon, busy):
    """A position-independent program: hits are of it alone, and have an end with it."""
    load = subprocess.Popen([busy, "plain", "30"], stdout=subprocess.DEVNULL)
    try:
        ext = f"profile-hash:binary={busy}"
        daemon = start_daemon("-e", "cpu-clock:997hz", "--strict", "-x", ext)
        counted(daemon, 50)
    finally:
        load.kill()
        load.wait()
    document(daemon)
    hits = document(daemon)["hits"]
    time.sleep(0.5)
    assert document(daemon)["hits"] == hits


def test_sighup_begins_anew_with_other_options(start_daemon, kernel_bound, tmp_path):
    """And goes on as before when they cannot be."""
    settings = tmp_path / "opd.toml"
    settings.write_text("[feature.profile_hash]\nslots = 64\n")
    daemon = start_daemon("-e", "cpu-clock:997hz", "--config", str(settings))
    counted(daemon, 50)
    assert "64 slots a table" in daemon.opctl("stats", "profile-hash").stdout
    settings.write_text("[feature.profile_hash]\nslots = 48\n")
    daemon.process.send_signal(signal.SIGHUP)
    wait_for_log(daemon, "config.refused")
    assert "64 slots a table" in daemon.opctl("stats", "profile-hash").stdout
    settings.write_text('[feature.profile_hash]\nslots = 128\npolicy = "evict"\n')
    daemon.process.send_signal(signal.SIGHUP)
    wait_for_log(daemon, "config.reloaded")
    assert "128 slots a table, policy evict" in daemon.opctl("stats", "profile-hash").stdout
    counted(daemon, 50)
    assert kernel_bound.poll() is None
    assert daemon.stop() == 0


def test_an_event_that_a_reload_dropped_is_of_an_earlier_run(start_daemon, tmp_path):
    """It is still listed, for its samples are still there; the feature is gone."""
    settings = tmp_path / "opd.toml"
    settings.write_text("[feature.profile_hash]\nrate = 499\n")
    daemon = start_daemon("-e", "cpu-clock:99hz", "--config", str(settings))
    listed = {one["name"]: one["latest"] for one in daemon.ask("events")["events"]}
    assert listed == {"cpu-clock": True, "profile_hash": True}
    daemon.ask("dump")
    settings.write_text("")
    daemon.process.send_signal(signal.SIGHUP)
    wait_for_log(daemon, "config.reloaded")
    listed = {one["name"]: one["latest"] for one in daemon.ask("events")["events"]}
    assert listed == {"cpu-clock": True, "profile_hash": False}
    lines = daemon.opctl("events").stdout.splitlines()
    [line] = [line for line in lines if line.startswith("profile_hash")]
    assert line.split()[-1] == "earlier"
    assert daemon.ask("report", "--event", "profile_hash")["rows"] is not None
    assert daemon.opctl("readprofile", check=False).returncode == 2
    assert daemon.stop() == 0


def test_a_file_that_is_deleted_is_counted_on(start_daemon, busy, tmp_path):
    """It is known by what it was; its names are there too."""
    program = tmp_path / "busy"
    shutil.copy(busy, program)
    daemon = start_daemon(
        "-e", "cpu-clock:997hz", "--strict", "-x", f"profile-hash:binary={program}"
    )
    with subprocess.Popen([program, "plain", "60"], stdout=subprocess.DEVNULL) as load:
        counted(daemon, 20)
        program.unlink()
        counted(daemon, document(daemon)["hits"] + 20)
        load.kill()
    answer = daemon.ask("readprofile")
    assert answer["image"] == str(program)
    assert sum(row["ticks"] for row in answer["rows"]) > answer["ticks"] / 2
    assert daemon.stop() == 0


def wait_for_log(daemon, word):
    """Until it says so."""
    until = time.monotonic() + WAIT_S
    while word not in daemon.log():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("shift=70", "shift"),
        ("slots=1000", "no power of two"),
        ("policy=flsh", "flush"),
    ],
)
def test_a_wrong_option_is_78(options, words):
    """Whether the machine could or not."""
    done = subprocess.run(
        [BIN / "opd", "--check-config", "-x", f"profile-hash:{options}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 78
    assert words in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("range=1000-2000", "is not inside of [kernel]"),
        ("module=no_such_module", "no module 'no_such_module' is loaded"),
        ("binary=/no/such/file", "/no/such/file: cannot be read"),
    ],
)
def test_what_is_not_there_is_78_with_strict(start_daemon, options, words):
    """With its reason."""
    strict = start_daemon("--strict", "-x", f"profile-hash:{options}", ready=False)
    assert strict.process.wait(WAIT_S) == 78
    assert words in strict.log()


def test_what_is_not_there_is_unavailable(start_daemon):
    """With its reason, and the daemon runs on."""
    daemon = start_daemon("-e", "cpu-clock", "-x", "profile-hash:module=no_such_module")
    state = daemon.ask("status")["features"]["profile_hash"]
    assert state["state"] == "unavailable"
    assert "no module 'no_such_module' is loaded" in state["reason"]
    assert daemon.stop() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="perf record -a is root's")
def test_perf_sees_the_same_functions(start_daemon, kernel_bound, perf, tmp_path):
    """Of the same time: perf's first function of the kernel is among our first three."""
    daemon = start_daemon("-e", "cpu-clock:997hz", "-x", "profile-hash")
    data = tmp_path / "perf.data"
    record = [perf, "record", "-q", "-a", "-B", "-N", "-e", "cpu-clock", "-F", "997", "-o", data]
    subprocess.run([*record, "--", "sleep", "1.5"], check=True, stderr=subprocess.DEVNULL)
    counted(daemon, 300)
    assert kernel_bound.poll() is None
    report = [perf, "report", "-i", data, "--stdio", "-q", "--sort", "sym", "-g", "none"]
    printed = subprocess.run(report, check=True, capture_output=True, text=True).stdout
    theirs = [line.split("]")[1].strip() for line in printed.splitlines() if "[k]" in line]
    rows = json.loads(daemon.opctl("--format", "json", "readprofile", "--top", "3").stdout)["rows"]
    assert theirs[0] in [row["symbol"] for row in rows]

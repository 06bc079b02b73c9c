"""Bursts on real processes: whom they sample, how they end, who may ask."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from opd.errors import OpdError, UsageError
from opd.query.client import Client
from opd.recording import Burst, check, events
from places import BIN

QUICK = ("--rate", "1999")


@contextlib.contextmanager
def burning(busy, mode="plain", seconds="60"):
    """A process that burns CPU; its pid."""
    with subprocess.Popen(
        [busy, mode, seconds], stdout=subprocess.PIPE, text=True, process_group=0
    ) as process:
        process.stdout.readline()  # it runs
        try:
            yield process.pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def in_background(daemon, *arguments, **popen):
    """Begin an opctl that takes a while."""
    command = [str(BIN / "opctl"), "--endpoint", daemon.endpoint, "--format", "json", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes, **popen)


def wait_for_burst(daemon):
    """Give the session of the burst that samples now."""
    until = time.monotonic() + 60
    while not ((running := daemon.ask("record", "--list")["running"]) and running["progress"]):
        assert time.monotonic() < until
        time.sleep(0.1)
    return running["session"]


def rows_of(daemon, session, *keys):
    """All rows of a session by these keys."""
    options = ("report", "--session", session, "--sort", ",".join(keys), "--top", "0")
    return daemon.ask(*options)


@pytest.fixture(scope="module")
def daemon(start_daemon):
    """One daemon for all: bursts come one after the other."""
    daemon = start_daemon("--interval", "1")
    yield daemon
    assert daemon.stop() == 0
    assert "duty.failed" not in daemon.log()


def test_a_process_is_sampled_alone_and_beside_the_profile(daemon, busy):
    """Only the process asked for is in the burst's session; the running profile goes on."""
    with burning(busy) as pid, burning(busy):
        result = daemon.ask("record", "--pid", str(pid), "--for", "2s", *QUICK, "--name", "one")
        assert result["session"] == "one"
        assert result["ended"] == "time"
        assert result["samples"] > 50
        answer = rows_of(daemon, "one", "pid", "symbol")
        assert {row["pid"] for row in answer["rows"]} == {pid}
        assert answer["rows"][0]["symbol"] == "plain_work"
        assert answer["quality"]["hz_asked"] == 1999
        assert answer["total"] == result["samples"]
    kinds = {one["name"]: one["kinds"] for one in daemon.ask("sessions")["sessions"]}
    assert kinds["one"] == ["burst"]
    # What is asked without a session is still the running profile.
    assert daemon.ask("report")["quality"]["hz_asked"] == 99
    assert daemon.opctl("record", "--for", "1s", "--name", "one", check=False).returncode == 2


def test_what_a_process_makes_is_sampled_too(daemon, busy):
    """Threads and children that it begins after the burst did belong to it."""
    script = f"sleep 2; exec {busy} fork 60"
    # Now and then the kernel counts nothing of a task that slept when its
    # events were opened; perf record -p has the same: three tries.
    for _ in range(3):
        with subprocess.Popen(
            ["/bin/sh", "-c", script], stdout=subprocess.DEVNULL, process_group=0
        ) as shell:
            result = daemon.ask("record", "--pid", str(shell.pid), "--for", "6s", *QUICK)
            os.killpg(shell.pid, signal.SIGKILL)
        if result["samples"]:
            break
    answer = rows_of(daemon, result["session"], "comm", "pid")
    found = {row["comm"]: row["pid"] for row in answer["rows"]}
    assert found["renamed"] != shell.pid


def test_names_leave_all_others_out_and_count_them(daemon, busy):
    """A glob finds what runs under it; the rest is counted as filtered, and is no loss."""
    with burning(busy):
        result = daemon.ask("record", "--comm", "bus[y]", "--for", "2s", *QUICK)
    assert result["samples"] > 50
    assert result["filtered"] > 0
    answer = rows_of(daemon, result["session"], "comm")
    assert {row["comm"] for row in answer["rows"]} == {"busy"}
    assert sum(answer["quality"]["lost"].values()) == result["lost"]


def test_a_process_that_ends_ends_its_burst(daemon, busy):
    """The burst ends early and says so; nothing of it is thrown away."""
    with burning(busy, seconds="2") as pid:
        began = time.monotonic()
        done = daemon.opctl("record", "--pid", str(pid), "--for", "80s", *QUICK)
        assert time.monotonic() - began < 60
    assert "the processes have ended" in done.stdout
    assert "opctl report --session burst-" in done.stdout


def test_a_process_that_is_not_there(daemon):
    """A clear error, exit 1, and no session."""
    before = {one["name"] for one in daemon.ask("sessions")["sessions"]}
    done = daemon.opctl("record", "--pid", "2147483646", check=False)
    assert done.returncode == 1
    assert done.stderr == "opctl: there is no process 2147483646\n"
    assert {one["name"] for one in daemon.ask("sessions")["sessions"]} == before


def test_one_at_a_time_and_ctrl_c_keeps_what_was_taken(daemon, busy):
    """A second one is refused by the name of the first, which ends early when interrupted."""
    with burning(busy), in_background(daemon, "record", "--for", "80s", *QUICK) as first:
        session = wait_for_burst(daemon)
        second = daemon.opctl("record", "--for", "1s", check=False)
        assert second.returncode == 1
        assert session in second.stderr
        time.sleep(1)
        first.send_signal(signal.SIGINT)
        output, complaint = first.communicate(timeout=60)
    assert first.returncode == 0, complaint
    result = json.loads(output)
    assert result["ended"] == "asked"
    assert result["samples"] > 50
    assert rows_of(daemon, session, "comm")["total"] == result["samples"]


def test_another_terminal_can_end_it(daemon):
    """Record --stop ends the running one; its client prints what there is."""
    with in_background(daemon, "record", "--for", "80s", *QUICK) as first:
        session = wait_for_burst(daemon)
        assert daemon.ask("record", "--stop")["session"] == session
        output, _ = first.communicate(timeout=60)
    assert json.loads(output)["ended"] == "asked"
    assert daemon.opctl("record", "--stop", check=False).returncode == 1
    assert session in daemon.opctl("record", "--list").stdout


def test_a_burst_ends_with_its_client(daemon):
    """A client that is killed does not leave its burst running."""
    with in_background(daemon, "record", "--for", "80s", *QUICK) as client:
        session = wait_for_burst(daemon)
        client.kill()
        client.communicate()
    until = time.monotonic() + 60
    while daemon.ask("record", "--list")["running"] is not None:
        assert time.monotonic() < until
        time.sleep(0.2)
    ended = {one["session"]: one for one in daemon.ask("record", "--list")["ended"]}
    assert ended[session]["result"]["ended"] == "asked"
    assert "burst.abandoned" in daemon.log()


def test_only_the_owner_may_record(daemon):
    """Everybody who may connect sees the list; others may not begin, follow or end one."""
    daemon.directory.chmod(0o755)
    Path(daemon.endpoint.removeprefix("ipc://")).chmod(0o777)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            said = []
            with Client(daemon.endpoint) as client:
                for method in ("record", "record_poll", "record_stop", "record_list"):
                    try:
                        client.call(method, {"session": "x"} if method == "record_poll" else {})
                        said.append("")
                    except OpdError as error:
                        said.append(error.code)
            os.write(write, json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    assert json.loads(os.read(read, 4096)) == ["permission"] * 3 + [""]
    os.close(read)


def test_a_daemon_that_ends_ends_its_burst_well(start_daemon, busy):
    """SIGTERM in a burst: exit 0, and the burst's samples are in the store."""
    daemon = start_daemon()
    with burning(busy), in_background(daemon, "record", "--for", "80s", *QUICK) as client:
        session = wait_for_burst(daemon)
        time.sleep(1)
        assert daemon.stop() == 0
        client.communicate(timeout=60)
    command = [str(BIN / "opctl"), "--session-dir", str(daemon.store), "--format", "json"]
    done = subprocess.run(
        [*command, "report", "--session", session], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["total"] > 50
    # The latest session is the profile, not the burst.
    done = subprocess.run([*command, "report"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["quality"]["hz_asked"] == 99


def test_a_store_of_its_own_needs_no_daemon(tmp_path, busy):
    """With --session-dir the client samples by itself."""
    if os.geteuid() != 0:
        pytest.skip("CPU-wide events need root")
    with burning(busy) as pid:
        command = [str(BIN / "opctl"), "--session-dir", str(tmp_path / "store")]
        done = subprocess.run(
            [*command, "record", "--pid", str(pid), "--for", "1s", *QUICK, "--report"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert "plain_work" in done.stdout


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rate": 10**9}, "perf_event_max_sample_rate"),
        ({"rate": 0}, "expected 1 to"),
        ({"seconds": 1e9}, "at most 3600"),
        ({"seconds": 0}, "more than 0"),
        ({"pids": (1,), "comms": ("a",)}, "not both"),
        ({"pids": (0,)}, "positive"),
        ({"comms": ("",)}, "glob"),
        ({"name": "live"}, "running session"),
        ({"cpus": "4095"}, "CPU 4095 is not online"),
        ({"cpus": "x"}, "expected CPUs such as 0-3,8"),
        ({"events": ("cpu-clok",)}, "did you mean cpu-clock"),
        ({"name": "a\nb"}, "control character"),
    ],
)
def test_wrong_bursts_are_refused_with_the_reason(wrong, said):
    """Each limit has its words."""
    with pytest.raises(UsageError) as caught:
        check(Burst(**wrong))
    assert said in str(caught.value)


def test_the_rate_is_for_events_that_say_none():
    """A rate in the event stays; events that count are not sampled by time."""
    burst = Burst(events=("cpu-clock", "task-clock:50hz", "page-faults"), rate=777)
    assert [(one.hz, one.period) for one in events(burst)] == [(777, None), (50, None), (None, 1)]

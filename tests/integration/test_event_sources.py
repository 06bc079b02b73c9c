"""Events of every source on the real kernel: probes, PMUs by their terms, raw counters."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time

import pytest

from places import BIN, PROGRAMS

CALLS = 1200


@pytest.fixture(scope="module")
def ticks(tmp_path_factory):
    """The program that calls a function as often as it is told."""
    target = tmp_path_factory.mktemp("programs") / "ticks"
    flags = ["-O1", "-g", "-fno-omit-frame-pointer"]
    subprocess.run(["gcc", *flags, PROGRAMS / "ticks.c", "-o", target], check=True)
    return target


@contextlib.contextmanager
def told(program, *numbers):
    """The program, having called that often on one CPU: each counts to ten for itself."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    pinned = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    with subprocess.Popen([*pinned, program], **pipes) as process:
        for number in numbers:
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            process.stdout.readline()
        yield process
        process.stdin.close()


@pytest.fixture(scope="module")
def daemon(start_daemon, ticks):
    """A daemon with one event of each source, after the program has called."""
    offset = offset_of(ticks, "tick")
    sampled = start_daemon(
        *("-e", f"uprobe:{ticks}:tick", "-e", f"uprobe:{ticks}:{offset:#x}:u:10"),
        *("-e", f"uprobe:{ticks}:hidden:3", "-e", f"uretprobe:{ticks}:tick:100"),
        *("-e", "software/config=2,period=1/u", "-e", "software/config=0/u:199hz"),
        *("-e", "RETIRED_INSTRUCTIONS:100000", "-e", "cpu/event=0x76,umask=0/pu"),
        *("--cpu-type", "x86-64/family10"),
    )
    with told(ticks, CALLS // 2, CALLS // 2):
        sampled.ask("dump")
    return sampled


def offset_of(program, name):
    """The offset in the file by nm and readelf."""
    symbols = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    address = next(int(line.split()[0], 16) for line in symbols.splitlines() if f" {name}" in line)
    headers = ["readelf", "-lW", program]
    text = subprocess.run(headers, capture_output=True, text=True, check=True).stdout
    for fields in (line.split() for line in text.splitlines()):
        if fields[:1] == ["LOAD"] and "E" in fields[6:8]:
            file_offset, start, size = (int(fields[i], 16) for i in (1, 2, 4))
            if start <= address < start + size:
                return address - start + file_offset
    raise AssertionError(f"{name} is in no executable segment")


def report(daemon, event):
    """All rows of an event, of the program alone."""
    answer = daemon.ask(
        *("report", "-e", event, "--sort", "comm,image,symbol", "--top", "0"),
    )
    return answer, [row for row in answer["rows"] if row["comm"] == "ticks"]


@pytest.mark.privileged
def test_a_probe_counts_every_call(daemon, ticks):
    """Each call of a function is one sample, in that function."""
    answer, rows = report(daemon, f"uprobe:{ticks}:tick")
    assert answer["quality"]["source"] == f"uprobe:{ticks}:tick"
    assert [(row["samples"], row["image"], row["symbol"]) for row in rows] == [
        (CALLS, str(ticks), "tick")
    ]
    assert answer["total"] == CALLS


@pytest.mark.privileged
def test_a_probe_by_its_offset_and_with_a_count(daemon, ticks):
    """An offset in the file is the same place; a sample of every tenth weighs ten."""
    _, rows = report(daemon, f"uprobe:{ticks}:{offset_of(ticks, 'tick'):#x}:u")
    assert [(row["samples"], row["weight"], row["symbol"]) for row in rows] == [
        (CALLS // 10, CALLS, "tick")
    ]


@pytest.mark.privileged
def test_a_return_is_in_the_caller(daemon, ticks):
    """The sample of a return is where the function returns to."""
    _, rows = report(daemon, f"uretprobe:{ticks}:tick")
    assert [(row["samples"], row["symbol"]) for row in rows] == [(CALLS // 100, "main")]


@pytest.mark.privileged
def test_a_probe_of_a_function_that_is_not_exported(daemon, ticks):
    """Two calls are none of every third; the event is there all the same."""
    answer, rows = report(daemon, f"uprobe:{ticks}:hidden")
    assert (answer["total"], rows) == (0, [])


@pytest.mark.privileged
def test_a_pmu_by_its_terms(daemon):
    """software/config=2/ are page faults, software/config=0/ the timer of each CPU."""
    faults, rows = report(daemon, "software/config=2,period=1/u")
    assert faults["total"] > 0
    assert sum(row["samples"] for row in rows) > 0
    events = {event["name"]: event for event in daemon.ask("events")["events"]}
    assert events["software/config=0/u"]["unit"] == "ns"
    assert events["software/config=0/u"]["hz"] == 199


@pytest.mark.privileged
def test_what_another_cpu_counts_falls_back(daemon):
    """An event of another CPU's files is never opened by its number here."""
    events = {event["name"]: event for event in daemon.ask("events")["events"]}
    assert events["RETIRED_INSTRUCTIONS"]["source"] == "cpu-clock"
    assert '"asked": "RETIRED_INSTRUCTIONS"' in daemon.log()
    source = events["cpu/event=0x76,umask=0/pu"]["source"]
    assert source in {"cpu/event=0x76,umask=0/pu", "cpu/event=0x76,umask=0/u", "cpu-clock:u"}


@pytest.mark.privileged
def test_a_pmu_that_only_counts_is_refused_with_the_reason(start_daemon):
    """msr/tsc/ cannot sample; the daemon says so and ends with 78."""
    refused = start_daemon("-e", "msr/tsc/", ready=False)
    if (status := refused.wait_ready()) == 77:
        pytest.skip("perf_event_open is refused here")
    assert status == 78
    if "there is no PMU" in refused.log():
        pytest.skip("this machine has no msr PMU")
    assert "counts but cannot sample" in refused.log()


@pytest.mark.privileged
def test_a_burst_takes_probes_too(daemon, ticks):
    """``opctl record`` counts calls while the daemon goes on."""
    command = [str(BIN / "opctl"), "--endpoint", daemon.endpoint, "record", "--for", "4s"]
    command += ["--event", f"uprobe:{ticks}:tick", "--name", "calls"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as burst:
        while not ((now := daemon.ask("record", "--list")["running"]) and now["progress"]):
            assert burst.poll() is None, burst.stderr.read()
            time.sleep(0.1)
        with told(ticks, 50):
            pass
        burst.communicate(timeout=60)
        assert burst.returncode == 0
    answer = daemon.ask("report", "--session", "calls", "-e", f"uprobe:{ticks}:tick")
    assert answer["total"] == 50

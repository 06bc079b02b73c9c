"""opctl readprofile of a real daemon: beside readprofile(8), beside reports; files; reset."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import time

import pytest

WAIT_S = 60.0
# Nearly always in the kernel, and there in a few functions.
LOAD = """
import os
zero, null = os.open("/dev/zero", 0), os.open("/dev/null", 1)
while True:
    os.write(null, os.read(zero, 65536))
"""


@pytest.fixture(scope="module")
def kernel_bound():
    """A process that copies zeros."""
    with subprocess.Popen([sys.executable, "-c", LOAD]) as process:
        yield process
        process.kill()


@pytest.fixture(scope="module")
def daemon(start_daemon, kernel_bound):
    """Counts the kernel's addresses until there are a thousand."""
    assert kernel_bound.poll() is None
    one = start_daemon("-e", "cpu-clock:999hz", "-x", "profile-hash")
    state = one.ask("status")["features"]["profile_hash"]
    if state["state"] == "unavailable":
        pytest.skip(state["reason"])
    wait_for_ticks(one, 1000)
    yield one
    assert one.stop() == 0


def wait_for_ticks(daemon, ticks):
    """Until the buffer has so many."""
    until = time.monotonic() + WAIT_S
    while daemon.ask("readprofile")["ticks"] < ticks:
        assert time.monotonic() < until
        time.sleep(0.3)


def ticks_by_symbol(answer):
    """Ticks of each name; two functions may have one."""
    found = {}
    for row in answer["rows"]:
        found[row["symbol"]] = found.get(row["symbol"], 0) + row["ticks"]
    return found


def most(counted, n):
    """The names with the most."""
    return sorted(counted, key=counted.get, reverse=True)[:n]


def test_every_tick_is_in_a_row_or_nobodys(daemon):
    """Whole: rows and what has no name are all ticks, and each slot is in its function."""
    answer = daemon.ask("readprofile", "-b")
    assert sum(row["ticks"] for row in answer["rows"]) + answer["unknown"] == answer["ticks"]
    assert (answer["what"], answer["image"]) == ("kernel", "[kernel]")
    assert answer["step"].bit_count() == 1
    assert answer["unknown"] < answer["ticks"] / 20
    for row in answer["rows"]:
        assert sum(one["ticks"] for one in row["bins"]) == row["ticks"]
        first, last = row["bins"][0]["address"], row["bins"][-1]["address"]
        assert row["address"] < first + answer["step"]
        assert last < row["address"] + row["size"]


def test_a_report_of_the_same_samples_agrees(daemon):
    """The same names lead: both are of all samples in the kernel."""
    daemon.ask("dump")
    words = ("--sort", "image,symbol", "--top", "0", "--where", "mode=kernel")
    rows = daemon.ask("report", *words)["rows"]
    reported = {row["symbol"]: row["samples"] for row in rows if row["image"] == "[kernel]"}
    counted = ticks_by_symbol(daemon.ask("readprofile"))
    assert most(reported, 1)[0] in most(counted, 3)
    assert len(set(most(reported, 8)) & set(most(counted, 10))) >= 5
    for name in most(reported, 3):
        assert counted[name] >= reported[name] * 0.9  # it was asked later


def test_readprofile_reads_the_raw_buffer(daemon, tmp_path):
    """util-linux's program, by /proc/kallsyms: the same ticks, the same functions ahead.

    It counts the last slot of each function to what comes behind it, which
    moves functions of one slot; so most, not all, agree.
    """
    program = shutil.which("readprofile") or shutil.which("readprofile", path="/usr/sbin")
    if program is None:
        pytest.skip("readprofile(8) is not installed")
    raw = tmp_path / "profile"
    daemon.opctl("readprofile", "--raw", str(raw))
    words = struct.unpack(f"={raw.stat().st_size // 4}I", raw.read_bytes())
    assert words[0] == daemon.ask("readprofile", "-i")["step"]
    command = [program, "-p", str(raw), "-m", "/proc/kallsyms"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    theirs = {}
    for line in shown.splitlines():
        ticks, name = line.split()[:2]
        theirs[name] = theirs.get(name, 0) + int(ticks)
    total, unknown = theirs.pop("total"), theirs.pop("*unknown*")
    assert abs(total + unknown - sum(words[1:])) <= words[-1]
    of_file = daemon.ask("readprofile", "-p", str(raw))
    assert of_file["ticks"] == sum(words[1:])
    assert len(set(most(theirs, 8)) & set(most(ticks_by_symbol(of_file), 10))) >= 5
    step = subprocess.run([*command, "-i"], capture_output=True, text=True, check=True, timeout=60)
    assert step.stdout == daemon.opctl("readprofile", "-i").stdout


def test_reset_begins_at_nothing(daemon):
    """And goes on counting."""
    before = daemon.ask("readprofile")["ticks"]
    assert daemon.ask("readprofile", "-r") == {"reset": True}
    assert daemon.ask("readprofile")["ticks"] < before
    wait_for_ticks(daemon, 50)


def test_functions_of_a_file(start_daemon, busy):
    """By name, at addresses of the file; all of it is listed with -a."""
    daemon = start_daemon("-e", "cpu-clock:499hz", "-x", f"profile-hash:binary={busy}")
    with subprocess.Popen([busy, "60"], stdout=subprocess.DEVNULL) as process:
        wait_for_ticks(daemon, 100)
        process.kill()
    answer = daemon.ask("readprofile", "-a")
    listed = subprocess.run(["nm", str(busy)], capture_output=True, text=True, check=True).stdout
    symbols = {
        fields[2]: int(fields[0], 16)
        for fields in map(str.split, listed.splitlines())
        if len(fields) == 3 and fields[1] in "tT"
    }
    assert (answer["what"], answer["image"]) == ("binary", str(busy))
    hit = [row for row in answer["rows"] if row["ticks"]]
    assert sum(row["ticks"] for row in hit) >= 100 * 0.9
    assert all(symbols[row["symbol"]] == row["address"] for row in hit)
    assert len(answer["rows"]) > len(hit)
    wrong = daemon.opctl("readprofile", "-m", "/proc/kallsyms", check=False)
    assert wrong.returncode == 2
    assert "--mapfile names a kernel's functions" in wrong.stderr
    assert daemon.stop() == 0


def test_without_the_feature_it_says_so(start_daemon):
    """Nobody asked for it: 2; it cannot run here: 1, with the reason."""
    daemon = start_daemon("-e", "cpu-clock")
    done = daemon.opctl("readprofile", check=False)
    assert (done.returncode, "profile_hash" in done.stderr) == (2, True)
    assert daemon.opctl("readprofile", "-r", check=False).returncode == 2
    assert daemon.stop() == 0
    daemon = start_daemon("-e", "cpu-clock", "-x", "profile-hash:binary=/no/such/program")
    done = daemon.opctl("readprofile", check=False)
    assert (done.returncode, "unavailable: /no/such/program" in done.stderr) == (1, True)
    assert daemon.stop() == 0

"""Real processes, odd and plain, sampled by a real daemon: whose sample, where, in what."""

from __future__ import annotations

import shutil
import subprocess
import time

import pytest

SECONDS = "0.4"
FEWEST = 100  # samples of 0.4 s at 999 Hz, with room for a busy machine


@pytest.fixture(scope="module")
def daemon(start_daemon):
    """One daemon for all of these, quick to sample."""
    daemon = start_daemon("-e", "cpu-clock:999hz")
    yield daemon
    assert daemon.stop() == 0


def run(program, mode):
    """Run the program; the pids it printed."""
    done = subprocess.run([program, mode, SECONDS], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(f"{mode}: refused by this machine")
    assert done.returncode == 0
    return [int(line) for line in done.stdout.split()]


def hits(rows, **wanted):
    """Sum the samples of the rows that match."""
    return sum(
        row["samples"] for row in rows if all(row[key] == value for key, value in wanted.items())
    )


KEYS = ("comm", "pid", "image", "symbol", "mode")


def test_a_plain_program_is_named_in_full(daemon, busy):
    """Comm, pid, path, function and mode of an ordinary program are right."""
    (pid,) = run(busy, "plain")
    rows = daemon.rows(*KEYS)
    wanted = {"comm": "busy", "pid": pid, "image": str(busy), "mode": "user"}
    assert hits(rows, symbol="plain_work", **wanted) > FEWEST


def test_fork_without_exec_keeps_the_image_and_takes_the_new_name(daemon, busy):
    """A child that never execs is attributed by the maps it inherited."""
    _, child = run(busy, "fork")
    rows = daemon.rows(*KEYS)
    assert hits(rows, pid=child, comm="renamed", image=str(busy), symbol="child_work") > FEWEST


def test_a_thread_outlives_its_main_thread(daemon, busy):
    """Samples of a named thread count for its process after the main thread ended."""
    (pid,) = run(busy, "thread")
    rows = daemon.rows(*KEYS)
    assert hits(rows, pid=pid, comm="lonely", image=str(busy), symbol="thread_work") > FEWEST


def test_exec_in_the_same_pid_changes_everything_but_the_pid(daemon, busy):
    """Before and after an exec are told apart by comm and function."""
    (pid,) = set(run(busy, "exec"))
    rows = daemon.rows(*KEYS)
    assert hits(rows, pid=pid, comm="busy", symbol="before_exec_work") > FEWEST
    assert hits(rows, pid=pid, comm="exe", symbol="plain_work") > FEWEST


def test_anonymous_code_is_anon(daemon, busy):
    """Code in anonymous memory is counted under [anon], without a made-up name."""
    (pid,) = run(busy, "anonymous")
    rows = daemon.rows(*KEYS)
    assert hits(rows, pid=pid, image="[anon]") > FEWEST
    assert all(
        row["symbol"] == "[unknown]" or row["symbol"].startswith("[anon]!0x")
        for row in rows
        if row["pid"] == pid and row["image"] == "[anon]"
    )


def test_the_vdso_has_a_name(daemon, busy):
    """Time spent reading the clock is in [vdso], by function."""
    (pid,) = run(busy, "clock")
    rows = [row for row in daemon.rows(*KEYS) if row["pid"] == pid and row["image"] == "[vdso]"]
    assert sum(row["samples"] for row in rows) > FEWEST
    named = sum(row["samples"] for row in rows if "clock_gettime" in row["symbol"])
    assert named > FEWEST // 2


def test_a_memfd_program_is_named(daemon, busy):
    """A program that runs from a memfd has its functions' names."""
    (pid, _) = run(busy, "memfd")
    rows = daemon.rows(*KEYS)
    assert hits(rows, pid=pid, image="/memfd:sealed-program", symbol="plain_work") > FEWEST


def test_a_deleted_program_keeps_its_name(daemon, busy, tmp_path):
    """A program whose file is removed while it runs is named without " (deleted)"."""
    copy = tmp_path / "gone"
    shutil.copy(busy, copy)
    with subprocess.Popen([copy, "plain", SECONDS], stdout=subprocess.PIPE) as process:
        pid = int(process.stdout.readline())
        copy.unlink()
        process.wait()
    rows = daemon.rows(*KEYS)
    assert hits(rows, pid=pid, image=str(copy), symbol="plain_work") > FEWEST


def test_a_program_replaced_on_disk_is_not_misnamed(daemon, busy, tmp_path):
    """Another file that takes the path of a running program lends it no names."""
    copy = tmp_path / "replaced"
    shutil.copy(busy, copy)
    with subprocess.Popen([copy, "plain", SECONDS], stdout=subprocess.PIPE) as process:
        pid = int(process.stdout.readline())
        copy.unlink()
        shutil.copy("/bin/true", copy)
        process.wait()
    rows = daemon.rows(*KEYS)
    assert hits(rows, pid=pid, image=str(copy), symbol="plain_work") > FEWEST


def test_a_program_on_overlayfs_is_named(daemon, busy, tmp_path):
    """The device numbers of an overlay do not match stat's; the program is named all the same."""
    folders = {name: tmp_path / name for name in ("lower", "upper", "work", "merged")}
    for folder in folders.values():
        folder.mkdir()
    shutil.copy(busy, folders["lower"] / "over")
    options = ",".join(f"{name}dir={folders[name]}" for name in ("lower", "upper", "work"))
    mount = ["mount", "-t", "overlay", "overlay", "-o", options, folders["merged"]]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"overlayfs cannot be mounted: {done.stderr.strip()}")
    program = folders["merged"] / "over"
    try:
        (pid,) = run(program, "plain")
        rows = daemon.rows(*KEYS)
    finally:
        subprocess.run(["umount", "-l", folders["merged"]], check=True)
    assert hits(rows, pid=pid, image=str(program), symbol="plain_work") > FEWEST


def test_processes_from_before_the_start_are_named(start_daemon, busy):
    """What already ran when opd started is known from /proc."""
    with subprocess.Popen([busy, "plain", "2"], stdout=subprocess.PIPE) as process:
        pid = int(process.stdout.readline())
        daemon = start_daemon("-e", "cpu-clock:999hz")
        process.wait()
        rows = daemon.rows(*KEYS)
    assert hits(rows, pid=pid, comm="busy", image=str(busy), symbol="plain_work") > FEWEST
    assert daemon.stop() == 0


def test_threads_from_before_the_start_have_their_names(start_daemon, busy):
    """A thread that was named before opd started is called by that name."""
    with subprocess.Popen([busy, "thread", "2"], stdout=subprocess.PIPE) as process:
        pid = int(process.stdout.readline())
        time.sleep(0.3)  # the thread has its name by now
        daemon = start_daemon("-e", "cpu-clock:999hz")
        process.wait()
        rows = daemon.rows(*KEYS)
    assert hits(rows, pid=pid, comm="lonely", symbol="thread_work") > FEWEST
    assert daemon.stop() == 0


def test_weight_is_cpu_time(daemon, busy):
    """The weight of a clock event sums to the CPU time that the process used, in ns."""
    (pid,) = run(busy, "plain")
    weight = sum(row["weight"] for row in daemon.rows("pid") if row["pid"] == pid)
    assert 0.85 * float(SECONDS) < weight / 1e9 < 1.25 * float(SECONDS)


def test_a_fork_storm_is_named(daemon):
    """Processes that live a millisecond have comm, image and function."""
    subprocess.run(["bash", "-c", "for i in $(seq 500); do /bin/true; done"], check=True)
    rows = [row for row in daemon.rows(*KEYS) if row["comm"] == "true" and row["mode"] == "user"]
    total = sum(row["samples"] for row in rows)
    assert total > 0
    assert hits(rows, image="[unknown]") <= total * 0.01
    assert hits(rows, symbol="[unknown]") <= total * 0.05

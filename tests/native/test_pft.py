"""The page-fault test through its wrapper: rows, bins, refusals, workers that are killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from opd_native.errors import NativeError
from opd_native.pft import Backing, FaultRunError, FaultTest, Policy, Prepare, Touch, bin_low
from opd_native.ticks import calibrate, core_ghz

PAGES = 2048


def test_faults_are_the_pages_and_the_kernel_counts_the_same():
    """One fault a page of anonymous memory, by getrusage and by the event."""
    repeat = FaultTest(pages_each=PAGES, workers=2).repeat(count=True)
    for worker in repeat.workers:
        assert worker.minor == PAGES
        assert worker.kernel_faults in (PAGES, -1, -13)
        assert worker.end_ns > worker.start_ns
        assert worker.cpu_ns > 0
    assert repeat.unmap_ns > 0


def test_bins_hold_each_page_once():
    """The histogram of a repeat with latency has all pages; without, none."""
    test = FaultTest(pages_each=PAGES)
    test.repeat(latency=True)
    bins = test.bins()
    assert sum(bins) == PAGES
    test.repeat()
    assert sum(test.bins()) == 0
    assert [bin_low(i) for i in (0, 31, 32, 64, 65)] == [0, 31, 32, 64, 66]


@pytest.mark.parametrize("processes", [False, True])
def test_memory_that_was_forked_faults_again(processes):
    """A write to a page shared with a child copies it: a fault each."""
    test = FaultTest(pages_each=PAGES, workers=2, processes=processes, prepare=Prepare.FORKED)
    assert [worker.minor for worker in test.repeat().workers] == [PAGES, PAGES]


def test_several_pages_a_fault_are_seen():
    """Reads of mapped pages of the page cache: the kernel maps the neighbours too."""
    test = FaultTest(
        pages_each=PAGES,
        backing=Backing.MEMFD,
        shared=True,
        prepare=Prepare.FILLED,
        touch=Touch.READ,
    )
    assert 0 < test.repeat().workers[0].minor < PAGES / 2


def test_what_fails_says_what():
    """The reason names the worker and the call."""
    with pytest.raises(NativeError, match="options of the page-fault test"):
        FaultTest(pages_each=PAGES, lines=65)
    with pytest.raises(NativeError, match="node 5000"):
        FaultTest(pages_each=PAGES, policy=Policy.BIND, nodes=[5000])
    with pytest.raises(FaultRunError, match=r"worker 1: pinning worker 1 to CPU 4000"):
        FaultTest(pages_each=PAGES, workers=2, cpus=[0, 4000]).repeat()
    missing = FaultTest(pages_each=PAGES, backing=Backing.FILE, directory="/nonexistent")
    with pytest.raises(FaultRunError, match="/nonexistent: No such file"):
        missing.repeat()


def test_a_killed_worker_voids_the_repeat():
    """A worker process that is killed is an error that says so, never a rate."""
    test = FaultTest(
        pages_each=PAGES, workers=2, processes=True, prepare=Prepare.USERFAULTFD, delay=60.0
    )
    before = set(_children())

    def kill_the_child() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for pid in set(_children()) - before:
                os.kill(pid, signal.SIGKILL)
                return
            time.sleep(0.0005)

    killer = threading.Thread(target=kill_the_child)
    killer.start()
    try:
        with pytest.raises(FaultRunError) as caught:
            test.repeat()
    finally:
        killer.join()
    if "userfaultfd" in str(caught.value):
        pytest.skip(str(caught.value))
    assert caught.value.killed
    assert "killed by signal 9" in str(caught.value)
    assert set(_children()) == before


def _children() -> list[int]:
    pids = []
    for task in Path("/proc/self/task").iterdir():
        pids += [int(pid) for pid in (task / "children").read_text().split()]
    return pids


def test_the_clock_is_calibrated():
    """Two calibrations agree within what they claim; additions take time."""
    first, second = calibrate(0.02), calibrate(0.02)
    assert first.per_ns == pytest.approx(second.per_ns, rel=first.error + second.error + 1e-3)
    assert core_ghz(1_000_000) > 0

"""CPU time and memory of our own processes, as the kernel counts them."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROC = Path("/proc")
_CPU_CLOCK = 2  # CPUCLOCK_SCHED of a whole process, as glibc's clock_getcpuclockid makes it


def cpu_ns(pid: int) -> int:
    """CPU time of all threads of a live process; 0 when it is gone."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _CPU_CLOCK)
    except OSError:
        return 0


def threads_ns() -> dict[str, int]:
    """CPU time of the live Python threads, by name."""
    clocks: dict[str, int] = {}
    for thread in threading.enumerate():
        if thread.ident is None:
            continue
        try:
            used = time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))
        except OSError:
            continue  # it has just ended
        clocks[thread.name] = clocks.get(thread.name, 0) + used
    return clocks


def native_threads_ns(prefix: str) -> int:
    """CPU time of our threads whose name in the kernel begins with ``prefix``."""
    total = 0
    for task in _PROC.joinpath("self/task").iterdir():
        try:
            if task.joinpath("comm").read_text().startswith(prefix):
                total += int(task.joinpath("schedstat").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            continue  # it has just ended, or the kernel counts no such thing
    return total


# Names of probes' processes, for measuring and for planning (opd.probes.child).
MEASURING = ("opd-probe", "opd-plan")


def descendants(pid: int | None = None) -> Iterator[int]:
    """Give the pids of the live children, and theirs; of us, unless another is named.

    Not those of probes: what they take is no cost of opd, and to ask for the
    memory of a process that measures page faults holds them up.
    """
    pid = os.getpid() if pid is None else pid
    try:
        tasks = list(_PROC.joinpath(str(pid), "task").iterdir())
    except OSError:
        return
    for task in tasks:
        try:
            children = task.joinpath("children").read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            if name_of(child) in MEASURING:
                continue
            yield child
            yield from descendants(child)


def name_of(pid: int) -> str:
    """Give the process's comm, "" when it is gone."""
    try:
        return _PROC.joinpath(str(pid), "comm").read_text().rstrip("\n")
    except OSError:
        return ""


def reaped_ns(pid: int) -> int:
    """CPU time of the children that a process has waited for; to a clock tick."""
    try:
        fields = _PROC.joinpath(str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    # cutime and cstime, fields 16 and 17 of the line.
    ticks = int(fields[13]) + int(fields[14])
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def pss_bytes(pid: int) -> int:
    """Give the proportional set size; 0 when it is gone or not ours to see."""
    return _kib(_PROC.joinpath(str(pid), "smaps_rollup"), "Pss:")


def rss_bytes(pid: int) -> int:
    """Give the resident set size, which costs less to ask than the proportional one."""
    return _kib(_PROC.joinpath(str(pid), "status"), "VmRSS:")


def page_table_bytes(pid: int) -> int:
    """Give the kernel memory of a process's page tables."""
    return _kib(_PROC.joinpath(str(pid), "status"), "VmPTE:")


def _kib(path: Path, name: str) -> int:
    try:
        text = path.read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0

"""CPU and memory of a contender with all its children, those that live a millisecond too.

By a control group of its own where the kernel lets us make one: v1 ``cpuacct``
and ``memory``, or v2. Else by what the process and its children say.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

V1 = Path("/sys/fs/cgroup")
_numbers = itertools.count(1)
_RING = b"[perf_event]"


class Account:
    """One control group, or what stands for it; ``start`` puts a process into it."""

    def __init__(self, name: str) -> None:
        self.name = f"opd-bench-{os.getpid()}-{next(_numbers)}-{name}"
        self._groups = _make_groups(self.name)
        self._started: list[subprocess.Popen[bytes]] = []
        self.prefix: list[str] = []  # put before every command, such as nice

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def exact(self) -> bool:
        """Whether CPU is counted by the kernel for the whole group."""
        return bool(self._groups)

    @property
    def counts_kernel_memory(self) -> bool:
        """Whether the group counts the kernel's memory."""
        return _kernel_file(self._groups) is not None

    def start(self, command: list[str], **popen: object) -> subprocess.Popen[bytes]:
        """Start a command inside: it moves itself there before it becomes the command."""
        join = "".join(f'echo $$ >"{group}/cgroup.procs"; ' for group in self._groups)
        command = [*self.prefix, *command]
        script = ["/bin/sh", "-c", f'{join}exec "$@"', "sh", *command]
        process = subprocess.Popen(script if join else command, **popen)  # type: ignore[call-overload]
        self._started.append(process)
        return process  # type: ignore[no-any-return]

    def cpu_seconds(self) -> float:
        """Give CPU seconds of all that ever ran inside."""
        for group in self._groups:
            usage = group / "cpuacct.usage"
            if usage.exists():
                return int(usage.read_bytes()) / 1e9
            if (group / "cpu.stat").exists():
                words = (group / "cpu.stat").read_text().split()
                return int(words[words.index("usage_usec") + 1]) / 1e6
        return sum(_process_cpu(process.pid) for process in self._started)

    def kernel_bytes(self) -> int | None:
        """Give the kernel's memory for the group: slabs, page tables, stacks; None if unknown."""
        file = _kernel_file(self._groups)
        if file is None:
            return None
        if file.name == "memory.kmem.usage_in_bytes":
            return int(file.read_bytes())
        words = file.read_text().split()
        return int(words[words.index("kernel") + 1])

    def pids(self) -> list[int]:
        """Give the processes inside now."""
        if self._groups:
            with contextlib.suppress(OSError):
                return [int(pid) for pid in (self._groups[0] / "cgroup.procs").read_text().split()]
        found = []
        waiting = [process.pid for process in self._started if process.poll() is None]
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            for path in Path(f"/proc/{pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    waiting += [int(child) for child in path.read_text().split()]
        return found

    def end_all(self) -> None:
        """Kill what runs inside, and reap what was started from here."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._started:
            if process.poll() is None:
                process.kill()  # it may not have joined the group yet
            process.wait()

    def close(self) -> None:
        """Remove the groups; what still runs inside is left to whoever started it."""
        for group in self._groups:
            for _ in range(20):
                try:
                    group.rmdir()
                    break
                except OSError:
                    time.sleep(0.05)


def _make_groups(name: str) -> list[Path]:
    """Make the groups that can be made: both v1 hierarchies, or one of v2, or none."""
    made = []
    for parent in (V1 / "cpuacct", V1 / "memory"):
        if (parent / "cgroup.procs").exists():
            with contextlib.suppress(OSError):
                (parent / name).mkdir()
                made.append(parent / name)
    if made and (made[0] / "cpuacct.usage").exists():
        return made
    for group in made:
        group.rmdir()
    if (V1 / "cgroup.controllers").exists():
        with contextlib.suppress(OSError):
            (V1 / name).mkdir()
            return [V1 / name]
    return []


def _kernel_file(groups: list[Path]) -> Path | None:
    for group in groups:
        for name in ("memory.kmem.usage_in_bytes", "memory.stat"):
            file = group / name
            if file.exists() and (name != "memory.stat" or "kernel " in file.read_text()):
                return file
    return None


def _process_cpu(pid: int) -> float:
    """CPU seconds of one process and the children it waited for."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(word) for word in words[11:15]) / os.sysconf("SC_CLK_TCK")


def pss_bytes(pid: int) -> int:
    """Give the proportional set size of one process; 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    return next(
        (int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:")), 0
    )


def ring_bytes(pid: int) -> int:
    """Give the size of the perf rings that a process maps.

    They are pages of the kernel that neither PSS nor a control group counts.
    """
    total = 0
    try:
        for line in Path(f"/proc/{pid}/maps").read_bytes().splitlines():
            if line.endswith(_RING):
                low, _, high = line.split()[0].partition(b"-")
                total += int(high, 16) - int(low, 16)
    except OSError:
        return 0
    return total


def process_name(pid: int) -> str:
    """Give the comm of a process, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def memory_of(account: Account) -> dict[str, int]:
    """Give ``pss``, ``rings``, ``kernel`` (-1: unknown) and ``total`` in bytes, of all inside."""
    pids = account.pids()
    pss = sum(map(pss_bytes, pids))
    rings = sum(map(ring_bytes, pids))
    kernel = account.kernel_bytes()
    total = pss + rings + (kernel or 0)
    return {
        "pss": pss,
        "rings": rings,
        "kernel": -1 if kernel is None else kernel,
        "total": total,
        "processes": len(pids),
    }

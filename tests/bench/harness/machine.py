"""What machine this is, and whether it is busy with other things while we measure."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUSY_SHARE = 0.15  # of the machine's CPU taken by others: say so


def facts() -> dict[str, Any]:
    """Give what the reader of a figure must know about the machine."""
    return {
        "cpu": _first("/proc/cpuinfo", "model name"),
        "cpus": os.cpu_count() or 1,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "hypervisor": "hypervisor" in _first("/proc/cpuinfo", "flags").split(),
        "core_pmu": Path("/sys/bus/event_source/devices/cpu").exists(),
        "max_sample_rate": _text("/proc/sys/kernel/perf_event_max_sample_rate"),
        "cgroups": "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1 or hybrid",
        "python": platform.python_version(),
        "load": list(os.getloadavg()),
    }


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _first(path: str, key: str) -> str:
    lines = _text(path).splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


@dataclass(frozen=True)
class Moment:
    """Counters of the whole machine at a time, CPU seconds."""

    at: float
    busy: float
    steal: float


def moment() -> Moment:
    """Read /proc/stat."""
    words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    ticks = [int(word) / os.sysconf("SC_CLK_TCK") for word in words]
    # user nice system irq softirq; not idle, iowait, steal, guest (in user)
    busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]
    return Moment(time.monotonic(), busy, ticks[7])


def disturbance(before: Moment, ours_seconds: float) -> dict[str, Any]:
    """Say what others took of the machine since ``before``; ``ours`` is our own CPU."""
    after = moment()
    capacity = max(after.at - before.at, 1e-9) * (os.cpu_count() or 1)
    others = max(0.0, after.busy - before.busy - ours_seconds) / capacity
    steal = (after.steal - before.steal) / capacity
    return {
        "others_share": others,
        "steal_share": steal,
        "load": list(os.getloadavg()),
        "busy": others > BUSY_SHARE or steal > 0.02,
    }

"""The state of the machine that a measurement depends on, before and over a run."""

from __future__ import annotations

import os
import re
import resource
import time
from pathlib import Path
from typing import Any, NamedTuple

_FILE_MOST = 16 << 10
_CPU = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")
_MM = Path("/sys/kernel/mm")


def machine_state() -> dict[str, Any]:
    """What does not change during a run; what this kernel does not tell is not there."""
    from opd.machine import machine_facts

    facts = machine_facts()
    taken = {
        name: facts[name]
        for name in (
            *("host", "kernel", "kernel_build", "architecture", "cpu", "microcode", "hypervisor"),
            *("cpus_online", "cpus_isolated", "memory", "memory_available", "clocksource"),
        )
    }
    governors = {_text(path) for path in _CPU.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    thp = _MM / "transparent_hugepage"
    state = {
        **taken,
        "command_line": facts["kernel_command_line"],
        "boot": _text(Path("/proc/sys/kernel/random/boot_id")),
        "governor": " ".join(sorted(governors)),
        "boost": _text(_CPU / "cpufreq/boost"),
        "smt": _text(_CPU / "smt/control"),
        "thp": _chosen(_text(thp / "enabled")),
        "thp_defrag": _chosen(_text(thp / "defrag")),
        "thp_shmem": _chosen(_text(thp / "shmem_enabled")),
        "hugepages": {
            path.name.removeprefix("hugepages-"): {
                "pages": _text(path / "nr_hugepages"),
                "free": _text(path / "free_hugepages"),
            }
            for path in sorted(_MM.glob("hugepages/hugepages-*"))
        },
        "folios": {
            path.parent.name.removeprefix("hugepages-"): _chosen(_text(path))
            for path in sorted(thp.glob("hugepages-*/enabled"))
        },
        "numa_nodes": len(list(_NODES.glob("node[0-9]*"))),
        "numa_balancing": _text(Path("/proc/sys/kernel/numa_balancing")),
        "swappiness": _text(Path("/proc/sys/vm/swappiness")),
        "overcommit": _text(Path("/proc/sys/vm/overcommit_memory")),
        "rt_runtime_us": _text(Path("/proc/sys/kernel/sched_rt_runtime_us")),
        "aslr": _text(Path("/proc/sys/kernel/randomize_va_space")),
        "load_before": _text(Path("/proc/loadavg")),
    }
    return {name: value for name, value in state.items() if value not in ("", {})}


class Moment(NamedTuple):
    """Counters at a moment: seconds of the clock, of all CPUs, of this process and its children."""

    at: float
    busy: float
    steal: float
    own: float
    counters: dict[str, int]


_STALLED = re.compile(r"^some .*\btotal=(\d+)", re.MULTILINE)
_COUNTED = ("pgfault", "pgmajfault", "thp_fault_alloc", "thp_fault_fallback", "oom_kill", "pswpin")


def moment() -> Moment:
    """Look at the counters now."""
    ticks = os.sysconf("SC_CLK_TCK")
    numbers = [int(n) / ticks for n in _text(Path("/proc/stat")).splitlines()[0].split()[1:]]
    own = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        own += usage.ru_utime + usage.ru_stime
    counters = {}
    for line in _text(Path("/proc/vmstat")).splitlines():
        name, _, count = line.partition(" ")
        if name in _COUNTED:
            counters[name] = int(count)
    for what in ("cpu", "memory", "io"):
        # Time in which some task waited for it, in us.
        if found := _STALLED.search(_text(Path("/proc/pressure") / what)):
            counters[f"{what}_stalled_us"] = int(found[1])
    # user nice system idle iowait irq softirq steal
    busy = sum(numbers[:3]) + sum(numbers[5:7])
    return Moment(time.monotonic(), busy, numbers[7], own, counters)


def over(before: Moment, after: Moment) -> dict[str, Any]:
    """What the machine did between: steal and the load of others, in CPUs."""
    seconds = max(after.at - before.at, 1e-9)
    others = max(0.0, (after.busy - before.busy) - (after.own - before.own))
    return {
        "seconds": round(seconds, 6),
        "steal_cpus": round((after.steal - before.steal) / seconds, 4),
        "other_cpus": round(others / seconds, 4),
        "own_cpus": round((after.own - before.own) / seconds, 4),
        "load_after": _text(Path("/proc/loadavg")),
        "counters": {
            name: count - before.counters.get(name, count) for name, count in after.counters.items()
        },
    }


def _chosen(text: str) -> str:
    """The word in brackets of a file that lists all.

    >>> _chosen("always [madvise] never")
    'madvise'
    """
    begin, end = text.find("["), text.find("]")
    return text[begin + 1 : end] if 0 <= begin < end else text


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_MOST).decode(errors="replace").strip()
    except OSError:
        return ""  # not of this kernel

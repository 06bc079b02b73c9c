"""The CPUs that there may be, and the node of each."""

from __future__ import annotations

from pathlib import Path

from opd.errors import ConfigError
from opd.events.cpus import online_cpus, parse_cpu_list

CPUS_MOST = 8192


def nodes_by_cpu(sysfs: str = "/sys") -> list[int]:
    """The node of each CPU from 0 to the last that may come online; -1: not told."""
    cpus = _listed(Path(sysfs, "devices/system/cpu/possible")) or online_cpus(sysfs=sysfs)
    nodes = [-1] * min(cpus[-1] + 1, CPUS_MOST)
    for place in Path(sysfs, "devices/system/node").glob("node[0-9]*"):
        for cpu in _listed(place / "cpulist"):
            if cpu < len(nodes):
                nodes[cpu] = int(place.name[4:])
    return nodes


def _listed(place: Path) -> tuple[int, ...]:
    try:
        return parse_cpu_list(place.read_text(encoding="ascii"))
    except (OSError, ValueError, ConfigError):
        return ()

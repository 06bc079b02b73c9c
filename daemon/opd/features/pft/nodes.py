"""NUMA nodes of a page-fault test: those there are, their CPUs, where pages came to lie."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from opd.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SYS = Path("/sys")
_NODES = "devices/system/node"


def memory_nodes(sys: Path = _SYS) -> list[int]:
    """The NUMA nodes with memory, ascending; without NUMA node 0."""
    nodes = []
    for place in (sys / _NODES).glob("node[0-9]*"):
        found = re.search(r"MemTotal:\s*(\d+)", (place / "meminfo").read_text(encoding="ascii"))
        if found and int(found[1]):
            nodes.append(int(place.name.removeprefix("node")))
    return sorted(nodes) or [0]


def check_nodes(wanted: tuple[int, ...], sys: Path = _SYS) -> None:
    """UsageError names a node that is not there, and those that are."""
    there = memory_nodes(sys)
    for node in wanted:
        if node not in there:
            names = " ".join(map(str, there))
            raise UsageError(f"no node {node} with memory", hint=f"there are: {names}")


def cpus_on(node: int, cpus: Sequence[int], sys: Path = _SYS) -> list[int]:
    """Those of ``cpus`` that are a node's; a kernel without NUMA has all on node 0."""
    from opd.events.cpus import parse_cpu_list

    place = sys / _NODES / f"node{node}" / "cpulist"
    if not (sys / _NODES).is_dir():
        return list(cpus) if node == 0 else []
    if not place.exists() or not (text := place.read_text(encoding="ascii").strip()):
        return []
    there = set(parse_cpu_list(text, what="cpulist"))
    return [cpu for cpu in cpus if cpu in there]


def check_cpu_node(node: int, cpus: Sequence[int], sys: Path = _SYS) -> None:
    """UsageError: the node has none of the CPUs; it names those that have."""
    if node < 0 or cpus_on(node, cpus, sys):
        return
    numbers = [int(one.name[4:]) for one in (sys / _NODES).glob("node[0-9]*")]
    there = [one for one in sorted(numbers) if cpus_on(one, cpus, sys)]
    raise UsageError(
        f"cpu_node={node}: no such node with CPUs that are allowed",
        hint=f"there are: {' '.join(map(str, there)) or '0'}",
    )


def pages_by_node(lines: Iterable[str]) -> dict[int, int]:
    """Pages by node of lines of numa_maps.

    >>> pages_by_node(["7f00 bind:0 anon=3 N0=2 N1=1 kernelpagesize_kB=4"])
    {0: 2, 1: 1}
    """
    found: dict[int, int] = {}
    for line in lines:
        for node, pages in re.findall(r"\bN(\d+)=(\d+)", line):
            found[int(node)] = found.get(int(node), 0) + int(pages)
    return found

"""Which CPU each thread runs on, and which node each of its chains is on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LOCAL = -1
_FORMS = "local, xor:MASK, add:OFFSET or map:T/C.C;T/C.C"


class Rule(NamedTuple):
    """A placement as asked. ``domains``: of map, a thread's node and its chains' nodes."""

    kind: str
    number: int = 0
    domains: tuple[tuple[int, tuple[int, ...]], ...] = ()


def parse_placement(text: str) -> Rule:
    """Read ``numa=``. Raises ValueError with the forms there are.

    >>> parse_placement("map:0/1.1;1/0")
    Rule(kind='map', number=0, domains=((0, (1, 1)), (1, (0,))))
    """
    kind, _, rest = text.partition(":")
    try:
        if kind == "local" and not rest:
            return Rule("local")
        if kind in {"xor", "add"} and (number := int(rest, 0)) >= 0:
            return Rule(kind, number)
        if kind == "map":
            pairs = [part.split("/") for part in rest.split(";")]
            domains = tuple(
                (int(thread), tuple(int(node) for node in chains.split(".")))
                for thread, chains in pairs
            )
            if all(thread >= 0 and min(nodes) >= 0 for thread, nodes in domains):
                return Rule("map", 0, domains)
    except ValueError:
        pass  # said below, with the forms
    raise ValueError(f"numa={text}: expected {_FORMS}")


def node_cpus(sys: Path = Path("/sys")) -> dict[int, list[int]]:
    """The CPUs of each NUMA node; without NUMA none."""
    from opd.events.cpus import parse_cpu_list

    found = {}
    for place in (sys / "devices/system/node").glob("node[0-9]*"):
        text = (place / "cpulist").read_text(encoding="ascii").strip()
        cpus = list(parse_cpu_list(text, what=place.name)) if text else []
        found[int(place.name.removeprefix("node"))] = cpus
    return found


class Places(NamedTuple):
    """``cpus`` one a thread; ``nodes`` one a chain of each thread, or none at all."""

    cpus: list[int]
    nodes: list[int]


def place(
    rule: Rule, threads: int, chains: int, cpus: Sequence[int], nodes: Mapping[int, Sequence[int]]
) -> Places:
    """Put threads on CPUs and chains on nodes. Raises ValueError: a node that is not there.

    A node of xor beyond those there are is an error too; add wraps around.
    """
    there = sorted(nodes) or [0]
    home = {cpu: node for node, some in nodes.items() for cpu in some}
    if rule.kind == "map":
        if len(rule.domains) != threads:
            raise ValueError(f"numa=map has {len(rule.domains)} threads, threads={threads}")
        on: list[int] = []
        chosen: list[int] = []
        for number, (node, wanted) in enumerate(rule.domains):
            some = [cpu for cpu in nodes.get(node, ()) if cpu in cpus]
            if not some:
                raise ValueError(f"numa: node {node} has none of the CPUs {list(cpus)}")
            if len(wanted) not in {1, chains}:
                raise ValueError(f"numa: thread {number} names {len(wanted)} chains of {chains}")
            on.append(some[sum(home[cpu] == node for cpu in on) % len(some)])
            chosen += list(wanted) * (chains if len(wanted) == 1 else 1)
    else:
        on = [cpus[number % len(cpus)] for number in range(threads)]
        if rule.kind == "local":
            return Places(on, [])
        chosen = []
        for cpu in on:
            at = there.index(home.get(cpu, there[0]))
            moved = at ^ rule.number if rule.kind == "xor" else (at + rule.number) % len(there)
            if moved >= len(there):
                raise ValueError(
                    f"numa=xor:{rule.number} asks for node {moved}; there are:"
                    f" {' '.join(map(str, there))}"
                )
            chosen += [there[moved]] * chains
    if missing := sorted(set(chosen) - set(there)):
        names = " ".join(map(str, there))
        raise ValueError(f"numa: no node {missing[0]}; there are: {names}")
    return Places(on, chosen)

"""Between each two: CPUs that pass a line, nodes and each other's memory."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, NamedTuple

from opd.features.pchase.building import PAGES, SPEED, page_of, places_of, remark
from opd.features.pchase.placement import node_cpus
from opd.features.pft.nodes import memory_nodes
from opd_native.pchase import Chase, Load, pass_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opd.features.pchase.options import ChaseOptions
    from opd.probes.measuring import Measuring

_PASS_ROUNDS = 50_000
CPUS_MOST = 128  # of the matrix between CPUs


def measure_cores(_options: ChaseOptions, run: Measuring) -> None:
    """A line passed between each two CPUs."""
    cpus = run.cpus[:CPUS_MOST]
    if len(cpus) < 2:
        run.void(f"a line is passed between two CPUs, and only {len(cpus)} is allowed")
    if len(cpus) < len(run.cpus):
        run.note(f"the matrix is of the first {len(cpus)} of {len(run.cpus)} CPUs")
    pairs = list(itertools.combinations(range(len(cpus)), 2))
    matrix: list[list[float | None]] = [[None] * len(cpus) for _ in cpus]
    for done, (a, b) in enumerate(pairs):
        # Of five the least: what disturbs makes it longer, never shorter.
        ns = min(pass_line(cpus[a], cpus[b], _PASS_ROUNDS) for _ in range(5))
        matrix[a][b] = matrix[b][a] = ns
        run.sample("pass_ns", ns, repeat=done)
        run.progress(done + 1, len(pairs))
    run.detail("cores", {"cpus": list(cpus), "ns": matrix, "cores": os.cpu_count()})
    found = [ns for row in matrix for ns in row if ns is not None]
    run.stats({"last_pass_ns_least": min(found), "last_pass_ns_most": max(found)})


class Nodes(NamedTuple):
    """From which nodes memory is asked for, each by one CPU of it, and on which it is."""

    from_cpus: dict[int, int]
    to: list[int]


def nodes_of(
    cpus: Sequence[int], home: Mapping[int, Sequence[int]], memory: Sequence[int]
) -> Nodes:
    """The matrix's sides; a node without CPUs that may be used is only asked, never asks.

    A kernel without NUMA has node 0.
    """
    from_cpus = {}
    for node, some in sorted(home.items()):
        allowed = [cpu for cpu in some if cpu in cpus]
        if allowed:
            from_cpus[node] = allowed[0]
    return Nodes(from_cpus or {0: cpus[0]}, sorted(memory) or [0])


def is_bound(nodes: Nodes) -> bool:
    """Whether memory has to be bound to have it on one of them."""
    return len(nodes.to) > 1 or len(nodes.from_cpus) > 1


def nodes_bound(options: ChaseOptions, cpus: Sequence[int]) -> list[int]:
    """The nodes that memory is bound to by system calls. Raises ValueError as ``place`` does."""
    placed = places_of(options, cpus)
    if options.mode == "chase":
        return sorted(set(placed.nodes))
    if options.mode != "numa":
        return []
    nodes = nodes_of(cpus, node_cpus(), memory_nodes())
    return nodes.to if is_bound(nodes) else []


def measure_numa(options: ChaseOptions, run: Measuring) -> None:
    """Latency, and bandwidth of reads by all the node's CPUs, from each node to each."""
    home = node_cpus()
    nodes = nodes_of(run.cpus, home, memory_nodes())
    cells = list(itertools.product(nodes.from_cpus, nodes.to))
    bind = is_bound(nodes)
    latency: dict[tuple[int, int], list[float]] = {}
    bandwidth: dict[tuple[int, int], list[float]] = {}
    for done, (here, there) in enumerate(cells):
        cpu = nodes.from_cpus[here]
        chase = Chase(
            chain=options.chain,
            line=options.line,
            page=page_of(options, options.chain),
            pages=PAGES[options.mmu_page],
            seconds=options.seconds,
            cpus=[cpu],
            chain_nodes=[there] if bind else (),
            seed=options.seed,
            at_speed=SPEED.is_up([cpu]),
        )
        readers = [one for one in home.get(here, run.cpus) if one in run.cpus] or [cpu]
        readers = readers[: options.threads] if options.threads > 1 else readers
        streams = Chase(
            threads=0,
            loaders=len(readers),
            load=Load.READ,
            load_bytes=options.load_memory,
            load_node=there if bind else -1,
            pages=PAGES[options.mmu_page],
            seconds=options.seconds,
            cpus=readers,
            at_speed=SPEED.is_up(readers),
        )
        for index in range(options.experiments):
            (row,) = chase.run()
            rows = streams.run()
            ns = row.cpu_ns / row.steps
            rate = sum(one.bytes / one.ns for one in rows) * 1e9
            latency.setdefault((here, there), []).append(ns)
            bandwidth.setdefault((here, there), []).append(rate)
            near = here == there
            run.sample("latency_ns" if near else "remote_ns", ns, repeat=index)
            run.sample(
                "bandwidth_bytes_per_second" if near else "remote_bytes_per_second",
                rate,
                repeat=index,
            )
            remark([row, *rows], run)
        chase.close()
        streams.close()
        run.progress(done + 1, len(cells))
    if not bind:
        run.note("one NUMA node: the matrix has one cell, and no memory is remote")
    run.detail("numa", _matrix(nodes, latency, bandwidth))
    run.stats({"last_nodes": len(nodes.to)})


def _matrix(
    nodes: Nodes,
    latency: Mapping[tuple[int, int], Sequence[float]],
    bandwidth: Mapping[tuple[int, int], Sequence[float]],
) -> dict[str, object]:
    """Medians, a row for each node that asks."""
    from opd.stats.distribution import median

    def table(of: Mapping[tuple[int, int], Sequence[float]]) -> list[list[float]]:
        return [[median(of[here, there]) for there in nodes.to] for here in nodes.from_cpus]

    return {
        "from": list(nodes.from_cpus),
        "from_cpus": list(nodes.from_cpus.values()),
        "to": nodes.to,
        "ns": table(latency),
        "bytes_per_second": table(bandwidth),
    }

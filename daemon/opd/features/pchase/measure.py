"""The pointer chase in the probe's process."""

from __future__ import annotations

import functools
import itertools
import math
import os
import time
from typing import TYPE_CHECKING, Any

from opd.features.pchase.levels import find_levels, sweep, sysfs_caches
from opd.features.pchase.placement import node_cpus, parse_placement, place
from opd_native.errors import NativeError
from opd_native.pchase import Access, Chase, ChaseError, Hint, Load, MmuPages, pass_line
from opd_native.ticks import calibrate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.features.pchase.options import ChaseOptions
    from opd.features.pchase.placement import Places
    from opd.probes.measuring import Measuring
    from opd_native.pchase import Row
    from opd_native.ticks import TicksRate

PAGES = {
    "4k": MmuPages.BASE,
    "thp": MmuPages.THP,
    "2m": MmuPages.HUGETLB_2M,
    "1g": MmuPages.HUGETLB_1G,
}
_CURVE_LEAST = 4096
_CURVE_SECONDS = 0.05
_PASS_ROUNDS = 50_000
_IDLE_MOST = 1.0  # seconds: a core idle for longer may have slowed down
_CPUS_MOST = 128  # of the matrix between CPUs


def places_of(options: ChaseOptions, cpus: Sequence[int]) -> Places:
    """Where threads and chains go. Raises ValueError."""
    rule = parse_placement(options.numa)
    return place(rule, options.threads, options.chains, cpus, node_cpus())


def measure(options: ChaseOptions, run: Measuring) -> None:
    """One measurement in the mode asked for."""
    modes = {"chase": _chase, "curve": _curve, "bandwidth": _bandwidth, "cores": _cores}
    try:
        modes[options.mode](options, run)
    except ChaseError as error:
        run.void(error.reason)
    except NativeError as error:
        run.void(str(error))


@functools.cache
def _rate() -> TicksRate:
    """The TSC's, once a process."""
    return calibrate()


class _Speed:
    """Which CPUs this process kept busy a moment ago: their clocks have risen already."""

    def __init__(self) -> None:
        self._busy_until: dict[int, float] = {}

    def is_up(self, cpus: Sequence[int]) -> bool:
        """Whether all are; from now on they are taken to be."""
        now = time.monotonic()
        up = all(now - self._busy_until.get(cpu, -math.inf) < _IDLE_MOST for cpu in cpus)
        self.used(cpus)
        return up

    def used(self, cpus: Sequence[int]) -> None:
        """They were busy until now."""
        self._busy_until.update(dict.fromkeys(cpus, time.monotonic()))


_speed = _Speed()


def _built(options: ChaseOptions, run: Measuring) -> Chase:
    chosen = places_of(options, run.cpus)
    beside = [run.cpus[(options.threads + i) % len(run.cpus)] for i in range(options.loaders)]
    return Chase(
        chain=options.chain,
        line=options.line,
        page=options.model_page,
        access=Access[options.access.upper()],
        stride=options.stride,
        chains=options.chains,
        threads=options.threads,
        pages=PAGES[options.mmu_page],
        hint=Hint[options.hint.upper()],
        work=options.work,
        iterations=options.iterations,
        seconds=options.seconds,
        laps=options.laps,
        loaders=options.loaders,
        load=Load[options.load.upper()],
        load_bytes=options.load_memory if options.loaders else 0,
        load_delay=options.load_delay,
        cpus=[*chosen.cpus, *beside] if options.pin else (),
        chain_nodes=chosen.nodes,
        seed=options.seed,
        at_speed=_speed.is_up(run.cpus),
    )


def _chase(options: ChaseOptions, run: Measuring) -> None:
    rate = _rate()
    if not rate.invariant:
        run.note("the TSC is not said to be invariant; times are CLOCK_MONOTONIC_RAW's")
    chase = _built(options, run)
    facts = chase.facts()
    run.detail("chain", facts._asdict() | {"single_cycle": True, "ticks_per_ns": rate.per_ns})
    if options.mmu_page == "thp" and facts.huge_bytes < facts.bytes * 0.99:
        run.note(f"huge pages were obtained for {100 * facts.huge_bytes / facts.bytes:.0f} %")
    if not facts.compiled:
        run.note("the loop is the compiler's: code made at run time is not possible here")
    experiments = []
    for index in range(options.experiments):
        rows = chase.run()
        chasers, loaders = rows[: options.threads], rows[options.threads :]
        experiments.append(_tell(options, chasers, loaders, index, run))
        run.progress(index + 1, options.experiments)
    run.detail("experiments", experiments)
    chase.close()
    _speed.used(run.cpus)


def _tell(
    options: ChaseOptions, chasers: list[Row], loaders: list[Row], index: int, run: Measuring
) -> dict[str, Any]:
    # A latency is of the CPU's time: a thread that waited for a CPU waited for
    # no memory. A bandwidth is of the clock's.
    latency = sum(row.cpu_ns for row in chasers) / sum(row.steps for row in chasers)
    lines = sum(row.steps / row.ns for row in chasers) * 1e9 * options.chains
    run.sample("latency_ns", latency, repeat=index)
    run.sample("ns_per_load", latency / options.chains, repeat=index)
    run.sample("bandwidth_bytes_per_second", lines * options.line, repeat=index)
    if loaders:
        run.sample(
            "load_bytes_per_second",
            sum(row.bytes / row.ns for row in loaders) * 1e9,
            repeat=index,
        )
    for number, row in enumerate(chasers if len(chasers) > 1 else ()):
        run.sample("latency_ns", row.cpu_ns / row.steps, repeat=index, worker=number)
    _remark(chasers + loaders, run)
    return {
        "elapsed_seconds": max(row.ns for row in chasers) / 1e9,
        "elapsed_ticks": max(row.ticks for row in chasers),
        "steps": [row.steps for row in chasers],
        "latency_ns": latency,
        "bandwidth_bytes_per_second": lines * options.line,
        "core_ghz": [round(row.ghz, 3) for row in chasers],
    }


def _remark(rows: list[Row], run: Measuring) -> None:
    if any(row.cpu_ns < 0.95 * row.ns for row in rows):
        run.note("other processes had the CPU for more than 5 % of the time")
    if any(row.moved for row in rows):
        run.note("a thread moved to another CPU")


def _bandwidth(options: ChaseOptions, run: Measuring) -> None:
    streams = Chase(
        threads=0,
        loaders=options.threads,
        load=Load[options.load.upper()],
        load_bytes=options.load_memory,
        load_delay=options.load_delay,
        pages=PAGES[options.mmu_page],
        seconds=options.seconds,
        cpus=[run.cpus[i % len(run.cpus)] for i in range(options.threads)] if options.pin else (),
        at_speed=_speed.is_up(run.cpus),
    )
    streams.run()  # the first is not counted: it warms up
    # A store to the cache reads its line first; one past the cache does not.
    more = {"write": 2.0, "copy": 1.5, "triad": 4 / 3}.get(options.load, 1.0)
    for index in range(options.experiments):
        rows = streams.run()
        rate = sum(row.bytes / row.ns for row in rows) * 1e9
        run.sample("bandwidth_bytes_per_second", rate, repeat=index)
        run.sample("bus_bytes_per_second", rate * more, repeat=index)
        _remark(rows, run)
        run.progress(index + 1, options.experiments)
    streams.close()


def _curve(options: ChaseOptions, run: Measuring) -> None:
    seconds = min(options.seconds, _CURVE_SECONDS)
    largest = options.chain
    said = sysfs_caches(run.cpus[0])

    def latency(size: int) -> float:
        chase = Chase(
            chain=size,
            line=options.line,
            page=_page_of(options, size),
            pages=PAGES[options.mmu_page],
            seconds=seconds,
            cpus=run.cpus[:1],
            seed=options.seed,
            at_speed=_speed.is_up(run.cpus[:1]),
        )
        # Of three the least: what disturbs makes it longer, never shorter.
        least = min(row.cpu_ns / row.steps for row in (chase.run()[0] for _ in range(3)))
        chase.close()
        run.progress(min(size, largest), largest)
        return least

    curve = sweep(_CURVE_LEAST, largest, latency)
    levels = find_levels(curve)
    run.detail("curve", {"bytes": [size for size, _ns in curve], "ns": [ns for _size, ns in curve]})
    run.detail("levels", [level._asdict() for level in levels])
    run.detail("sysfs_caches", [{"level": level, "bytes": size} for level, size in said])
    for index, ((level, size), found) in enumerate(zip(said, levels, strict=False)):
        if found.bytes is None or not 0.5 < found.bytes / size < 2:
            seen = "no end" if found.bytes is None else f"{found.bytes / 1024:.0f} KiB"
            run.note(f"L{level} is {size >> 10} KiB by sysfs, and {seen} by the curve")
        run.sample(f"l{index + 1}_ns", found.ns) if index < 3 else None
    if levels:
        run.sample("latency_ns", curve[-1][1])


def _page_of(options: ChaseOptions, size: int) -> int:
    """The model's page, where the size is no multiple of it a smaller one that fits."""
    page = min(options.page or size, size)
    return page if size % page == 0 else 4096 if size % 4096 == 0 else 1024


def _cores(_options: ChaseOptions, run: Measuring) -> None:
    cpus = run.cpus[:_CPUS_MOST]
    if len(cpus) < 2:
        run.void(f"a line is passed between two CPUs, and only {len(cpus)} is allowed")
    if len(cpus) < len(run.cpus):
        run.note(f"the matrix is of the first {len(cpus)} of {len(run.cpus)} CPUs")
    pairs = list(itertools.combinations(range(len(cpus)), 2))
    matrix: list[list[float | None]] = [[None] * len(cpus) for _ in cpus]
    for done, (a, b) in enumerate(pairs):
        # Of five the least, as for the curve.
        ns = min(pass_line(cpus[a], cpus[b], _PASS_ROUNDS) for _ in range(5))
        matrix[a][b] = matrix[b][a] = ns
        run.sample("pass_ns", ns, repeat=done)
        run.progress(done + 1, len(pairs))
    run.detail("cores", {"cpus": list(cpus), "ns": matrix, "cores": os.cpu_count()})

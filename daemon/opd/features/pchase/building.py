"""What the modes of the pointer chase share: how chains are built, and what is said of rows."""

from __future__ import annotations

import functools
import math
import time
from typing import TYPE_CHECKING

from opd.features.pchase.placement import node_cpus, parse_placement, place
from opd_native.pchase import Access, Chase, Hint, Load, MmuPages, Vector
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
VECTORS = {"auto": Vector.AUTO, "16": Vector.V16, "32": Vector.V32, "64": Vector.V64}
_IDLE_MOST = 1.0  # seconds: a core idle for longer may have slowed down


def places_of(options: ChaseOptions, cpus: Sequence[int]) -> Places:
    """Where threads and chains go. Raises ValueError."""
    rule = parse_placement(options.numa)
    return place(rule, options.threads, options.chains, cpus, node_cpus())


@functools.cache
def ticks_rate() -> TicksRate:
    """The TSC's, against CLOCK_MONOTONIC_RAW, once a process."""
    return calibrate()


class Speed:
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


SPEED = Speed()


def built(options: ChaseOptions, run: Measuring) -> Chase:
    """The chains (and streams) as asked. Raises ChaseError."""
    chosen = places_of(options, run.cpus)
    beside = [run.cpus[(options.threads + i) % len(run.cpus)] for i in range(options.loaders)]
    cpus = [*chosen.cpus, *beside]
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
        ahead=options.ahead,
        vector=VECTORS[options.vector],
        loaders=options.loaders,
        load=Load[options.load.upper()],
        load_bytes=options.load_memory if options.loaders else 0,
        load_delay=options.load_delay,
        cpus=cpus if options.pin else (),
        chain_nodes=chosen.nodes,
        seed=options.seed,
        at_speed=SPEED.is_up(cpus),
    )


def page_of(options: ChaseOptions, size: int, page: int = 0) -> int:
    """The model's page for a chain of ``size``: as asked (or ``page``), else one that fits."""
    page = min(page or options.page or size, size)
    fitting = (one for one in (page, 4096) if one % options.line == 0 and size % one == 0)
    return next(fitting, options.line)


def rounded(options: ChaseOptions, size: int) -> int:
    """A chain of about that size, that holds whole pages of 4 KiB or, below, whole lines."""
    unit = 4096 if size >= 4096 and 4096 % options.line == 0 else options.line
    return max(unit, size // unit * unit)


def remark(rows: list[Row], run: Measuring) -> None:
    """Say of rows what a reader must know."""
    if any(row.cpu_ns < 0.95 * row.ns for row in rows):
        run.note("other processes had the CPU for more than 5 % of the time")
    if any(row.moved for row in rows):
        run.note("a thread moved to another CPU")


def remark_huge(chase: Chase, run: Measuring) -> float:
    """Say how much is in huge pages, unless all is; the share."""
    facts = chase.facts()
    share = facts.huge_bytes / facts.bytes
    if share < 0.99:
        run.note(f"huge pages were obtained for {100 * share:.0f} %")
    return share

"""Modes that look for something themselves: cache levels, what a TLB miss costs, parallelism."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.features.pchase.building import PAGES, SPEED, page_of, remark, remark_huge, rounded
from opd.features.pchase.levels import find_levels, sweep, sysfs_caches
from opd.stats.distribution import median
from opd_native.pchase import CHAINS_MOST, Chase, MmuPages

if TYPE_CHECKING:
    from opd.features.pchase.options import ChaseOptions
    from opd.probes.measuring import Measuring

_CURVE_LEAST = 4096
_SECONDS_MOST = 0.05  # of one point
_LEVELS = ("l1_ns", "l2_ns", "l3_ns")
# As many pages as first-level TLBs hold and more.
LOCAL_PAGE = 256 << 10
_CHAINS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, CHAINS_MOST)
_NEAR = 1.05  # of the best: more chains than these gain no more


def measure_curve(options: ChaseOptions, run: Measuring) -> None:
    """Latency by size up to ``chain``, and the caches that it shows."""
    cpus = run.cpus[:1]
    speeds: list[float] = []

    def latency(size: int) -> float:
        size = rounded(options, size)
        chase = Chase(
            chain=size,
            line=options.line,
            page=page_of(options, size),
            pages=PAGES[options.mmu_page],
            seconds=min(options.seconds, _SECONDS_MOST),
            cpus=cpus,
            seed=options.seed,
            laps=options.laps,
            at_speed=SPEED.is_up(cpus),
        )
        # Of three the least: what disturbs makes it longer, never shorter.
        rows = [chase.run()[0] for _ in range(3)]
        chase.close()
        SPEED.used(cpus)
        speeds.extend(row.ghz for row in rows)
        run.progress(min(size, options.chain), options.chain)
        return min(row.cpu_ns / row.steps for row in rows)

    curve = sweep(min(_CURVE_LEAST, options.chain), options.chain, latency)
    levels = find_levels(curve)
    ghz = median(speeds)
    said = sysfs_caches(cpus[0])
    run.detail("curve", {"bytes": [size for size, _ns in curve], "ns": [ns for _size, ns in curve]})
    run.detail("levels", [level._asdict() | {"cycles": level.ns * ghz} for level in levels])
    run.detail("sysfs_caches", [{"level": level, "bytes": size} for level, size in said])
    run.detail("core_ghz", ghz)
    for (level, size), found in zip(said, levels, strict=False):
        if found.bytes is None or not 0.5 < found.bytes / size < 2:
            seen = "no end" if found.bytes is None else f"{found.bytes / 1024:.0f} KiB"
            run.note(f"L{level} is {size >> 10} KiB by sysfs, and {seen} by the curve")
    for name, found in zip(_LEVELS, levels, strict=False):
        run.sample(name, found.ns)
    if levels:
        run.sample("latency_ns", curve[-1][1])
    stats: dict[str, int | float | str] = {"last_levels": len(levels)}
    for at, found in enumerate(levels[:-1], 1):
        stats |= {f"last_l{at}_bytes": round(found.bytes or 0), f"last_l{at}_ns": found.ns}
    run.stats(stats)


def measure_tlb(options: ChaseOptions, run: Measuring) -> None:
    """Random lines of all the chain, against those of 64 pages at a time, and in huge pages."""
    chain = rounded(options, options.chain)
    huge_pages = MmuPages.THP if options.mmu_page == "4k" else PAGES[options.mmu_page]
    cpus = run.cpus[:1]

    def built(page: int, pages: MmuPages) -> Chase:
        return Chase(
            chain=chain,
            line=options.line,
            page=page_of(options, chain, page),
            pages=pages,
            seconds=options.seconds,
            cpus=cpus,
            seed=options.seed,
            laps=options.laps,
            at_speed=SPEED.is_up(cpus),
        )

    local = built(LOCAL_PAGE, MmuPages.BASE)
    everywhere = built(chain, MmuPages.BASE)
    huge = built(chain, huge_pages)
    share = remark_huge(huge, run)
    for index in range(options.experiments):
        told = {}
        for name, chase in (("local", local), ("random", everywhere), ("huge", huge)):
            (row,) = chase.run()
            told[name] = row.cpu_ns / row.steps
            remark([row], run)
        run.sample("latency_ns", told["random"], repeat=index)
        run.sample("local_ns", told["local"], repeat=index)
        run.sample("tlb_ns", told["random"] - told["local"], repeat=index)
        if share >= 0.5:
            run.sample("huge_ns", told["huge"], repeat=index)
            run.sample("huge_tlb_ns", told["huge"] - told["local"], repeat=index)
        run.progress(index + 1, options.experiments)
    for chase in (local, everywhere, huge):
        chase.close()
    run.detail("tlb", {"chain": chain, "local_page": LOCAL_PAGE, "huge_share": share})
    run.stats({"last_chain": chain, "last_huge_share": round(share, 4)})


def measure_parallel(options: ChaseOptions, run: Measuring) -> None:
    """One chain to as many as there can be, of ``chain`` bytes together."""
    cpus = run.cpus[:1]
    least = max(options.line, 4096)
    counts = [count for count in _CHAINS if count == 1 or options.chain // count >= least]
    loads: list[list[float]] = []
    for count in counts:
        size = rounded(options, options.chain // count)
        chase = Chase(
            chain=size,
            line=options.line,
            page=page_of(options, size),
            pages=PAGES[options.mmu_page],
            chains=count,
            seconds=min(options.seconds, _SECONDS_MOST),
            cpus=cpus,
            seed=options.seed,
            laps=options.laps,
            at_speed=SPEED.is_up(cpus),
        )
        rows = [chase.run()[0] for _ in range(options.experiments)]
        chase.close()
        SPEED.used(cpus)
        remark(rows, run)
        loads.append([row.cpu_ns / row.steps / count for row in rows])
        run.progress(len(loads), len(counts))
    middles = [median(values) for values in loads]
    best = min(middles)
    enough = next(count for count, ns in zip(counts, middles, strict=True) if ns <= best * _NEAR)
    for index in range(options.experiments):
        shortest = min(values[index] for values in loads)
        run.sample("latency_ns", loads[0][index], repeat=index)
        run.sample("ns_per_load", shortest, repeat=index)
        run.sample("parallelism", loads[0][index] / shortest, repeat=index)
        run.sample("bandwidth_bytes_per_second", options.line / shortest * 1e9, repeat=index)
    run.detail("parallel", {"chains": counts, "ns_per_load": middles, "enough": enough})
    run.stats({"last_chains_enough": enough, "last_parallelism": middles[0] / best})

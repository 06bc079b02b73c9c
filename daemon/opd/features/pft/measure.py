"""The page-fault test in the probe's process: repeats made, samples told."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from opd.features.pft.kinds import HUGETLB, KINDS
from opd.features.pft.nodes import cpus_on
from opd.features.pft.remarks import check_count, remark, remark_nodes, remark_still, still_ns
from opd_native.pft import FaultRunError, FaultTest, Policy, Touch, bin_low
from opd_native.ticks import calibrate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.features.pft.options import PftOptions
    from opd.probes.measuring import Measuring
    from opd_native.pft import Repeat

_PAGE = os.sysconf("SC_PAGESIZE")
_QUANTILES = (("latency_p50_ns", 0.5), ("latency_p99_ns", 0.99), ("latency_p999_ns", 0.999))
_ROWS_MOST = 5000  # of details, which are bounded
_TAIL_PAGES = 1000  # a 99.9th percentile of fewer says nothing
# Memory that this process has warmed up already, by kind.
_warmed: dict[str, int] = {}


def line_bytes(options: PftOptions) -> int:
    """The cache line: as asked, as the CPU says, or 64."""
    name = "SC_LEVEL1_DCACHE_LINESIZE"
    said = os.sysconf(name) if name in os.sysconf_names else 0
    return options.line or (said if said > 0 else 64)


def fault_test(options: PftOptions, cpus: Sequence[int], *, pages_each: int = 0) -> FaultTest:
    """The native test of these options. ``pages_each``: instead of theirs. NativeError."""
    kind = KINDS[options.kind]
    touch = kind.touch
    if options.mlock:
        touch = Touch.MLOCK
    elif options.clear:
        touch = Touch.CLEAR
    if options.cpu_node >= 0:
        cpus = cpus_on(options.cpu_node, cpus)
    first = options.cpu_offset % len(cpus) if cpus else 0
    return FaultTest(
        pages_each=pages_each or options.pages_each(os.sysconf("SC_PAGESIZE")),
        workers=options.workers if not pages_each else 1,
        processes=bool(options.processes),
        backing=kind.backing,
        pages=kind.pages,
        prepare=kind.prepare,
        touch=touch,
        shared=kind.shared,
        # Pages of hugetlb are reserved for the process that maps them.
        multimap=options.multimap or (bool(options.processes) and kind.pages in HUGETLB),
        packed=options.packed,
        lines=options.cachelines,
        line_bytes=line_bytes(options),
        policy=None if options.policy == "none" else Policy[options.policy.upper()],
        nodes=options.wanted_nodes,
        shm_lock=options.shm_lock,
        fifo=options.fifo,
        whole_self=options.rusage == "self",
        cpus=[*cpus[first:], *cpus[:first]] if options.pin else (),
        delay=options.delay,
        pause=options.pause,
        directory=options.directory,
    )


def measure(options: PftOptions, run: Measuring) -> None:
    """All repeats of one measurement."""
    test = fault_test(options, run.cpus)
    pages = options.pages_each(os.sysconf("SC_PAGESIZE")) * options.workers
    warmups = options.warmup
    if _warmed.get(options.kind, 0) >= pages:
        warmups = 0
    total = warmups + options.repeats + options.latency
    try:
        for index in range(warmups):
            last = index == warmups - 1
            warmed = test.repeat(count=last)
            if last:
                check_count(options, warmed, run)
            run.progress(index + 1, total)
        _warmed[options.kind] = max(_warmed.get(options.kind, 0), pages)
        rows = []
        for index in range(options.repeats):
            last = index == options.repeats - 1
            repeat = test.repeat(place=options.numa and last, pause=options.pause > 0 and last)
            rows.append(_tell(options, repeat, pages, index, run))
            run.progress(warmups + index + 1, total)
        if options.numa:
            remark_nodes(options, test.placement(), run)
        remark_still(options, rows, run)
        run.stats(_own(options, rows, pages))
        if options.latency:
            _latency(options, test, run)
    except FaultRunError as error:
        run.void(error.reason)
    if len(rows) > _ROWS_MOST:
        run.note(f"details are of the first {_ROWS_MOST} repeats; samples of all of them are kept")
    run.detail("repeats", rows[:_ROWS_MOST])


def _own(
    options: PftOptions, rows: Sequence[dict[str, Any]], pages: int
) -> dict[str, int | float | str]:
    """What ``opctl stats pft`` says of the last run beside its metrics."""
    from opd.probes.plan import changed_text

    sums = {
        name: sum(row[name] for row in rows)
        for name in ("cpu_seconds", "wall_seconds", "system_seconds", "faults_measured")
    }
    cpu, wall = sums["cpu_seconds"], sums["wall_seconds"]
    touched = pages * len(rows)
    return {
        "last_options": changed_text(options) or "as they are",
        "last_faults": sums["faults_measured"],
        "last_faults_per_page": round(sums["faults_measured"] / touched, 6),
        "last_major_faults": sum(row["faults_major"] for row in rows),
        "last_bytes_per_wall_second": round(touched * _PAGE / wall),
        "last_system_share": round(min(sums["system_seconds"] / cpu, 1.0), 4),
        "last_cpus_used": round(cpu / wall, 3),
        "last_huge_bytes": max(row["huge_bytes"] for row in rows),
        "last_switches": sum(row["switches"] for row in rows),
    }


def _tell(
    options: PftOptions, repeat: Repeat, pages: int, index: int, run: Measuring
) -> dict[str, Any]:
    workers = repeat.workers
    # Usage of the whole process holds the others' too: the latest has all.
    whole = options.rusage == "self" and not options.processes
    counted = [max(workers, key=lambda worker: worker.end_ns)] if whole else workers
    faults = sum(worker.minor + worker.major for worker in counted)
    wall = (max(w.end_ns for w in workers) - min(w.start_ns for w in workers)) / 1e9
    cpu = sum(worker.cpu_ns for worker in workers) / 1e9
    if cpu <= 0 or wall <= 0:
        run.void(f"the loop took no time: {pages} pages are too few for this clock")
    samples = {
        "faults_per_cpu_second": faults / cpu,
        "faults_per_wall_second": faults / wall,
        "pages_per_cpu_second": pages / cpu,
        "pages_per_wall_second": pages / wall,
        "ns_per_page": cpu * 1e9 / pages,
        "faults_measured": faults,
        "pages": pages,
    }
    if faults:
        samples["ns_per_fault"] = cpu * 1e9 / faults
    if repeat.unmap_ns:
        samples["unmap_ns_per_page"] = repeat.unmap_ns / pages
    for name, value in samples.items():
        run.sample(name, value, repeat=index)
    for number, worker in enumerate(workers):
        seconds = worker.cpu_ns / 1e9
        if seconds > 0 and len(workers) > 1 and not whole:
            run.sample(
                "faults_per_cpu_second",
                (worker.minor + worker.major) / seconds,
                repeat=index,
                worker=number,
            )
    remark(options, repeat, pages, faults, run)
    return {
        "user_seconds": sum(worker.user_us for worker in counted) / 1e6,
        "system_seconds": sum(worker.system_us for worker in counted) / 1e6,
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "faults_measured": faults,
        "faults_major": sum(worker.major for worker in counted),
        "huge_bytes": sum(worker.huge_bytes for worker in workers),
        "switches": sum(worker.switches for worker in workers),
        "still_seconds": max(map(still_ns, workers)) / 1e9,
    }


def _latency(options: PftOptions, test: FaultTest, run: Measuring) -> None:
    if KINDS[options.kind].touch >= Touch.MLOCK or options.mlock:
        run.note("no latencies: one call is for all pages")
        return
    per_ns = calibrate(0.02).per_ns
    test.repeat(latency=True)
    bins = test.bins()
    count = sum(bins)
    for name, quantile in _QUANTILES:
        if count >= _TAIL_PAGES or quantile < 0.999:
            run.sample(name, quantile_of(bins, quantile) / per_ns)
    run.detail(
        "latency",
        {
            "unit": "ns",
            "from": [bin_low(i) / per_ns for i, n in enumerate(bins) if n],
            "to": [bin_low(i + 1) / per_ns for i, n in enumerate(bins) if n],
            "pages": [n for n in bins if n],
        },
    )


def quantile_of(bins: Sequence[int], quantile: float) -> float:
    """The value in ticks below which that share lies, even within its bin."""
    want = quantile * sum(bins)
    seen = 0.0
    for index, number in enumerate(bins):
        if number and seen + number >= want:
            low, high = bin_low(index), bin_low(index + 1)
            return low + (high - low) * (want - seen) / number
        seen += number
    return 0.0

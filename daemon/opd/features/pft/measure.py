"""The page-fault test in the probe's process: repeats made, samples told."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from opd.features.pft.kinds import IN_KERNEL, KINDS, ONE_EACH
from opd_native.pft import FaultRunError, FaultTest, Policy, Touch, bin_low
from opd_native.ticks import calibrate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.features.pft.options import PftOptions
    from opd.probes.measuring import Measuring
    from opd_native.pft import Repeat

_QUANTILES = (("latency_p50_ns", 0.5), ("latency_p99_ns", 0.99), ("latency_p999_ns", 0.999))
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
        multimap=options.multimap,
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
                _check_count(options, warmed, run)
            run.progress(index + 1, total)
        _warmed[options.kind] = max(_warmed.get(options.kind, 0), pages)
        rows = []
        for index in range(options.repeats):
            rows.append(_tell(options, test.repeat(), pages, index, run))
            run.progress(warmups + index + 1, total)
        if options.latency:
            _latency(options, test, run)
    except FaultRunError as error:
        run.void(error.reason)
    run.detail("repeats", rows)


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
    _remark(options, repeat, pages, faults, run)
    return {
        "user_seconds": sum(worker.user_us for worker in counted) / 1e6,
        "system_seconds": sum(worker.system_us for worker in counted) / 1e6,
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "faults_measured": faults,
        "faults_major": sum(worker.major for worker in counted),
        "huge_bytes": sum(worker.huge_bytes for worker in workers),
        "switches": sum(worker.switches for worker in workers),
    }


def _remark(options: PftOptions, repeat: Repeat, pages: int, faults: int, run: Measuring) -> None:
    """Say what a reader would otherwise take for something else."""
    workers = repeat.workers
    if options.kind in ONE_EACH and options.rusage == "thread" and not options.mlock:
        beyond = faults - pages
        if abs(beyond) > max(2 * len(workers), pages // 1000):
            run.note(f"{faults} faults measured for {pages} pages, one each expected")
    if any(worker.major for worker in workers) and options.kind not in (
        "file_uncached",
        "swap_in",
    ):
        run.note("major faults: something was read from a disk")
    huge = sum(worker.huge_bytes for worker in workers)
    whole = pages * repeat.page_bytes
    if options.kind == "thp" and huge < whole * 0.99:
        run.note(f"huge pages were obtained for {100 * huge / whole:.0f} % of the memory")


def _check_count(options: PftOptions, repeat: Repeat, run: Measuring) -> None:
    """The kernel's page-faults event beside what getrusage says of the same loop."""
    own = sum(worker.minor + worker.major for worker in repeat.workers)
    counts = [worker.kernel_faults for worker in repeat.workers]
    if (refused := min(counts)) < 0:
        reason = os.strerror(-refused)
        run.note(f"faults not checked against the page-faults event: {reason}")
        return
    kernel = sum(counts)
    in_kernel = options.kind in IN_KERNEL or options.mlock
    run.detail("fault_count", {"measured": own, "kernel_event": kernel, "in_call": in_kernel})
    if options.rusage == "self":
        return
    if abs(kernel - (0 if in_kernel else own)) > max(2 * len(counts), own // 1000):
        run.note(f"getrusage has {own} faults, the kernel's page-faults event {kernel}")


def _latency(options: PftOptions, test: FaultTest, run: Measuring) -> None:
    if KINDS[options.kind].touch >= Touch.MLOCK or options.mlock:
        run.note("no latencies: all pages are faulted in by one call")
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

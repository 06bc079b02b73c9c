"""What a reader of a page-fault test would otherwise take for something else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opd.features.pft.kinds import IN_KERNEL, ONE_EACH
from opd.features.pft.nodes import pages_by_node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.features.pft.options import PftOptions
    from opd.probes.measuring import Measuring
    from opd_native.pft import Repeat, Worker

_FROM_DISK = ("file_uncached", "swap_in")
_WHOLE = 0.99  # of the memory, in the pages that were asked for
# A worker at SCHED_FIFO with a CPU of its own stands still for interrupts only.
_STILL_NS = 5_000_000
_MAPS_MOST = 64
_KERNEL = Path("/proc/sys/kernel")


def remark(options: PftOptions, repeat: Repeat, pages: int, faults: int, run: Measuring) -> None:
    """Of one repeat: faults that are not the pages', reads from a disk, pages that are not large.

    ``pages``: base pages touched by all workers.
    """
    workers = repeat.workers
    if options.kind in ONE_EACH and options.rusage == "thread" and not options.mlock:
        beyond = faults - pages
        if abs(beyond) > max(2 * len(workers), pages // 1000):
            run.note(f"{faults} faults measured for {pages} pages, one each expected")
    if any(worker.major for worker in workers) and options.kind not in _FROM_DISK:
        run.note("major faults: something was read from a disk")
    whole = pages * repeat.page_bytes
    if options.kind in ("thp", "shmem_thp"):
        huge = sum(worker.huge_bytes for worker in workers)
        if huge < whole * _WHOLE:
            run.note(f"huge pages were obtained for {100 * huge / whole:.0f} % of the memory")
    elif options.kind == "mthp":
        _remark_folios(options, pages, faults, repeat.page_bytes, run)


def _remark_folios(
    options: PftOptions, pages: int, faults: int, page_bytes: int, run: Measuring
) -> None:
    """How much came in large folios: each is one fault, each other page one too."""
    from opd.features.pft.machine import check_folio

    size = check_folio(options.folio)
    each = size // page_bytes
    folios = (pages - faults) / (each - 1)
    share = min(max(folios * each / pages, 0.0), 1.0)
    run.detail("folios", {"bytes": size, "share_of_memory": share})
    if share < _WHOLE:
        run.note(f"folios of {size >> 10} KiB were obtained for {100 * share:.0f} % of the memory")


def check_count(options: PftOptions, repeat: Repeat, run: Measuring) -> None:
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


def still_ns(worker: Worker) -> int:
    """Wall time of its loop in which a worker did not run."""
    return max(worker.end_ns - worker.start_ns - worker.cpu_ns, 0)


def remark_still(options: PftOptions, rows: Sequence[dict[str, Any]], run: Measuring) -> None:
    """Say that workers at SCHED_FIFO were held, of which the kernel tells nobody."""
    if not options.fifo or options.workers > len(run.cpus) or options.kind in _FROM_DISK:
        return
    held = [row["still_seconds"] * 1e9 for row in rows if row["still_seconds"] * 1e9 >= _STILL_NS]
    if not held:
        return
    runtime, period = (_number(f"sched_rt_{name}_us") for name in ("runtime", "period"))
    why = "the host took its CPU, or a task of a higher priority did"
    if runtime is not None and runtime >= 0 and period:
        why = (
            f"real-time tasks get {runtime} of {period} us (sched_rt_runtime_us) where others"
            f" wait, or {why}"
        )
    run.note(
        f"in {len(held)} of {len(rows)} repeats a worker at SCHED_FIFO stood still, for up to"
        f" {max(held) / 1e6:.0f} ms: {why}; that is in the wall times"
    )


def _number(name: str) -> int | None:
    try:
        return int((_KERNEL / name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None  # not of this kernel


def remark_nodes(options: PftOptions, lines: Sequence[str], run: Measuring) -> None:
    """Keep where pages lie, and say when a strict policy did not hold."""
    if not lines:
        run.note("where pages lie is not known: this kernel has no numa_maps")
        return
    found = pages_by_node(lines)
    run.detail("numa_maps", {"pages_by_node": found, "lines": list(lines[:_MAPS_MOST])})
    wanted = options.wanted_nodes
    beyond = {node: pages for node, pages in found.items() if node not in wanted}
    if wanted and options.policy != "preferred" and beyond:
        run.note(f"pages beyond the nodes of policy={options.policy}: {beyond}")

"""How much of a cell is measured, and how surely it must differ."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from opd.errors import OperationFailedError, UsageError
from opd.events.cpus import format_cpu_list
from opd.stats.verdict import Margins
from opd_native.dto import ITERATIONS_MOST, Pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.features.dto.options import DtoOptions
    from opd_native.dto import Round

BLOCK = 250
LAYOUTS_ENOUGH = 8
_ROUND_NS = 25e6
_ROUND_LONGEST_NS = 500e6
_LEAST = 10
_SHORT = 100
_CPU = 1
# A change that is none moves small operations more: where code lies is worth
# that much of them. Bytes, and the lower margin in per cent.
_SMALL = (4 << 10, 1.5)
_LARGE = (16 << 10, 0.5)
_MIN_EFFECT = 2.0
# A step of the clock that is more of an operation than this shows in medians.
_COARSE = 0.0005
_DISTINCT = 0.7
# Of so few blocks the medians may be alike by chance: as if nothing spread.
_BLOCKS_FEW = 8
_WARMUPS = ((1 << 20, 25), (64 << 20, 5))


class Amount(NamedTuple):
    """What is measured: processes of the first look, iterations of each, looks at most.

    ``block`` iterations are one block; ``mean``: by its central mean.
    """

    rounds: int
    iterations: int
    looks: int
    block: int
    mean: bool


def amount_of(options: DtoOptions, pilot: Round, quantum: int, layouts: int) -> Amount:
    """From what was asked, and a first small round: how long an iteration takes."""
    rounds, looks, iterations = options.rounds, options.looks, options.iterations
    if options.perf_short:
        rounds, looks, iterations = 1, 1, _SHORT
    if options.perf_ab_rounds:
        rounds, looks = options.perf_ab_rounds, 1
    if options.perf_iters:
        iterations, looks = min(options.perf_iters, ITERATIONS_MOST), 1
    if not iterations:
        iterations = _fitting(pilot.spent_ns / pilot.iterations)
    rounds = -(-rounds // layouts) * layouts
    ordered = sorted(pilot.ticks)
    typical = ordered[len(ordered) // 2]
    # A clock may step by 24 and now and then by 1: then samples repeat.
    coarse = quantum > _COARSE * typical or len(set(ordered)) < _DISTINCT * len(ordered)
    few = rounds * max(1, iterations // BLOCK) < _BLOCKS_FEW
    mean = coarse or few or 0 < options.pf < 100
    return Amount(rounds, iterations, looks, min(BLOCK, iterations), mean)


def _fitting(each_ns: float) -> int:
    """As many iterations as make a round of 25 ms: whole blocks; fewer where they take long."""
    each_ns = max(each_ns, 1.0)
    fits = min(int(_ROUND_NS / each_ns), ITERATIONS_MOST)
    if fits >= BLOCK:
        return fits // BLOCK * BLOCK
    return max(_LEAST, min(BLOCK, int(_ROUND_LONGEST_NS / each_ns)))


def warmup_of(options: DtoOptions) -> int:
    """Iterations that warm up; fewer of large ones, which warm up in less."""
    if options.warmup >= 0:
        return options.warmup
    return next((count for most, count in _WARMUPS if options.size <= most), 1)


def margins_of(size: int, min_effect: float, layouts: int = 1) -> Margins:
    """The lower margin 0.5 % from 16 KiB, 1.5 % up to 4 KiB, between in proportion to the log.

    With 8 layouts or more 0.5 % for all: then layout is in the interval itself.
    The upper one is ``min_effect``, and both grow with it. Twice the lower one
    is to be seen.

    >>> [round(100 * margins_of(size, 2.0).low, 2) for size in (64, 4096, 8192, 16384)]
    [1.5, 1.5, 1.0, 0.5]
    """
    (small, most), (large, least) = _SMALL, _LARGE
    low = least
    if size < large and layouts < LAYOUTS_ENOUGH:
        share = min(1.0, math.log(large / size) / math.log(large / small))
        low = least + share * (most - least)
    low = low / 100 * min_effect / _MIN_EFFECT
    return Margins(low=low, high=min_effect / 100, seen=2 * low)


def cpu_of(options: DtoOptions, allowed: Sequence[int]) -> int:
    """The CPU to measure on. UsageError: it is not among those allowed."""
    if options.perf_cpu < 0:
        return _CPU if _CPU in allowed else allowed[0]
    if options.perf_cpu not in allowed:
        raise UsageError(
            f"perf_cpu={options.perf_cpu}: CPU {options.perf_cpu} is not there or not allowed",
            hint=f"allowed: {format_cpu_list(tuple(allowed))}",
        )
    return options.perf_cpu


def pages_of(options: DtoOptions) -> Pages:
    """The pages that page=2m comes to. OperationFailedError: neither kind is there."""
    from opd.features.pft.machine import check_huge

    if options.page == "4k":
        return Pages.BASE
    try:
        check_huge(2048, options.memory_bytes - options.size)
    except OperationFailedError as error:
        if (setting := _shmem_setting()) in ("always", "within_size", "advise", "force"):
            return Pages.THP
        raise OperationFailedError(
            f"page=2m: {error.message}, and transparent huge pages of shared memory are off"
            f" ({setting})",
            hint=f"{error.hint or ''}; or echo advise >"
            " /sys/kernel/mm/transparent_hugepage/shmem_enabled",
        ) from error
    return Pages.HUGETLB_2M


def _shmem_setting() -> str:
    from pathlib import Path

    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled").read_text("ascii")
    except OSError:
        return "none"
    return text[text.index("[") + 1 : text.index("]")]

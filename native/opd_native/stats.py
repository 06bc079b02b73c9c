"""What many samples say (opd/stats.h): order, blocks, spread, distance, the bootstrap.

Arrays are ``array('d')`` or whatever else has a buffer of doubles; other
sequences are copied. Raises ValueError for what is no finite number.
"""

from __future__ import annotations

import enum
import errno
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from opd_native._core import ffi, lib
from opd_native.errors import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Middle(enum.IntEnum):
    """What stands for a block: its median, or the mean of its central 80 %."""

    MEDIAN = 0
    CENTRAL = 1


class Spread(NamedTuple):
    """Of ascending values; ``below``, ``above``: how many are outside of Tukey's fences."""

    mean: float
    variance: float
    mad: float
    low_fence: float
    high_fence: float
    below: int
    above: int
    modes: int


def doubles(values: Iterable[float]) -> array[float]:
    """The values as an array of doubles; one that is one already is not copied."""
    if isinstance(values, array) and values.typecode == "d":
        return values
    return array("d", values)


def ascending(values: Iterable[float]) -> array[float]:
    """A sorted copy."""
    ordered = array("d", values)
    _check(lib.opd_stats_sort(_of(ordered), len(ordered)), "sort")
    return ordered


def resample(
    groups: Sequence[Sequence[float]], *, trim: float, seed: int, resamples: int
) -> list[float]:
    """Trimmed means of groups and values in them drawn anew, ascending (opd_stats_resample)."""
    pooled = array("d")
    for group in groups:
        pooled.extend(group)
    draws = array("d", bytes(8 * resamples))
    sizes = ffi.new("uint32_t[]", [len(group) for group in groups])
    rc = lib.opd_stats_resample(
        _of(pooled), sizes, len(groups), trim, seed, resamples, _of(draws, writable=True)
    )
    _check(rc, "resample")
    return draws.tolist()


def blocks(
    before: Iterable[float], after: Iterable[float], pairs: int, middle: Middle = Middle.MEDIAN
) -> list[float]:
    """Of each ``pairs`` pairs the log of after's middle by before's (opd_stats_blocks).

    Raises ValueError unless all middles are above 0.
    """
    below, above = doubles(before), doubles(after)
    if len(below) != len(above):
        raise ValueError(f"{len(below)} samples and {len(above)} are no pairs")
    logs = array("d", bytes(8 * max(1, len(below) // max(pairs, 1))))
    rc = lib.opd_stats_blocks(
        _of(below), _of(above), len(below), pairs, middle, _of(logs, writable=True)
    )
    if rc == -errno.EDOM:
        raise ValueError("a ratio needs samples above 0")
    _check(rc, "make blocks")
    return logs.tolist()


def spread(ordered: array[float]) -> Spread:
    """Of ascending values, at least one."""
    out = ffi.new("struct opd_stats_spread *")
    _check(lib.opd_stats_spread(_of(ordered), len(ordered), out), "describe samples")
    return Spread(
        out.mean,
        out.variance,
        out.mad,
        out.low_fence,
        out.high_fence,
        out.below,
        out.above,
        out.modes,
    )


def distance(a: array[float], b: array[float]) -> float:
    """The greatest distance between the distribution functions of two ascending arrays."""
    out = ffi.new("double *")
    _check(lib.opd_stats_distance(_of(a), len(a), _of(b), len(b), out), "compare distributions")
    return float(out[0])


def change(
    ranks: Sequence[float], *, side: int, permutations: int, enough: int, seed: int
) -> tuple[int, int]:
    """Where the ranks differ most before and after, and how many shuffles come to as much.

    (0, 0): nowhere. The count ends above ``enough`` (opd_stats_change).
    """
    values = doubles(ranks)
    place, beyond = ffi.new("size_t *"), ffi.new("uint32_t *")
    rc = lib.opd_stats_change(
        _of(values), len(values), side, permutations, enough, seed, place, beyond
    )
    _check(rc, "look for a change")
    return int(place[0]), int(beyond[0])


def _of(values: array[float], *, writable: bool = False) -> Any:
    return ffi.from_buffer("double[]", values, require_writable=writable)


def _check(rc: int, what: str) -> None:
    if rc == -errno.EDOM:
        raise ValueError(f"cannot {what}: a sample is no finite number")
    check(rc, what)

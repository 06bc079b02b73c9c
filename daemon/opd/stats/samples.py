"""Two sets of many samples side by side: described, not judged.

What tables show beside a verdict: means without tails, the distance of both
distributions, outliers, modes. What is decided, ``verdict`` decides.
"""

from __future__ import annotations

import bisect
import math
from typing import TYPE_CHECKING

import msgspec

from opd_native import stats as native

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable

TAIL = 0.1
_TERMS = 101
# Below, the sum is 1 to fifteen digits, and its terms do not get small.
_CERTAIN = 0.2


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """Samples before and after.

    ``before_mean``, ``after_mean``: of those between the 10th and the 90th
    percentile. ``change_percent``: of these. ``distance``, ``p``: Kolmogorov and
    Smirnov's D of these, and how likely it is with no difference.
    ``fence``: Q3 + 1.5 (Q3 - Q1) of both together; ``…_outliers``: how many are
    above it. ``…_modes``: peaks of the densities.
    """

    before_mean: float
    after_mean: float
    change_percent: float
    distance: float
    p: float
    fence: float
    before_outliers: int
    after_outliers: int
    before_modes: int
    after_modes: int


def contrast(before: Iterable[float], after: Iterable[float]) -> Contrast:
    """Describe both. Raises ValueError without samples, or when one is no finite number."""
    first, second = native.ascending(before), native.ascending(after)
    if not first or not second:
        raise ValueError("no samples")
    fence = native.spread(native.ascending(first + second)).high_fence
    inner, other = _central(first), _central(second)
    before_mean, after_mean = native.spread(inner).mean, native.spread(other).mean
    distance = native.distance(inner, other)
    return Contrast(
        before_mean=before_mean,
        after_mean=after_mean,
        change_percent=100.0 * (after_mean / before_mean - 1.0) if before_mean else math.inf,
        distance=distance,
        p=distance_p(distance, len(inner), len(other)),
        fence=fence,
        before_outliers=len(first) - bisect.bisect_right(first, fence),
        after_outliers=len(second) - bisect.bisect_right(second, fence),
        before_modes=native.spread(first).modes,
        after_modes=native.spread(second).modes,
    )


def central_mean(values: Iterable[float]) -> float:
    """The mean of the central 80 %. Raises ValueError without samples."""
    ordered = native.ascending(values)
    if not ordered:
        raise ValueError("no samples")
    return native.spread(_central(ordered)).mean


def distance_p(distance: float, first: int, second: int) -> float:
    """How likely so great a D is when both sets are of one law.

    Kolmogorov's limit with Stephens's correction for few samples.
    """
    root = math.sqrt(first * second / (first + second))
    scaled = (root + 0.12 + 0.11 / root) * distance
    if scaled < _CERTAIN:
        return 1.0
    terms = ((-1) ** (k - 1) * math.exp(-2.0 * (k * scaled) ** 2) for k in range(1, _TERMS))
    return min(max(2.0 * math.fsum(terms), 0.0), 1.0)


def _central(ordered: array[float]) -> array[float]:
    cut = int(len(ordered) * TAIL)
    return ordered[cut : len(ordered) - cut]

"""What many samples of one thing say: middle, spread, tails, modes, outliers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from opd.stats.tails import binomial_cdf, normal_quantile
from opd_native import stats as native

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CONFIDENCE = 0.95
_EXACT_MOST = 1000


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """``low`` and ``high``: where the true median lies, at 95 %.

    Fewer than 6 samples do not bound it so surely: then they are least and
    greatest. ``cv``: standard deviation by mean. ``outliers``: the share beyond
    Tukey's fences. ``modes``: peaks of the density.
    """

    n: int
    mean: float
    median: float
    low: float
    high: float
    cv: float
    least: float
    greatest: float
    p5: float
    p25: float
    p75: float
    p95: float
    p99: float
    mad: float
    outliers: float
    modes: int


def distribution_of(values: Iterable[float]) -> Distribution:
    """Describe samples. Raises ValueError without any, or when one is no finite number."""
    ordered = native.ascending(values)
    n = len(ordered)
    if n == 0:
        raise ValueError("no samples")
    spread = native.spread(ordered)
    low, high = median_interval(ordered)
    return Distribution(
        n=n,
        mean=spread.mean,
        median=quantile(ordered, 0.5),
        low=low,
        high=high,
        cv=math.sqrt(spread.variance) / abs(spread.mean) if spread.mean else 0.0,
        least=ordered[0],
        greatest=ordered[-1],
        p5=quantile(ordered, 0.05),
        p25=quantile(ordered, 0.25),
        p75=quantile(ordered, 0.75),
        p95=quantile(ordered, 0.95),
        p99=quantile(ordered, 0.99),
        mad=spread.mad,
        outliers=(spread.below + spread.above) / n,
        modes=spread.modes,
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that ``share`` of ascending samples are below; between two, a straight line.

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.5
    """
    if not ordered:
        raise ValueError("no samples")
    place = share * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 2)
    if below < 0:
        return ordered[0]
    return ordered[below] + (ordered[below + 1] - ordered[below]) * (place - below)


def median(values: Iterable[float]) -> float:
    """The middle of samples in any order. Raises ValueError without any."""
    return quantile(sorted(values), 0.5)


def median_interval(
    ordered: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Where the true median lies: order statistics of ascending samples, whatever their law.

    Least and greatest when so few cannot be that sure.
    """
    n = len(ordered)
    tail = (1.0 - confidence) / 2.0
    at = -1  # the greatest rank (from 0) that so few of the samples are below
    if n <= _EXACT_MOST:
        while at + 1 < n // 2 and binomial_cdf(at + 1, n, 0.5) <= tail:
            at += 1
    else:
        at = int((n - 1) / 2.0 + normal_quantile(tail) * math.sqrt(n) / 2.0)
    at = max(at, 0)
    return ordered[at], ordered[n - 1 - at]


def count_modes(ordered: Sequence[float]) -> int:
    """How many peaks the density of ascending samples has; those that hardly rise do not count.

    A Gaussian kernel with Silverman's width, on a grid; of very many samples
    each k-th.
    """
    return native.spread(native.doubles(ordered)).modes if ordered else 1

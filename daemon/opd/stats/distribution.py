"""What many samples of one thing say: middle, spread, tails, modes, outliers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from opd.stats.tails import binomial_cdf, normal_quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CONFIDENCE = 0.95
_GRID = 256
# Kernels of a mode; what is further away than this adds nothing.
_REACH = 4.0
# A mode rises this far above the dip beside it, as a share of the highest.
_PROMINENCE = 0.1
_MODES_OF_MOST = 2000
_EXACT_MOST = 1000
_FENCE = 1.5


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
    """Describe samples. Raises ValueError without any."""
    ordered = sorted(values)
    n = len(ordered)
    if n == 0:
        raise ValueError("no samples")
    mean = math.fsum(ordered) / n
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in ordered) / (n - 1)) if n > 1 else 0.0
    middle = quantile(ordered, 0.5)
    low, high = median_interval(ordered)
    p25, p75 = quantile(ordered, 0.25), quantile(ordered, 0.75)
    fence = _FENCE * (p75 - p25)
    outside = sum(1 for x in ordered if x < p25 - fence or x > p75 + fence)
    return Distribution(
        n=n,
        mean=mean,
        median=middle,
        low=low,
        high=high,
        cv=deviation / abs(mean) if mean else 0.0,
        least=ordered[0],
        greatest=ordered[-1],
        p5=quantile(ordered, 0.05),
        p25=p25,
        p75=p75,
        p95=quantile(ordered, 0.95),
        p99=quantile(ordered, 0.99),
        mad=median([abs(x - middle) for x in ordered]),
        outliers=outside / n,
        modes=count_modes(ordered),
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
    """How many peaks the density has; those that hardly rise are not counted.

    A Gaussian kernel with Silverman's width, on a grid; of very many samples
    each k-th.
    """
    n = len(ordered)
    if n < 3 or ordered[0] == ordered[-1]:
        return 1
    if n > _MODES_OF_MOST:
        step = n / _MODES_OF_MOST
        ordered = [ordered[int(at * step)] for at in range(_MODES_OF_MOST)]
        n = len(ordered)
    mean = math.fsum(ordered) / n
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in ordered) / (n - 1))
    between = (quantile(ordered, 0.75) - quantile(ordered, 0.25)) / 1.349
    width = 0.9 * min(deviation, between or deviation) * n**-0.2
    # Tails are long: what is far out is outliers, not modes.
    first, last = quantile(ordered, 0.005) - width, quantile(ordered, 0.995) + width
    return _peaks(_density(ordered, first, last, width))


def _density(ordered: Sequence[float], first: float, last: float, width: float) -> list[float]:
    """The density on a grid, not to scale."""
    step = (last - first) / (_GRID - 1)
    if width <= 0.0 or step <= 0.0:
        return [1.0]
    width = max(width, step)  # a narrower one falls between the points of the grid
    density = [0.0] * _GRID
    for x in ordered:
        begin = max(0, math.ceil((x - _REACH * width - first) / step))
        end = min(_GRID - 1, math.floor((x + _REACH * width - first) / step))
        for at in range(begin, end + 1):
            distance = (first + at * step - x) / width
            density[at] += math.exp(-0.5 * distance * distance)
    return density


def _peaks(density: Sequence[float]) -> int:
    """Rises and falls by at least the prominence, counted."""
    need = _PROMINENCE * max(density)
    peaks = 0
    low = high = 0.0
    rising = True
    for value in [*density, 0.0]:
        if rising:
            high = max(high, value)
            if high - value >= need:
                peaks, rising, low = peaks + 1, False, value
        else:
            low = min(low, value)
            if value - low >= need:
                rising, high = True, value
    return max(peaks, 1)

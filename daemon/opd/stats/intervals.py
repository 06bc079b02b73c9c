"""Intervals of shares and means of samples, at 95 %."""

from __future__ import annotations

import math

Z95 = 1.959963984540054


def share_interval(hits: float, n: float) -> tuple[float, float]:
    """Where the true share lies, by Wilson's score; 0 to 1 for no samples.

    >>> [round(edge, 4) for edge in share_interval(10, 100)]
    [0.0552, 0.1744]
    """
    if n <= 0:
        return 0.0, 1.0
    share = min(max(hits / n, 0.0), 1.0)
    shrink = 1 + Z95 * Z95 / n
    middle = (share + Z95 * Z95 / (2 * n)) / shrink
    half = Z95 * math.sqrt(share * (1 - share) / n + Z95 * Z95 / (4 * n * n)) / shrink
    low = max(0.0, middle - half) if share > 0 else 0.0
    return low, min(1.0, middle + half) if share < 1 else 1.0


def ratio_interval(numerator: int, denominator: int) -> tuple[float, float]:
    """Where the true ratio of two counts lies, when one is no part of the other.

    Given their sum the numerator is a share of it; 0 to infinity for no counts.

    >>> [round(edge, 2) for edge in ratio_interval(200, 100)]
    [1.57, 2.54]
    """
    low, high = share_interval(numerator, numerator + denominator)
    return low / (1 - low) if low < 1 else math.inf, high / (1 - high) if high < 1 else math.inf


def mean_interval(mean: float, variance: float, n: int) -> tuple[float, float]:
    """Where the true mean lies, by the normal law; all there is for fewer than 2 samples."""
    if n <= 1:
        return -math.inf, math.inf
    half = Z95 * math.sqrt(max(variance, 0.0) / n)
    return mean - half, mean + half


def estimate_total(strata: list[tuple[int, int, int]]) -> tuple[float, float, float]:
    """How many of all have a property, of (offered, drawn, drawn with it) a stratum.

    The estimate and its interval: draws are without putting back, and
    where all were drawn the answer is exact.

    >>> estimate_total([(100, 100, 30)])
    (30.0, 30.0, 30.0)
    """
    total = variance = slack = 0.0
    least = 0
    for offered, drawn, having in strata:
        least += having
        if drawn == 0:
            slack += offered
            continue
        share = having / drawn
        total += offered * share
        if drawn < offered:
            # A draw without any, or of nothing else, may have missed some: one half more of each.
            smooth = (having + 0.5) / (drawn + 1)
            variance += offered * (offered - drawn) * smooth * (1 - smooth) / drawn
    half = Z95 * math.sqrt(variance)
    most = sum(offered for offered, _drawn, _having in strata)
    return total, max(float(least), total - half), min(float(most), total + half + slack)

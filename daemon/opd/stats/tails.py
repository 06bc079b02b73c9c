"""Tails of the laws that verdicts rest on, without scipy: normal, Student's t, binomial."""

from __future__ import annotations

import functools
import math

_STEPS_MOST = 300
_CLOSE = 1e-15
_TINY = 1e-300


def normal_cdf(z: float) -> float:
    """The share below ``z`` standard deviations.

    >>> round(normal_cdf(1.959963984540054), 6)
    0.975
    """
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def normal_quantile(share: float) -> float:
    """Where ``share`` of all lie below. Raises ValueError outside of (0, 1)."""
    if not 0.0 < share < 1.0:
        raise ValueError(f"no quantile for {share}")
    return _invert(normal_cdf, share, 40.0)


def student_cdf(t: float, freedom: float) -> float:
    """The share below ``t`` of Student's law with ``freedom`` degrees.

    >>> round(student_cdf(2.2281388519649385, 10), 6)
    0.975
    """
    if freedom <= 0:
        raise ValueError(f"no law with {freedom} degrees of freedom")
    tail = 0.5 * _incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
    return 1.0 - tail if t > 0 else tail


@functools.lru_cache(maxsize=1024)
def student_quantile(share: float, freedom: float) -> float:
    """Where ``share`` of all lie below."""
    if not 0.0 < share < 1.0:
        raise ValueError(f"no quantile for {share}")
    return _invert(lambda t: student_cdf(t, freedom), share, 1e10)


def binomial_cdf(most: int, n: int, share: float) -> float:
    """How likely at most so many of ``n`` are hit, each with probability ``share``."""
    if most < 0:
        return 0.0
    if most >= n:
        return 1.0
    return _incomplete_beta(1.0 - share, n - most, most + 1.0)


def _invert(cdf: object, share: float, most: float) -> float:
    """Bisect a rising function: exact to a few units in the last place, and slow enough."""
    low, high = -most, most
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        if cdf(middle) < share:  # type: ignore[operator]
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function, by its continued fraction (Lentz)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _incomplete_beta(1.0 - x, b, a)
    front = math.exp(
        a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    )
    c, d = 1.0, 1.0 / _nonzero(1.0 - (a + b) * x / (a + 1.0))
    total = d
    for m in range(1, _STEPS_MOST):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0)),
        ):
            d = 1.0 / _nonzero(1.0 + term * d)
            c = _nonzero(1.0 + term / c)
            step = c * d
            total *= step
        if abs(step - 1.0) < _CLOSE:
            break
    return front * total / a


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY

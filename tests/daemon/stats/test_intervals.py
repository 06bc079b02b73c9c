"""Intervals against draws whose truth is known, and their edges."""

import math
import random

import pytest

from opd.stats.histogram import Histogram
from opd.stats.intervals import estimate_total, mean_interval, ratio_interval, share_interval


def test_a_share_lies_in_its_interval_nineteen_times_of_twenty():
    """Over many draws, for rare and common things."""
    rng = random.Random(7)
    for truth in (0.02, 0.3, 0.9):
        inside = 0
        for _ in range(400):
            hits = sum(rng.random() < truth for _ in range(200))
            low, high = share_interval(hits, 200)
            inside += low <= truth <= high
        assert 0.90 <= inside / 400 <= 1.0


def test_a_share_of_nothing_is_not_known():
    """All of 0 to 1; none and all of many are near their edge, not on it."""
    assert share_interval(0, 0) == (0.0, 1.0)
    assert share_interval(0, 100)[0] == 0.0
    assert 0 < share_interval(0, 100)[1] < 0.05
    assert share_interval(100, 100)[1] == 1.0
    assert ratio_interval(0, 0) == (0.0, math.inf)
    assert mean_interval(3.0, 1.0, 1) == (-math.inf, math.inf)


def test_a_total_lies_in_its_interval():
    """Of draws without putting back from strata of different sizes and shares."""
    rng = random.Random(3)
    strata = [(5000, 0.1), (800, 0.5), (60, 0.9)]
    populations = [[rng.random() < share for _ in range(size)] for size, share in strata]
    truth = sum(map(sum, populations))
    inside = 0
    for _ in range(300):
        drawn = [rng.sample(items, min(len(items), 256)) for items in populations]
        value, low, high = estimate_total(
            [
                (len(items), len(some), sum(some))
                for items, some in zip(populations, drawn, strict=True)
            ]
        )
        assert low <= value <= high
        inside += low <= truth <= high
    assert inside / 300 >= 0.92


def test_a_total_without_a_draw_is_open():
    """What was offered and not drawn may all have it, or nothing of it."""
    assert estimate_total([(50, 0, 0)]) == (0.0, 0.0, 50.0)
    assert estimate_total([(50, 50, 7), (10, 10, 3)]) == (10.0, 10.0, 10.0)
    value, low, high = estimate_total([(1000, 100, 0)])
    assert (value, low) == (0.0, 0.0)
    assert 0 < high < 100
    assert estimate_total([]) == (0.0, 0.0, 0.0)


def test_quantiles_lie_in_their_intervals():
    """The true median of the law that was drawn from, nineteen times of twenty or more."""
    rng = random.Random(5)
    inside = 0
    for _ in range(200):
        values = [int(rng.lognormvariate(6, 1)) for _ in range(300)]
        _value, low, high = Histogram.of(values).quantile(0.5)
        inside += low <= math.exp(6) <= high
    assert inside / 200 >= 0.93


def test_a_histogram_of_one_value_is_that_value():
    """Exact up to 31, its bucket beyond; no values have no quantile."""
    assert Histogram.of([13] * 50).quantile(0.99) == (13.0, 13.0, 13.0)
    value, low, high = Histogram.of([1000]).quantile(0.5)
    assert low <= 1000 <= high
    assert low <= value <= high
    assert Histogram.of([5]).variance() == 0.0
    with pytest.raises(ValueError, match="no values"):
        Histogram().quantile(0.5)
    assert Histogram.of([2**64 - 1, 70000]).n == 2

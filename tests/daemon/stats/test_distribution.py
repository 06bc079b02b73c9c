import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from opd.stats.distribution import count_modes, distribution_of, median_interval, quantile

FINITE = st.floats(min_value=-1e9, max_value=1e9)


@settings(deadline=None)
@given(st.lists(FINITE, min_size=1, max_size=60), st.floats(min_value=0, max_value=1))
def test_quantiles_are_scipys(values, share):
    """Straight lines between order statistics, as everybody's default."""
    expected = stats.mstats.mquantiles(values, [share], alphap=1, betap=1)[0]
    assert quantile(sorted(values), share) == pytest.approx(float(expected), rel=1e-6, abs=1e-3)


@settings(deadline=None)
@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=60))
def test_spread_is_scipys(values):
    """Mean, coefficient of variation and median absolute deviation."""
    told = distribution_of(values)
    assert told.n == len(values)
    assert told.mean == pytest.approx(math.fsum(values) / len(values), rel=1e-9, abs=1e-6)
    assert told.mad == pytest.approx(stats.median_abs_deviation(values), rel=1e-6, abs=1e-3)
    if abs(told.mean) > 1e-3:
        expected = statistics.stdev(values) / abs(told.mean)
        assert told.cv == pytest.approx(float(expected), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("n", [6, 7, 15, 30, 100, 999])
def test_the_interval_of_the_median_is_scipys(n):
    """Order statistics by the binomial law."""
    values = sorted(random.Random(n).gauss(0, 1) for _ in range(n))
    expected = stats.quantile_test(values, q=0, p=0.5).confidence_interval(0.95)
    assert median_interval(values) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("n", [5, 20, 2000])
def test_the_interval_of_the_median_holds_it(n):
    """In at least 92 of 100, of a skewed law."""
    draw = random.Random(7)
    truth = math.exp(0)
    hits = 0
    for _ in range(400):
        low, high = median_interval(sorted(draw.lognormvariate(0, 1) for _ in range(n)))
        hits += low <= truth <= high
    assert hits >= 0.92 * 400


def test_one_sample_is_a_distribution_of_itself():
    """Nothing divides by nothing."""
    told = distribution_of([3.0])
    assert (told.median, told.low, told.high, told.cv, told.modes) == (3.0, 3.0, 3.0, 0.0, 1)


def test_no_samples_are_an_error():
    """There is nothing to say."""
    with pytest.raises(ValueError, match="no samples"):
        distribution_of([])


@pytest.mark.parametrize(
    ("centres", "modes"), [((10.0,), 1), ((10.0, 14.0), 2), ((10.0, 15.0, 20.0), 3)]
)
def test_modes_are_counted(centres, modes):
    """Peaks that are apart count, whatever far outliers there are."""
    draw = random.Random(3)
    values = sorted([draw.gauss(c, 0.5) for c in centres for _ in range(400)] + [900.0, 2000.0])
    assert count_modes(values) == modes


def test_one_mode_is_one_however_few_samples_there_are():
    """Noise of few samples makes no peaks: at most 1 in 20 has a second."""
    draw = random.Random(5)
    more = sum(count_modes(sorted(draw.gauss(0, 1) for _ in range(30))) > 1 for _ in range(200))
    assert more <= 10 + 10  # a Gaussian sample of 30 has gaps now and then


def test_outliers_are_beyond_tukeys_fences():
    """Of a hundred alike and one far out, one."""
    assert distribution_of([*range(100), 1e6]).outliers == pytest.approx(1 / 101)

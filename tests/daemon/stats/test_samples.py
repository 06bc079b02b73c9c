import random

import pytest
from scipy import stats

from opd.stats.samples import central_mean, contrast, distance_p


def test_means_are_scipys_trimmed_ones():
    """A tenth off at each end."""
    draw = random.Random(4)
    for n in (1, 9, 10, 57, 3000):
        values = [draw.lognormvariate(0, 1) for _ in range(n)]
        assert central_mean(values) == pytest.approx(float(stats.trim_mean(values, 0.1)))


@pytest.mark.parametrize(("n", "shift"), [(50, 0.0), (50, 0.5), (1000, 0.05), (3000, 0.02)])
def test_p_of_a_distance_is_scipys(n, shift):
    """Nearly, of fifty samples and more: the correction leaves a little of a hundredth."""
    draw = random.Random(n)
    before = [draw.gauss(0, 1) for _ in range(n)]
    after = [draw.gauss(shift, 1) for _ in range(n)]
    expected = stats.ks_2samp(before, after, method="exact")
    p = distance_p(float(expected.statistic), n, n)
    assert p == pytest.approx(float(expected.pvalue), rel=0.15, abs=0.015)


def test_a_distance_of_nothing_is_certain():
    """And of everything, impossible."""
    assert distance_p(0.0, 100, 100) == 1.0
    assert distance_p(1.0, 1000, 1000) < 1e-12


def test_a_contrast_tells_both_sides():
    """Means without tails, outliers beyond the fence of both, D of what is between the tails."""
    draw = random.Random(1)
    before = [draw.gauss(100, 1) for _ in range(2000)]
    after = [value * 1.05 for value in before[:1990]] + [1e6] * 10
    told = contrast(before, after)
    assert told.change_percent == pytest.approx(5.0, abs=0.1)
    assert (told.before_outliers, told.after_outliers) == (0, 10)
    assert told.distance > 0.9
    assert told.p < 1e-6
    assert (told.before_modes, told.after_modes) == (1, 1)
    same = contrast(before, before)
    assert (same.distance, same.p, same.change_percent) == (0.0, 1.0, 0.0)


def test_no_samples_are_an_error():
    """On either side."""
    with pytest.raises(ValueError, match="no samples"):
        contrast([], [1.0])
    with pytest.raises(ValueError, match="no samples"):
        central_mean([])

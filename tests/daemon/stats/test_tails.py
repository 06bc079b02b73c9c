import pytest
from scipy import stats

from opd.stats.tails import (
    binomial_cdf,
    normal_cdf,
    normal_quantile,
    student_cdf,
    student_quantile,
)


@pytest.mark.parametrize("z", [-8.0, -3.0, -1.96, 0.0, 0.5, 2.5, 8.0])
def test_the_normal_law_is_scipys(z):
    """Shares below so many standard deviations, and back."""
    assert normal_cdf(z) == pytest.approx(stats.norm.cdf(z), rel=1e-9, abs=1e-15)
    assert normal_quantile(stats.norm.cdf(z / 2)) == pytest.approx(z / 2, abs=1e-8)


@pytest.mark.parametrize("freedom", [1, 2, 5, 14, 59, 400, 1e6])
@pytest.mark.parametrize("t", [-12.0, -2.1, -0.3, 0.0, 0.7, 3.0, 30.0])
def test_students_law_is_scipys(t, freedom):
    """Shares below t, for few and many degrees of freedom."""
    assert student_cdf(t, freedom) == pytest.approx(stats.t.cdf(t, freedom), rel=1e-8, abs=1e-14)


@pytest.mark.parametrize("freedom", [1, 3, 14, 239])
@pytest.mark.parametrize("share", [0.00125, 0.0025, 0.025, 0.5, 0.975, 0.99875])
def test_students_quantiles_are_scipys(share, freedom):
    """Where a share lies below."""
    assert student_quantile(share, freedom) == pytest.approx(
        stats.t.ppf(share, freedom), rel=1e-7, abs=1e-6
    )


@pytest.mark.parametrize("n", [1, 6, 30, 999])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.93])
def test_binomial_tails_are_scipys(n, share):
    """At every count from none to all."""
    for most in {0, 1, n // 3, n // 2, n - 1, n}:
        assert binomial_cdf(most, n, share) == pytest.approx(
            stats.binom.cdf(most, n, share), rel=1e-8, abs=1e-14
        )
    assert binomial_cdf(-1, n, share) == 0.0


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_there_is_no_quantile_of_a_share_that_is_none(share):
    """0 and 1 are at infinity, the rest is nonsense."""
    with pytest.raises(ValueError, match="no quantile"):
        normal_quantile(share)
    with pytest.raises(ValueError, match="no quantile"):
        student_quantile(share, 3)

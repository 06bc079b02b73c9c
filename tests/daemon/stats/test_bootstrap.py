import math
import random

import pytest
from scipy import stats

from opd.stats.bootstrap import (
    BLOCKS_MOST,
    autocorrelation,
    blocks_of,
    log_ratios,
    resample,
    thinned,
    trimmed_mean,
)


def test_trimmed_means_are_scipys():
    """A fifth off at each end."""
    draw = random.Random(1)
    for n in (1, 4, 5, 17, 100):
        values = [draw.lognormvariate(0, 1) for _ in range(n)]
        assert trimmed_mean(values) == pytest.approx(float(stats.trim_mean(values, 0.2)))


def test_blocks_are_logs_of_ratios_of_medians():
    """Each block by itself, a short rest joins the last."""
    before = [1.0, 1.0, 100.0, 2.0, 2.0, 2.0, 2.0]
    after = [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    assert blocks_of(before, after, 3) == pytest.approx([math.log(2), 0.0])
    assert blocks_of(before, after, 1) == log_ratios(before, after)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
def test_a_ratio_needs_samples_above_0(bad):
    """Of what is 0 or less there is no ratio."""
    with pytest.raises(ValueError, match="above 0"):
        log_ratios([1.0, bad], [1.0, 1.0])
    with pytest.raises(ValueError, match="above 0"):
        blocks_of([bad] * 4, [1.0] * 4, 2)


def test_pairs_are_pairs():
    """One side longer than the other is refused."""
    with pytest.raises(ValueError, match="no pairs"):
        blocks_of([1.0], [1.0, 2.0], 2)


def test_the_same_samples_give_the_same_answer():
    """The seed is fixed."""
    groups = [[0.1, 0.2, 0.3], [0.0, 0.4, 0.2]]
    assert resample(groups).draws == resample(groups).draws


def test_the_error_of_one_process_is_scipys():
    """Of one process the resampling is the plain bootstrap of a trimmed mean."""
    draw = random.Random(11)
    values = [draw.gauss(0.02, 0.01) for _ in range(60)]
    theirs = stats.bootstrap(
        (values,),
        lambda x, axis: stats.trim_mean(x, 0.2, axis=axis),
        n_resamples=4000,
        method="percentile",
        rng=1,
    )
    ours = resample([values])
    assert ours.estimate == pytest.approx(float(stats.trim_mean(values, 0.2)))
    assert ours.error == pytest.approx(float(theirs.standard_error), rel=0.1)
    interval = theirs.confidence_interval
    assert ours.bound(0.025) == pytest.approx(float(interval.low), abs=0.0006)
    assert ours.bound(0.975) == pytest.approx(float(interval.high), abs=0.0006)


def test_processes_that_differ_widen_the_interval():
    """Blocks alike within a process and apart between: their number is that of processes."""
    apart = [[x] * 50 for x in (0.0, 0.02, 0.04, 0.06)]
    together = [[0.0, 0.02, 0.04, 0.06] * 12 + [0.03, 0.03] for _ in range(4)]
    wide, narrow = resample(apart), resample(together)
    assert wide.error > 3 * narrow.error


@pytest.mark.parametrize("change", [0.0, 0.005, 0.02, 0.05])
def test_the_interval_holds_the_truth(change):
    """In 90 to 100 of 100, at every change, with heavy tails."""
    draw = random.Random(int(change * 1000) + 1)
    hits = 0
    for _ in range(100):
        groups = [
            [change + draw.gauss(0, 0.01) * (5 if draw.random() < 0.05 else 1) for _ in range(15)]
            for _ in range(4)
        ]
        found = resample(groups, resamples=500)
        hits += found.bound(0.025) <= change <= found.bound(0.975)
    assert hits >= 90


def test_one_block_knows_nothing():
    """Its interval has no end, and nothing is sure."""
    found = resample([[0.5]])
    assert (found.bound(0.025), found.bound(0.975)) == (-math.inf, math.inf)
    assert found.p_above(0.0) == 1.0


def test_no_blocks_are_an_error():
    """There is nothing to draw from."""
    with pytest.raises(ValueError, match="no blocks"):
        resample([[], []])


def test_many_blocks_are_thinned_without_moving_the_mean():
    """Neighbours join."""
    values = [float(n % 7) for n in range(30_000)]
    fewer = thinned(values)
    assert len(fewer) <= BLOCKS_MOST
    assert math.fsum(fewer) / len(fewer) == pytest.approx(math.fsum(values) / 30_000)


def test_autocorrelation_tells_neighbours_that_are_alike():
    """1 or so for a slope, -1 or so for what alternates, 0 for too few."""
    assert autocorrelation([float(n) for n in range(100)]) > 0.9
    assert autocorrelation([1.0, -1.0] * 50) < -0.9
    assert autocorrelation([1.0, 2.0]) == 0.0

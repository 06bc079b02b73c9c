"""The C statistics against plain ones: the bootstrap by the generator as its header has it."""

import itertools
import math
import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from opd_native import stats

_MASK = (1 << 64) - 1
BLOCK = st.floats(min_value=-10, max_value=10, width=32)
GROUPS = st.lists(st.lists(BLOCK, min_size=1, max_size=12), min_size=1, max_size=5)


def _turn(value, by):
    return (value << by | value >> (64 - by)) & _MASK


class _Generator:
    """xoshiro256** of four numbers of splitmix64, by their authors' description."""

    def __init__(self, seed):
        self.state = []
        for _ in range(4):
            seed = (seed + 0x9E3779B97F4A7C15) & _MASK
            z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
            z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
            self.state.append(z ^ z >> 31)

    def below(self, limit):
        a, b, c, d = self.state
        number = _turn(b * 5 & _MASK, 7) * 9 & _MASK
        c, d = c ^ a, d ^ b
        b, a = b ^ c, a ^ d
        c ^= self.state[1] << 17 & _MASK
        self.state = [a, b, c, _turn(d, 45)]
        return number * limit >> 64


def _resampled(groups, trim, seed, resamples):
    """The hierarchical bootstrap, drawn value by value and sorted."""
    draw = _Generator(seed)
    means = []
    for _ in range(resamples):
        drawn = []
        for _ in groups:
            group = groups[draw.below(len(groups))] if len(groups) > 1 else groups[0]
            drawn += [group[draw.below(len(group))] for _ in group]
        drawn.sort()
        cut = int(len(drawn) * trim)
        kept = drawn[cut : len(drawn) - cut]
        means.append(math.fsum(kept) / len(kept))
    return sorted(means)


def test_the_generator_is_the_published_one():
    """Its first numbers of seed 0 are those that the authors' code gives."""
    draw = _Generator(0)
    assert [draw.below(1 << 64) for _ in range(2)] == [0x99EC5F36CB75F2B4, 0xBF6E1F784956452A]


@settings(deadline=None)
@given(GROUPS, st.sampled_from([0.0, 0.2, 0.49]), st.integers(0, _MASK))
def test_the_bootstrap_draws_what_its_header_says(groups, trim, seed):
    """The same groups, blocks and means as the plain one, draw by draw."""
    ours = stats.resample(groups, trim=trim, seed=seed, resamples=20)
    assert ours == pytest.approx(_resampled(groups, trim, seed, 20), rel=1e-9, abs=1e-9)


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=200))
def test_ascending_is_sorted(values):
    """As Python sorts."""
    assert stats.ascending(values).tolist() == sorted(values)


@settings(deadline=None)
@given(
    st.lists(st.integers(-5, 5), min_size=1, max_size=40),
    st.lists(st.integers(-5, 5), min_size=1, max_size=40),
)
def test_distances_are_those_of_the_definition(first, second):
    """The greatest gap between both shares at or below any value; with ties, of any lengths."""
    expected = max(
        abs(
            sum(x <= value for x in first) / len(first)
            - sum(x <= value for x in second) / len(second)
        )
        for value in first + second
    )
    ours = stats.distance(stats.ascending(first), stats.ascending(second))
    assert ours == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(2, 20))
def test_blocks_of_central_means_are_scipys(before, pairs):
    """A tenth off at each end; the last block takes the rest."""
    after = [value + 1 for value in before[::-1]]
    count = max(1, len(before) // pairs)
    edges = [*range(0, count * pairs, pairs)[:count], len(before)]
    expected = [
        math.log(scipy_stats.trim_mean(after[a:b], 0.1) / scipy_stats.trim_mean(before[a:b], 0.1))
        for a, b in itertools.pairwise(edges)
    ]
    assert stats.blocks(before, after, pairs, stats.Middle.CENTRAL) == pytest.approx(expected)


def test_the_place_of_a_change_is_the_plain_one():
    """Where the sums of ranks on both sides differ most, for their sizes."""
    draw = random.Random(12)
    for _ in range(50):
        ranks = [draw.gauss(0, 1) for _ in range(draw.randint(8, 40))]
        n = len(ranks)
        scores = {k: sum(ranks[:k]) ** 2 / (k * (n - k)) for k in range(4, n - 3)}
        place, _beyond = stats.change(ranks, side=4, permutations=1, enough=1, seed=1)
        assert scores[place] == pytest.approx(max(scores.values()))


def test_of_shuffles_as_many_come_to_as_much_as_luck_says():
    """Of ranks without a change their shuffles' share is evenly spread."""
    draw = random.Random(3)
    shares = []
    for seed in range(100):
        ranks = [float(rank) for rank in draw.sample(range(40), 40)]
        ranks = [rank - 19.5 for rank in ranks]
        _place, beyond = stats.change(ranks, side=4, permutations=200, enough=200, seed=seed)
        shares.append(beyond / 200)
    assert scipy_stats.kstest(shares, "uniform").pvalue > 0.001


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_number_is_refused(bad):
    """Nothing can be said of it."""
    values = array("d", [1.0, bad])
    with pytest.raises(ValueError, match="finite"):
        stats.ascending(values)
    with pytest.raises(ValueError, match="finite"):
        stats.resample([values], trim=0.2, seed=1, resamples=3)
    with pytest.raises(ValueError, match="finite"):
        stats.spread(values)

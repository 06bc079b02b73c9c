"""How sure a paired comparison is: blocks, and a bootstrap over processes and blocks in them.

Samples of one process share its luck: addresses, pages, what else ran. So the
resampling draws processes first, then blocks within each. The seed is fixed:
the same samples always give the same answer. What loops is C (opd/stats.h).
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import msgspec

from opd.stats.distribution import quantile
from opd.stats.tails import normal_cdf, student_cdf, student_quantile
from opd_native import stats as native
from opd_native.stats import Middle

if TYPE_CHECKING:
    from collections.abc import Sequence

RESAMPLES = 2000
SEED = 20_071_101
TRIM = 0.2
# Standard errors from the middle of which 2,000 draws still tell.
_RESOLVED = 3.0
BLOCK_PAIRS = 250
# Of all processes; more say no more, and cost time.
BLOCKS_MOST = 3000

Groups = list[list[float]]


class Resampled(msgspec.Struct, frozen=True):
    """An estimate, and what it came to when processes and blocks were drawn anew (ascending).

    ``freedom``: degrees of it, by Satterthwaite: where processes differ more
    than their blocks do, those count that there are processes.
    """

    estimate: float
    draws: list[float]
    n: int
    processes: int
    freedom: float

    def bound(self, share: float) -> float:
        """The one-sided bound that the truth is below with probability ``share``.

        The percentile is moved outward as Student's law does: few blocks know
        their own spread badly.
        """
        if self.n < 2:
            return math.copysign(math.inf, share - 0.5)
        wide = student_quantile(share, self.freedom) * math.sqrt(1 + 1 / self.freedom)
        if abs(wide) <= _RESOLVED:
            return quantile(self.draws, normal_cdf(wide))
        # So far out are too few draws: on as far again as the last that tell.
        last = quantile(self.draws, normal_cdf(math.copysign(_RESOLVED, wide)))
        return self.estimate + (last - self.estimate) * abs(wide) / _RESOLVED

    @property
    def error(self) -> float:
        """The standard error of the estimate; infinite when nothing is known of it."""
        if self.n < 2:
            return math.inf
        mean = math.fsum(self.draws) / len(self.draws)
        square = math.fsum((x - mean) ** 2 for x in self.draws) / (len(self.draws) - 1)
        return math.sqrt(square * (1 + 1 / self.freedom))

    def p_above(self, margin: float) -> float:
        """How likely an estimate so high is, were the truth ``margin`` or less."""
        error = self.error
        if math.isinf(error):
            return 1.0
        if error == 0.0:
            return 0.0 if self.estimate > margin else 1.0
        return student_cdf((margin - self.estimate) / error, self.freedom)


def log_ratios(before: Sequence[float], after: Sequence[float]) -> list[float]:
    """Logs of after by before, pair by pair. Raises ValueError unless all are above 0."""
    if len(before) != len(after):
        raise ValueError(f"{len(before)} samples and {len(after)} are no pairs")
    if any(not x > 0.0 for x in before) or any(not x > 0.0 for x in after):
        raise ValueError("a ratio needs samples above 0")
    return [math.log(b / a) for a, b in zip(before, after, strict=True)]


def blocks_of(
    before: Sequence[float],
    after: Sequence[float],
    pairs: int = BLOCK_PAIRS,
    middle: Middle = Middle.MEDIAN,
) -> list[float]:
    """Of each ``pairs`` pairs in order the log of the ratio of medians; a short rest joins in.

    ``middle``: where samples come in steps (few ticks each) medians jump by
    whole steps; there the mean of the central 80 % stands for a block. Arrays of
    doubles are not copied. Raises ValueError as log_ratios does.
    """
    if pairs <= 1:
        return log_ratios(before, after)
    if len(before) == len(after) == 0:
        return []
    return native.blocks(before, after, pairs, middle)


def trimmed_mean(values: Sequence[float], trim: float = TRIM) -> float:
    """The mean without the ``trim`` least and greatest share.

    >>> trimmed_mean([1.0, 2.0, 3.0, 4.0, 100.0])
    3.0
    """
    ordered = sorted(values)
    cut = int(len(ordered) * trim)
    kept = ordered[cut : len(ordered) - cut]
    return math.fsum(kept) / len(kept)


def resample(groups: Groups, *, resamples: int = RESAMPLES, seed: int = SEED) -> Resampled:
    """Draw processes and blocks in them anew. Raises ValueError without blocks."""
    groups = [group for group in groups if group]
    if not groups:
        raise ValueError("no blocks")
    groups = [thinned(group, max(2, BLOCKS_MOST // len(groups))) for group in groups]
    draws = native.resample(groups, trim=TRIM, seed=seed, resamples=resamples)
    pooled = [block for group in groups for block in group]
    freedom = _freedom(groups, len(pooled))
    return Resampled(trimmed_mean(pooled), draws, len(pooled), len(groups), freedom)


def _freedom(groups: Groups, n: int) -> float:
    """Of the variance between the groups' means and that within groups, as they are drawn."""
    count = len(groups)
    if count < 2 or n == count:
        return max(n - 1.0, 1.0)
    means = [math.fsum(group) / len(group) for group in groups]
    middle = math.fsum(means) / count
    between = math.fsum((mean - middle) ** 2 for mean in means) / (count - 1) / count
    square = math.fsum(
        (block - mean) ** 2 for group, mean in zip(groups, means, strict=True) for block in group
    )
    within = square / (n - count) / n
    if between + within == 0.0:
        return n - 1.0
    parts = between**2 / (count - 1) + within**2 / (n - count)
    return (between + within) ** 2 / parts


def thinned(blocks: list[float], most: int = BLOCKS_MOST) -> list[float]:
    """At most so many blocks: beyond that, means of neighbours."""
    every = math.ceil(len(blocks) / most)
    if every <= 1:
        return blocks
    parts = [blocks[at : at + every] for at in range(0, len(blocks), every)]
    return [math.fsum(part) / len(part) for part in parts]


def autocorrelation(values: Sequence[float]) -> float:
    """Of each with the next; 0 for too few or none that differ."""
    n = len(values)
    if n < 3:
        return 0.0
    mean = math.fsum(values) / n
    square = math.fsum((x - mean) ** 2 for x in values)
    if square == 0.0:
        return 0.0
    return math.fsum((a - mean) * (b - mean) for a, b in itertools.pairwise(values)) / square

"""Where a history of a measurement changed its level.

The place is where ranks before and after differ most; whether it is one, a
permutation test says (fixed seed), so that the choice of the place is paid for
and no outlier decides. What is found divides the history, and the parts are
looked at in turn.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from opd.stats.bootstrap import SEED
from opd.stats.distribution import median
from opd_native import stats as native

if TYPE_CHECKING:
    from collections.abc import Sequence

ALPHA = 0.001
_PERMUTATIONS = 2000
# Fewer on a side can be luck, whatever they are.
_SIDE_LEAST = 4
POINTS_MOST = 1000


class ChangePoint(msgspec.Struct, frozen=True):
    """``at``: the first of the new level. Medians on both sides, the change in percent."""

    at: int
    before: float
    after: float
    change_percent: float
    p: float


def change_points(
    values: Sequence[float], *, alpha: float = ALPHA, least_percent: float = 1.0
) -> list[ChangePoint]:
    """The changes of level in a history, in order; at most its last thousand are looked at."""
    skipped = max(0, len(values) - POINTS_MOST)
    values = values[skipped:]
    places: list[tuple[int, float]] = []
    pending = [(0, len(values))]
    while pending:
        begin, end = pending.pop()
        found = _split(values[begin:end], alpha)
        if found is None:
            continue
        at, p = begin + found[0], found[1]
        places.append((at, p))
        pending += [(begin, at), (at, end)]
    places.sort()
    edges = [0, *(at for at, _p in places), len(values)]
    points = []
    for (at, p), first, last in zip(places, edges, edges[2:], strict=False):
        before, after = median(values[first:at]), median(values[at:last])
        change = 100.0 * (after - before) / abs(before) if before else math.inf
        if abs(change) >= least_percent:
            points.append(ChangePoint(skipped + at, before, after, change, p))
    return points


def _split(values: Sequence[float], alpha: float) -> tuple[int, float] | None:
    """The best place to divide at, and how likely it is by luck; None when it may be."""
    n = len(values)
    if n < 2 * _SIDE_LEAST:
        return None
    enough = int(alpha * (_PERMUTATIONS + 1)) - 1
    if enough < 0:
        return None
    at, beyond = native.change(
        _centred_ranks(values),
        side=_SIDE_LEAST,
        permutations=_PERMUTATIONS,
        enough=enough,
        seed=SEED,
    )
    if at == 0 or beyond > enough:
        return None
    return at, (beyond + 1) / (_PERMUTATIONS + 1)


def _centred_ranks(values: Sequence[float]) -> list[float]:
    """Ranks with the mean taken off; those alike share theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    begin = 0
    while begin < len(order):
        end = begin
        while end + 1 < len(order) and values[order[end + 1]] == values[order[begin]]:
            end += 1
        for place in range(begin, end + 1):
            ranks[order[place]] = (begin + end) / 2.0 - (len(values) - 1) / 2.0
        begin = end + 1
    return ranks

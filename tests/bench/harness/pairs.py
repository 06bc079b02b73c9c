"""Two that take turns: the ratio of their medians, its interval, both spreads."""

from __future__ import annotations

from statistics import mean, median, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

HEADER = ("ratio", "95 %", "CV of the first", "of the second")
_RESAMPLES = 2000


def take_turns(
    pairs: int, draw: random.Random, first: Callable[[], float], second: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Measure both so often, in an order drawn each time, after a first pair that is dropped.

    Memory that the host has not backed yet is slow the first time.
    """
    told: tuple[list[float], list[float]] = ([], [])
    measures = (first, second)
    for turn in range(pairs + 1):
        order = [0, 1]
        draw.shuffle(order)
        for who in order:
            value = measures[who]()
            if turn:
                told[who].append(value)
    return told


def ratio_of(
    first: Sequence[float], second: Sequence[float], draw: random.Random
) -> tuple[float, float, float]:
    """Give the second's median by the first's, and its 95 % interval by resampling pairs."""
    ratios = []
    for _ in range(_RESAMPLES):
        chosen = [draw.randrange(len(second)) for _ in second]
        ratios.append(median([second[i] for i in chosen]) / median([first[i] for i in chosen]))
    ratios.sort()
    low, high = (ratios[int(share * (len(ratios) - 1))] for share in (0.025, 0.975))
    return median(second) / median(first), low, high


def cells(
    first: Sequence[float], second: Sequence[float], ratio: tuple[float, float, float]
) -> list[str]:
    """Give the cells under HEADER."""
    spread = [f"{100 * stdev(values) / mean(values):.1f} %" for values in (first, second)]
    return [f"{ratio[0]:.3f}", f"{ratio[1]:.3f}..{ratio[2]:.3f}", *spread]

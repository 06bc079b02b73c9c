"""Latency by working-set size, and the cache levels that a curve shows."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_STEEP = 1.12  # latencies of neighbours that differ more are looked between
_FLAT = 1.22  # a level's latencies stay within this of its plateau
_APART = 1.45  # the next level is at least so much slower
_OCTAVE = 8  # points at most


class Level(NamedTuple):
    """A cache (or memory, whose bytes are None) as the curve shows it."""

    bytes: float | None
    ns: float


def sweep(least: int, most: int, measure: Callable[[int], float]) -> list[tuple[int, float]]:
    """The curve: two sizes an octave, more between neighbours that differ much.

    Sizes are multiples of 1 KiB, from 4 KiB multiples of 4 KiB.
    """
    curve: dict[int, float] = {}
    size = float(least)
    while size < most * 1.01:
        point = _rounded(size)
        curve.setdefault(point, measure(point))
        size *= math.sqrt(2)
    for _halving in range(2):
        points = sorted(curve)
        for low, high in pairwise(points):
            ratio = curve[high] / curve[low]
            between = _rounded(math.sqrt(low * high))
            if max(ratio, 1 / ratio) > _STEEP and low < between < high:
                curve[between] = measure(between)
    return sorted(curve.items())


def _rounded(size: float) -> int:
    unit = 4096 if size >= 4096 * _OCTAVE else 1024
    return max(unit, round(size / unit) * unit)


def find_levels(curve: Sequence[tuple[int, float]]) -> list[Level]:
    """Plateaus of the curve, from the fastest; the last is what lies behind all caches.

    A plateau lasts while latencies stay near its own; a level's bytes are where
    the curve has gone half of the way (of logarithms) to the next plateau.
    """
    plateaus: list[tuple[float, int, int]] = []  # ns, first and last point
    start = 0
    while start < len(curve):
        end = start
        ns = curve[start][1]
        while end + 1 < len(curve) and curve[end + 1][1] <= ns * _FLAT:
            end += 1
            ns = min(ns, curve[end][1])
        # Half an octave is the least that is a plateau and no slope.
        if curve[end][0] >= curve[start][0] * 1.4:
            middle = sorted(latency for _size, latency in curve[start : end + 1])
            ns = middle[len(middle) // 2]
            if plateaus and ns < plateaus[-1][0] * _APART:
                faster = plateaus.pop()
                plateaus.append((faster[0], faster[1], end))
            else:
                plateaus.append((ns, start, end))
        start = end + 1
    levels = []
    for (ns, _first, end), (after, begin, _end) in pairwise(plateaus):
        half = math.sqrt(ns * after)
        bytes_ = float(curve[end][0])
        for (low, below), (high, above) in pairwise(curve[end : begin + 1]):
            if below <= half <= above and above > below:
                share = math.log(half / below) / math.log(above / below)
                bytes_ = low * (high / low) ** share
                break
        levels.append(Level(bytes_, ns))
    if plateaus:
        behind = sorted(ns for size, ns in curve if size * 2 >= curve[-1][0])
        levels.append(Level(None, behind[len(behind) // 2]))
    return levels


def sysfs_caches(cpu: int, sys: Path = Path("/sys")) -> list[tuple[int, int]]:
    """(level, bytes) of the data caches that sysfs says the CPU has."""
    found = []
    for index in sorted((sys / f"devices/system/cpu/cpu{cpu}/cache").glob("index[0-9]*")):
        kind, level, size = (
            (index / name).read_text(encoding="ascii").strip() for name in ("type", "level", "size")
        )
        if kind != "Instruction":
            unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1:], 0)
            found.append((int(level), int(size[:-1]) * unit if unit else int(size)))
    return found

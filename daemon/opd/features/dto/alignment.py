"""Where code lies within a line of the cache, taken out of a comparison of builds.

A loop of a few instructions can cost twice as much where it crosses a boundary
of 32 or 64 bytes: in one of four places, if compilers align by 16. So layouts
come in sets of four that hold each place once, the same for both builds, and
what the places do to the ratio is subtracted before the layouts are drawn anew.
"""

from __future__ import annotations

import math
import random
import statistics
from typing import TYPE_CHECKING

from opd.stats.bootstrap import trimmed_mean
from opd.stats.tails import student_quantile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opd.stats.bootstrap import Groups

LINE, STEP = 64, 16
PLACES = LINE // STEP
# Where the bounds of a verdict are, of one of four looks.
_SHARE = 1 - 0.01 / 4


def place_of(layout: int) -> int:
    """Bytes into a line at which both builds of a layout begin: each once in a set of four.

    >>> sorted(place_of(layout) for layout in range(4))
    [0, 16, 32, 48]
    """
    order = list(range(PLACES))
    random.Random(layout // PLACES).shuffle(order)  # noqa: S311 - no secret
    return order[layout % PLACES] * STEP


def by_place(effects: Mapping[int, list[float]]) -> list[float]:
    """What each place comes to: logs, as the blocks of layouts are; [] where one lacks any."""
    found: dict[int, list[float]] = {}
    for layout, blocks in effects.items():
        found.setdefault(place_of(layout), []).append(trimmed_mean(blocks))
    if len(found) < PLACES or len({len(means) for means in found.values()}) > 1:
        return []
    return [statistics.fmean(found[place]) for place in sorted(found)]


def levelled(effects: Mapping[int, list[float]]) -> Groups:
    """The blocks of each layout without what its place does; as they are where places lack any.

    What is left of a layout's own is made larger: of so many layouts as many
    fewer are free as there are places, and the bounds do not know that.
    """
    layouts = sorted(effects)
    places = by_place(effects)
    free = len(layouts) - PLACES
    if not places or free < 1:
        return [effects[layout] for layout in layouts]
    middle = statistics.fmean(places)
    wider = math.sqrt((len(layouts) - 1) / free)
    wider *= student_quantile(_SHARE, free) / student_quantile(_SHARE, len(layouts) - 1)
    groups = []
    for layout in layouts:
        own = trimmed_mean(effects[layout])
        moved = (own - places[place_of(layout) // STEP]) * wider + middle - own
        groups.append([block + moved for block in effects[layout]])
    return groups

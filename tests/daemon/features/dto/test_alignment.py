"""What the place of code in a line does is no change, and hides none."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from dto_libraries import compiled, source
from opd.features.dto.alignment import LINE, PLACES, by_place, levelled, place_of
from opd.features.dto.libraries import read_library
from opd.features.dto.linking import Linker, Side, table
from opd.stats.verdict import Margins, judge
from opd_native.dto import Functions
from opd_native.dto_load import Library

# Logs: one of the builds is slow in one place, the other in another.
SLOW = {0: 0.65, 16: 0.0, 32: -0.55, 48: 0.0}


def layouts(count, change, *, own=0.003, seed=1):
    """Blocks of so many layouts, with a change and what the places do."""
    draw = random.Random(seed)
    return {
        at: [
            change + SLOW[place_of(at)] + luck + draw.gauss(0, 0.01)
            for luck in [draw.gauss(0, own)]
            for _ in range(20)
        ]
        for at in range(count)
    }


@pytest.mark.parametrize("first", range(0, 64, PLACES))
def test_four_in_turn_have_all_places(first):
    """In an order of their own."""
    assert {place_of(at) for at in range(first, first + PLACES)} == {0, 16, 32, 48}
    assert len({tuple(place_of(4 * n + at) for at in range(4)) for n in range(16)}) > 4


@pytest.mark.parametrize(("change", "result"), [(0.05, "REGRESSED"), (0.0, "OK")])
def test_places_do_not_hide_a_change(change, result):
    """As they are such layouts decide nothing; levelled, eight are enough."""
    found = layouts(8, change + 0.0, own=0.002)
    middle = statistics.fmean(SLOW.values())
    margins = Margins(low=0.005 + middle, high=0.02 + middle)
    plain = judge([found[at] for at in sorted(found)], margins=margins)
    assert plain.result == "UNDECIDED"
    assert judge(levelled(found), margins=margins).result == result


def test_levelled_keeps_the_mean_and_errs_seldom():
    """Of 200 comparisons without a change at most as many alarms as the level says."""
    middle = statistics.fmean(SLOW.values())
    found = layouts(16, 0.0)
    means = [statistics.fmean(group) for group in levelled(found)]
    assert math.isclose(statistics.fmean(means), middle, abs_tol=0.005)
    alarms = 0
    for seed in range(200):
        groups = levelled(layouts(8, 0.0, own=0.02, seed=seed))
        alarms += judge(groups, margins=Margins(low=middle, high=1.0)).result == "REGRESSED"
    # 0.25 % a look: more than 4 of 200 come up once in 500 times.
    assert alarms <= 4


def test_layouts_that_lack_a_place_stay_as_they_are():
    """So do as few as there are places: nothing would be left of them."""
    for count in (1, 3, 6):
        found = layouts(count, 0.0)
        assert by_place(found) == []
        assert levelled(found) == [found[at] for at in range(count)]
    found = layouts(PLACES, 0.0)
    assert levelled(found) == [found[at] for at in range(PLACES)]


def test_both_builds_begin_at_the_place(tmp_path):
    """By their addresses: the first function of each begins its code."""
    library = read_library(compiled(tmp_path, "x", source(), kind="o"))
    sides = [Side("opd_baseline_", library), Side("opd_current_", library)]
    linker = Linker(sides, tmp_path)
    for layout in range(PLACES):
        loaded = Library(str(linker.layout(layout)), own_namespace=False)
        places = [
            Functions.at(loaded.table(table(side.prefix), 4)).addresses[0] % LINE for side in sides
        ]
        starts = {(place - place_of(layout)) % LINE for place in places}
        assert len(starts) == 1, "both alike"
        assert starts <= {0, 16, 32, 48}

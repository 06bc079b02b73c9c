import random

import pytest

from opd.stats.changepoints import change_points


def history(draw, *levels, each=30, spread=0.01):
    """Points of one level after the other."""
    return [level * (1 + draw.gauss(0, spread)) for level in levels for _ in range(each)]


def test_a_level_without_a_change_has_none():
    """Of 100 histories of 60 points none is divided, or one by luck."""
    draw = random.Random(1)
    assert sum(bool(change_points(history(draw, 100.0, each=60))) for _ in range(100)) <= 1


@pytest.mark.parametrize("factor", [1.05, 0.95, 1.5])
def test_a_change_is_found_where_it_is(factor):
    """To within two points, with its size."""
    (found,) = change_points(history(random.Random(2), 100.0, 100.0 * factor))
    assert abs(found.at - 30) <= 2
    assert found.change_percent == pytest.approx(100 * (factor - 1), abs=1)


def test_there_and_back_are_two():
    """Each by itself."""
    found = change_points(history(random.Random(3), 100.0, 110.0, 100.0))
    assert [round(point.at / 30) for point in found] == [1, 2]
    assert [point.change_percent > 0 for point in found] == [True, False]


def test_outliers_are_no_level():
    """A few points far out change nothing."""
    points = history(random.Random(4), 100.0, each=60)
    for at in (7, 20, 41):
        points[at] *= 50
    assert change_points(points) == []


def test_small_changes_are_left_out():
    """Sure, and less than a percent."""
    assert change_points(history(random.Random(5), 100.0, 100.5, spread=0.0001)) == []


@pytest.mark.parametrize("points", [[], [1.0], [5.0] * 50, [1.0, 2.0] * 3])
def test_few_points_and_all_alike_are_none(points):
    """Nothing breaks on them."""
    assert change_points(points) == []


def test_only_the_last_thousand_are_looked_at():
    """Places still count from the first."""
    draw = random.Random(6)
    points = history(draw, 1.0, each=1500) + history(draw, 100.0, 150.0, each=100)
    assert [
        abs(point.at - 1600) <= 2 or abs(point.at - 1500) <= 2 for point in change_points(points)
    ] == [True, True]

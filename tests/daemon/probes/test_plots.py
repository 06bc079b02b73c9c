import itertools
import re
import xml.etree.ElementTree as ET

import pytest

from opd.probes.plots import Picture, page, pictures_of, svg


def run_of(number, threads, median, void=None):
    """Give a result with one metric."""
    metric = {"name": "rate", "unit": "1/s", "median": median, "low": median * 0.9}
    return {
        "probe": "p<x>",
        "id": number,
        "void": void,
        "parameters": {"threads": threads},
        "metrics": [{**metric, "high": median * 1.1}],
    }


def test_runs_that_differ_in_one_option_are_a_line_and_histograms():
    """A void run is not on the line."""
    runs = [run_of(1, 1, 10.0), run_of(2, 2, 18.0), run_of(3, 4, 1.0, void="killed")]
    samples = [{"rate": [9.0, 10.0, 11.0]}, {"rate": [18.0] * 9}, {}]
    line, first, second = pictures_of(runs, samples)
    assert [(x, y) for x, y, _low, _high in line.points] == [(1.0, 10.0), (2.0, 18.0)]
    assert sum(count for _a, count, _b, _c in first.points) == 3
    assert sum(count for _a, count, _b, _c in second.points) == 9


def test_pictures_are_xml_whatever_names_hold():
    """Each is well-formed, and every point is inside."""
    points = [(float(1 << n), 10.0**n, 9.0**n, 11.0**n) for n in range(12)]
    text = svg(Picture('<a & "b">', "size", "ns", "line", points))
    root = ET.fromstring(text)  # noqa: S314 - our own
    circles = [one for one in root.iter() if one.tag.endswith("circle")]
    assert len(circles) == 12
    assert all(0 <= float(c.get("cx")) <= 640 and 0 <= float(c.get("cy")) <= 360 for c in circles)


def test_sizes_far_apart_are_on_a_scale_of_powers():
    """Doublings are equally far from each other."""
    points = [(float(1 << n), 5.0, 5.0, 5.0) for n in range(10)]
    places = list(
        map(
            float, re.findall(r'circle cx="([0-9.]+)"', svg(Picture("t", "x", "y", "line", points)))
        )
    )
    steps = [b - a for a, b in itertools.pairwise(places)]
    assert max(steps) - min(steps) < 0.5


@pytest.mark.parametrize("values", [[5.0] * 10, [0.0, 0.0, 0.0], [-1.0, 0.0, 1.0]])
def test_values_alike_or_0_are_drawn(values):
    """Nothing divides by nothing."""
    (picture,) = pictures_of([run_of(1, 1, 5.0)], [{"rate": values}])
    assert ET.fromstring(svg(picture)) is not None  # noqa: S314 - our own


def test_the_page_has_all_of_them():
    """And its title, escaped."""
    picture = Picture("t", "x", "y", "line", [(1.0, 2.0, 1.0, 3.0)])
    text = page([picture, picture], "a<b")
    assert text.count("<svg") == 2
    assert "<h1>a&lt;b</h1>" in text

import itertools
import re
import sys
import xml.etree.ElementTree as ET

import pytest

from opd.errors import OperationFailedError
from opd.probes.plots import Picture, page, pictures_of, png, svg, svg_of_all


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


def swept(number, kind, **parameters):
    """Give a result of one of several options."""
    one = run_of(number, 1, float(number))
    return {**one, "parameters": {"kind": kind, **parameters}}


def test_runs_that_differ_in_more_are_lines_of_one_picture():
    """The number with most values is the axis; what else differs names the lines."""
    runs = [
        swept(at, kind, threads=threads)
        for at, (kind, threads) in enumerate(itertools.product("ab", (1, 2, 4)), 1)
    ]
    (picture,) = pictures_of(runs, [{}] * 6)
    assert picture.x == "threads"
    assert [name for name, _points in picture.lines] == ["kind=a", "kind=b"]
    assert [point[:2] for point in picture.more[0][1]] == [(1.0, 4.0), (2.0, 5.0), (4.0, 6.0)]
    text = svg(picture)
    assert text.count("<polyline") == 2
    assert "kind=b" in text


def test_threads_and_processes_are_one_axis():
    """Workers, as one or as the other."""
    runs = [swept(1, "a", threads=1, processes=0), swept(2, "a", threads=2, processes=0)]
    runs += [swept(3, "a", threads=1, processes=2), swept(4, "a", threads=1, processes=4)]
    (picture,) = pictures_of(runs, [{}] * 4)
    assert picture.x == "workers"
    assert [name for name, _points in picture.lines] == ["as=threads", "as=processes"]


def test_runs_of_several_probes_have_lines_of_their_own():
    """Options of one are not those of the other."""
    runs = [swept(1, "a", threads=1, processes=0), swept(2, "a", threads=2, processes=3)]
    runs += [{**run_of(3, 1, 3.0), "probe": "q"}, {**run_of(4, 2, 3.0), "probe": "q"}]
    assert [picture.x for picture in pictures_of(runs, [{}] * 4)] == ["workers", "threads"]


def test_histograms_and_curves_that_a_probe_counted_are_drawn():
    """What is in details, of whichever probe; what is of another kind is left alone."""
    details = {
        "latency": {"unit": "ns", "from": [1, 2], "to": [2, 900], "pages": [5, 1]},
        "curve": {"bytes": [4096, 8192], "ns": [1.0, 2.0]},
        "empty": {"unit": "ns", "from": [], "to": [], "pages": []},
        "other": [1, 2],
    }
    one = {**run_of(1, 1, 1.0), "details": details}
    histogram, curve = pictures_of([one], [{}])
    assert (histogram.kind, histogram.points[1]) == ("bars", (2, 1.0, 900, 0.0))
    assert (curve.x, curve.points[0]) == ("bytes", (4096.0, 1.0, 1.0, 1.0))


def test_several_are_one_svg_below_each_other():
    """Well-formed, and each at a place of its own."""
    picture = Picture("t", "x", "y", "line", [(1.0, 2.0, 1.0, 3.0)])
    root = ET.fromstring(svg_of_all([picture] * 3))  # noqa: S314 - our own
    assert [one.get("y") for one in root] == ["0", "360", "720"]
    assert svg_of_all([picture]) == svg(picture)


def test_png_without_its_library_names_the_extra(tmp_path, monkeypatch):
    """What to install, and what does without."""
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    picture = Picture("t", "x", "y", "line", [(1.0, 2.0, 1.0, 3.0)])
    with pytest.raises(OperationFailedError, match="matplotlib") as caught:
        png([picture], tmp_path / "a.png")
    assert "opd[plots]" in (caught.value.hint or "")


def test_png_is_a_picture(tmp_path):
    """With the library; names that look like mathematics do no harm."""
    pytest.importorskip("matplotlib")
    line = Picture("$x_{$", "$", "y", "line", [(1.0, 2.0, 1.0, 3.0), (99.0, 900.0, 1.0, 999.0)])
    bars = Picture("t", "x", "y", "bars", [(1.0, 2.0, 3.0, 0.0)])
    target = tmp_path / "a.png"
    png([line._replace(name="$a", more=(("b_$", line.points),)), bars], target)
    assert target.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(OperationFailedError, match=r"none/a\.png"):
        png([bars], tmp_path / "none" / "a.png")

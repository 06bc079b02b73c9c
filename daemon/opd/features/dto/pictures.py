"""Distributions drawn: density, violin and ECDF of each operation's benchmarks.

Files are called distributions_PAGES_OPERATION_KIND: SVG always, PNG where
matplotlib is installed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from opd.errors import OperationFailedError
from opd.features.dto.suite import benchmark_of
from opd.probes.plots import Picture, png, svg_of_all
from opd.stats.distribution import quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from opd.features.declared import Samples

KINDS = ("density", "violin", "ecdf")
_GRID = 120
_STEPS = 100
_VERSIONS = (("baseline", "baseline_ns"), ("current", "current_ns"))
_THIN = 4000
# Tails reach far: what is drawn leaves out so much of either end.
_CUT = 0.005


def write_pictures(
    results: Sequence[dict[str, Any]],
    samples: Samples,
    directory: Path,
    say: Callable[[str], None],
) -> None:
    """Three files a kind of pages and operation. ``say``: what could not be drawn."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in results:
        if one["void"] is None and one["metrics"]:
            key = (one["parameters"]["page"], one["parameters"]["op"])
            groups.setdefault(key, []).append(one)
    can_png = True
    for (page, op), members in groups.items():
        drawn: dict[str, list[Picture]] = {kind: [] for kind in KINDS}
        for one in members:
            columns = samples(one)
            for kind in KINDS:
                drawn[kind] += pictures_of_cell(one, columns, kind)
        for kind, pictures in drawn.items():
            if not pictures:
                continue
            base = directory / f"distributions_{page}_{op}_{kind}"
            base.with_suffix(".svg").write_text(svg_of_all(pictures), encoding="utf-8")
            if can_png:
                try:
                    png(pictures, base.with_suffix(".png"))
                except OperationFailedError as error:
                    can_png = False
                    say(f"pictures are SVG only: {error.message}")


def pictures_of_run(one: dict[str, Any], columns: Any) -> list[Picture]:
    """All three of a run."""
    return [picture for kind in KINDS for picture in pictures_of_cell(one, columns, kind)]


def pictures_of_cell(one: dict[str, Any], columns: Any, kind: str) -> list[Picture]:
    """The two distributions of a run as one picture; none without samples."""
    parameters = one["parameters"]
    title = f"{benchmark_of(parameters)} {parameters['mode']}, {parameters['page']} pages"
    lines = [
        (version, _line(_middle(values), kind, at))
        for at, (version, metric) in enumerate(_VERSIONS)
        if len(values := columns.get((metric, -1), ())) > 2
    ]
    if not lines:
        return []
    (name, points), *more = lines
    x, y = {
        "density": ("ns", "density"),
        "violin": ("", "ns"),
        "ecdf": ("ns", "share below"),
    }[kind]
    form = "violin" if kind == "violin" else "curve"
    return [Picture(f"{title}: {kind}", x, y, form, points, name, tuple(more))]


def _middle(values: Sequence[float]) -> list[float]:
    """Ascending, without either end, and of very many each k-th."""
    ordered = sorted(values)
    cut = int(len(ordered) * _CUT)
    kept = ordered[cut : len(ordered) - cut]
    step = max(1, len(kept) // _THIN)
    return kept[step // 2 :: step] if step > 1 else kept


def _line(ordered: Sequence[float], kind: str, at: int) -> list[tuple[float, float, float, float]]:
    """Points of a curve (x, y, y, y); of a violin (its place, ns, width, 0)."""
    if kind == "ecdf":
        found = []
        for step in range(_STEPS + 1):
            share = step / _STEPS
            found.append((quantile(ordered, share), share, share, share))
        return found
    density = _density(ordered)
    if kind == "violin":
        most = max(value for _x, value in density) or 1.0
        return [(float(at), x, value / most, 0.0) for x, value in density]
    return [(x, value, value, value) for x, value in density]


def _density(ordered: Sequence[float]) -> list[tuple[float, float]]:
    """The density by a Gaussian kernel with Silverman's width, on a grid."""
    n = len(ordered)
    mean = math.fsum(ordered) / n
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in ordered) / max(n - 1, 1))
    between = (quantile(ordered, 0.75) - quantile(ordered, 0.25)) / 1.349
    width = 0.9 * min(deviation, between or deviation) * n**-0.2 or abs(mean) * 1e-6 or 1.0
    first, last = ordered[0] - 3 * width, ordered[-1] + 3 * width
    step = (last - first) / (_GRID - 1)
    # Samples into the grid first: each kernel then is of a cell, not of a sample.
    cells = [0.0] * _GRID
    for x in ordered:
        cells[min(_GRID - 1, round((x - first) / step))] += 1.0
    width = max(width, step)
    reach = math.ceil(4 * width / step)
    norm = 1.0 / (n * width * math.sqrt(2 * math.pi))
    kernel = [math.exp(-0.5 * (at * step / width) ** 2) * norm for at in range(reach + 1)]
    found = []
    for at in range(_GRID):
        begin, end = max(0, at - reach), min(_GRID - 1, at + reach)
        value = sum(cells[to] * kernel[abs(to - at)] for to in range(begin, end + 1) if cells[to])
        found.append((first + at * step, value))
    return found

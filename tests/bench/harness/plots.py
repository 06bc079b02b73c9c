"""Pictures as inline SVG, whose colours are the page's: dark or light as the reader has it."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.harness.figures import Plot, Series

# Colours that stand for the page's variables until the SVG is written.
_INK, _GRID = "#010203", "#040506"
_SERIES = [f"#0a0b{number:02x}" for number in range(1, 9)]
_VARIABLES = {_INK: "var(--ink)", _GRID: "var(--grid)"} | {
    color: f"var(--series-{number})" for number, color in enumerate(_SERIES, 1)
}


def svg(plot: Plot) -> str:
    """Draw one plot. Needs matplotlib (dependency group ``bench``)."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    style = {
        "svg.fonttype": "none",  # text stays text: it is found, and takes the page's font
        "font.size": 9,
        "axes.prop_cycle": mpl.cycler(color=_SERIES),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.color": _GRID,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
        "legend.frameon": False,
    } | dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK
    )
    with mpl.rc_context(style):
        figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
        (_bars if plot.kind == "bars" else _lines)(axes, plot.series)
        if plot.scale == "log":
            axes.set_yscale("log")
        elif all(float(point[1]) >= 0 for series in plot.series for point in series.points):
            axes.set_ylim(bottom=0)
        if plot.limit is not None:
            axes.axhline(plot.limit, color=_INK, linestyle=":", linewidth=1)
            axes.annotate(
                f"budget {plot.limit:g}",
                (1, plot.limit),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="bottom",
            )
        axes.set_xlabel(plot.x)
        axes.set_ylabel(plot.y)
        if len(plot.series) > 1:
            figure.legend(loc="outside upper center", ncols=min(len(plot.series), 6))
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        plt.close(figure)
    return _inline(buffer.getvalue(), plot.title)


def _lines(axes: Any, series: list[Series]) -> None:
    for each in series:
        xs = [point[0] for point in each.points]
        axes.plot(xs, [point[1] for point in each.points], label=each.name, linewidth=1.4)


def _bars(axes: Any, series: list[Series]) -> None:
    places: dict[str, int] = {}
    for each in series:
        for point in each.points:
            places.setdefault(str(point[0]), len(places))
    width = 0.8 / max(len(series), 1)
    for number, each in enumerate(series):
        at = [places[str(p[0])] + (number - (len(series) - 1) / 2) * width for p in each.points]
        heights = [float(point[1]) for point in each.points]
        axes.bar(at, heights, width * 0.9, label=each.name)
        ranges = [(x, p) for x, p in zip(at, each.points, strict=True) if len(p) > 3]
        for x, (_, _, low, high) in ranges:
            axes.plot([x, x], [low, high], color=_INK, linewidth=1)
    axes.set_xticks(range(len(places)), list(places))


def _inline(text: str, title: str) -> str:
    text = text[text.index("<svg") :]
    for color, variable in _VARIABLES.items():
        text = text.replace(color, variable)
    # The page scales it: a width and height of its own would not fit a phone.
    head, tail = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{title}">{tail}'

"""What a section gives: figures, tables, plots and remarks."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Figure:
    """One number under a dotted name; ``low`` and ``high`` are the extremes of ``n`` repeats."""

    key: str
    value: float | None
    unit: str
    n: int = 1
    low: float | None = None
    high: float | None = None
    note: str = ""


def summary(key: str, values: list[float], unit: str, note: str = "") -> Figure:
    """Give the median of repeats with its extremes."""
    if not values:
        return Figure(key, None, unit, 0, note=note or "nothing was measured")
    middle = statistics.median(values)
    return Figure(key, middle, unit, len(values), min(values), max(values), note)


@dataclass
class Table:
    """Rows of text in columns under a title."""

    title: str
    header: list[str]
    rows: list[list[str]]


@dataclass
class Series:
    """A line or a group of bars: points are (x, y) or (x, y, low, high); a bar's x is text."""

    name: str
    points: list[list[float | str]]


@dataclass
class Plot:
    """A picture of some series; ``kind`` is line or bars, ``scale`` of y linear or log."""

    title: str
    x: str
    y: str
    series: list[Series]
    kind: str = "line"
    scale: str = "linear"
    limit: float | None = None  # a budget's line


@dataclass
class Findings:
    """All that one section found, so far."""

    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def clear(self) -> None:
        """Forget everything: a section that is still going on says it anew."""
        for things in (self.figures, self.tables, self.plots, self.notes):
            things.clear()


@dataclass(frozen=True)
class Line:
    """A straight line through points, with the half width of the slope's 95 % interval."""

    slope: float
    intercept: float
    half_width: float
    n: int


def fit_line(points: list[tuple[float, float]]) -> Line | None:
    """Fit by least squares; None where there are fewer than three points in x.

    The interval assumes independent errors: of a series in time it is too
    narrow rather than too wide.
    """
    if len(points) < 3 or len({x for x, _ in points}) < 3:
        return None
    xs, ys = [x for x, _ in points], [y for _, y in points]
    slope, intercept = statistics.linear_regression(xs, ys)
    mean = statistics.fmean(xs)
    spread = sum((x - mean) ** 2 for x in xs)
    left = sum((y - intercept - slope * x) ** 2 for x, y in points)
    error = math.sqrt(left / (len(points) - 2) / spread)
    return Line(slope, intercept, _student_95(len(points) - 2) * error, len(points))


def _student_95(freedom: int) -> float:
    """Quantile 0.975 of Student's t: the tabulated one, or the next smaller freedom's."""
    table = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 7: 2.36, 10: 2.23, 20: 2.09, 40: 2.02}
    return next((table[known] for known in sorted(table, reverse=True) if known <= freedom), 12.71)

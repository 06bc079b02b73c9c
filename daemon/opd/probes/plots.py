"""Pictures of runs as SVG, alone or in one HTML page: histograms, and sweeps as lines.

Written by hand: a daemon's client needs no plotting library for axes and dots.
"""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 20, 40, 50
_BINS = 60
_MANY = 400
# What spreads over more than this is drawn on a scale of powers.
_LOG_FROM = 32.0
_LINE = "#1f5fa8"
_TICKS = 5


class Picture(NamedTuple):
    """Points with where the truth lies (x, y, low, high), or bars (from, count, to, 0)."""

    title: str
    x: str
    y: str
    kind: str  # line or bars
    points: list[tuple[float, float, float, float]]


def pictures_of(
    results: Sequence[dict[str, Any]], samples: Sequence[dict[str, Sequence[float]]]
) -> list[Picture]:
    """A line for each metric over the one option in which the runs differ, and histograms.

    ``samples``: of each result the raw ones by metric.
    """
    found = _lines([one for one in results if not one["void"]])
    for one, columns in zip(results, samples, strict=True):
        for metric in one["metrics"]:
            values = columns.get(metric["name"], ())
            if len(values) > 2:
                title = f"{one['probe']} {one['id']}: {metric['name']}, {len(values)} samples"
                found.append(Picture(title, metric["unit"], "samples", "bars", _histogram(values)))
    return found


def _lines(results: Sequence[dict[str, Any]]) -> list[Picture]:
    options = [
        name
        for name in (results[0]["parameters"] if results else ())
        if len({str(one["parameters"].get(name)) for one in results}) > 1
        and all(_is_number(one["parameters"].get(name)) for one in results)
    ]
    if len(options) != 1:
        return []
    (option,) = options
    found = []
    for name in [metric["name"] for metric in results[0]["metrics"]]:
        points = sorted(
            (float(one["parameters"][option]), metric["median"], metric["low"], metric["high"])
            for one in results
            for metric in one["metrics"]
            if metric["name"] == name
        )
        unit = next(m["unit"] for m in results[0]["metrics"] if m["name"] == name)
        title = f"{results[0]['probe']}: {name}, median with its interval"
        found.append(Picture(title, option, unit, "line", points))
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _histogram(values: Sequence[float]) -> list[tuple[float, float, float, float]]:
    """Counts of equal steps; of many samples without the half percent at either end."""
    from opd.stats.distribution import quantile

    ordered = sorted(values)
    cut = 0.005 if len(ordered) >= _MANY else 0.0
    first, last = quantile(ordered, cut), quantile(ordered, 1.0 - cut)
    step = (last - first) / _BINS or 1.0
    counts = [0] * _BINS
    for value in ordered:
        if first <= value <= last:
            counts[min(int((value - first) / step), _BINS - 1)] += 1
    return [
        (first + at * step, float(count), first + (at + 1) * step, 0.0)
        for at, count in enumerate(counts)
    ]


class _Scale:
    """From values to places on an axis."""

    def __init__(self, values: Sequence[float], begin: float, end: float, *, zero: bool) -> None:
        low, high = min(values), max(values)
        self.is_log = not zero and low > 0 and high / low > _LOG_FROM
        if zero:
            low = min(low, 0.0)
        if not self.is_log and not zero:
            room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
            low, high = low - room, high + room
        self._low, self._high = self._bent(low), self._bent(high)
        if self._low == self._high:
            self._high += 1.0
        self._begin, self._end = begin, end

    def _bent(self, value: float) -> float:
        return math.log(value) if self.is_log else value

    def at(self, value: float) -> float:
        """The place of a value."""
        share = (self._bent(value) - self._low) / (self._high - self._low)
        return round(self._begin + share * (self._end - self._begin), 1)

    def ticks(self) -> list[float]:
        """Values to write at the axis."""
        steps = [self._low + (self._high - self._low) * at / (_TICKS - 1) for at in range(_TICKS)]
        return [math.exp(step) for step in steps] if self.is_log else steps


def svg(picture: Picture) -> str:
    """The picture as an SVG document."""
    bars = picture.kind == "bars"
    xs = [point[0] for point in picture.points] + ([p[2] for p in picture.points] if bars else [])
    ys = [cell for p in picture.points for cell in (p[1:2] if bars else p[1:])]
    across = _Scale(xs, _LEFT, _WIDTH - _RIGHT, zero=False)
    up = _Scale(ys, _HEIGHT - _BOTTOM, _TOP, zero=bars)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}"'
        f' viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">'
    )
    parts = [
        head,
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 22, picture.title, size=14),
        _text(_WIDTH / 2, _HEIGHT - 10, picture.x, anchor="middle"),
        _text(14, _TOP - 8, picture.y),
    ]
    for value in across.ticks():
        x = across.at(value)
        parts.append(_stroke(x, _TOP, x, _HEIGHT - _BOTTOM, "#ddd"))
        parts.append(_text(x, _HEIGHT - _BOTTOM + 18, _short(value), anchor="middle"))
    for value in up.ticks():
        y = up.at(value)
        parts.append(_stroke(_LEFT, y, _WIDTH - _RIGHT, y, "#ddd"))
        parts.append(_text(_LEFT - 8, y + 4, _short(value), anchor="end"))
    parts += _bars(picture, across, up) if bars else _dots(picture, across, up)
    return "\n".join([*parts, "</svg>", ""])


def _bars(picture: Picture, across: _Scale, up: _Scale) -> list[str]:
    base = up.at(0.0)
    return [
        f'<rect x="{across.at(begin)}" y="{up.at(count)}"'
        f' width="{max(across.at(end) - across.at(begin) - 0.5, 0.5):.1f}"'
        f' height="{base - up.at(count):.1f}" fill="{_LINE}"/>'
        for begin, count, end, _ in picture.points
        if count
    ]


def _dots(picture: Picture, across: _Scale, up: _Scale) -> list[str]:
    places = [(across.at(x), up.at(y)) for x, y, _low, _high in picture.points]
    path = " ".join(f"{x},{y}" for x, y in places)
    parts = [f'<polyline points="{path}" fill="none" stroke="{_LINE}" stroke-width="1.5"/>']
    for x, _y, low, high in picture.points:
        parts.append(_stroke(across.at(x), up.at(low), across.at(x), up.at(high), _LINE))
    return parts + [f'<circle cx="{x}" cy="{y}" r="3" fill="{_LINE}"/>' for x, y in places]


def page(pictures: Sequence[Picture], title: str) -> str:
    """All of them as one HTML page that needs nothing else."""
    body = "\n".join(svg(picture) for picture in pictures)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title></head>\n<body>\n<h1>{html.escape(title)}</h1>\n"
        f"{body}</body></html>\n"
    )


def _stroke(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    words = html.escape(text)
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}">{words}</text>'


def _short(value: float) -> str:
    """A number of few letters.

    >>> _short(65536.0), _short(1.2345)
    ('65.5k', '1.23')
    """
    for letter, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"

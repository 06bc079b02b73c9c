"""Pictures of runs as SVG, alone or in one HTML page, and as PNG.

SVG is written by hand: a daemon's client needs no plotting library for axes and
dots. PNG needs matplotlib, an extra.
"""

from __future__ import annotations

import html
import importlib
import math
from typing import TYPE_CHECKING, Any

from opd.errors import OperationFailedError
from opd.probes.pictures import Picture, pictures_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from opd.probes.pictures import Point

__all__ = ["Picture", "page", "pictures_of", "png", "svg", "svg_of_all"]

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 20, 40, 50
# What spreads over more than this is drawn on a scale of powers.
_LOG_FROM = 32.0
_LINE = "#1f5fa8"
_COLOURS = (
    *(_LINE, "#c2452d", "#3a8a3e", "#8a4fa8", "#b8860b", "#008b8b", "#5a5a5a", "#d1478c"),
    *("#6b8e23", "#4169e1", "#a0522d", "#000000"),
)
_TICKS = 5
_VIOLIN = 0.4  # half of its width; one stands at each whole number
_DPI = 110
EXTRA = "plots"
PNG_MOST = 100  # below each other; matplotlib draws no picture higher than 65,535 dots


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
    points = [point for _name, line in picture.lines for point in line]
    xs = [point[0] for point in points] + ([p[2] for p in points] if bars else [])
    ys = [cell for p in points for cell in (p[1:2] if picture.kind != "line" else p[1:])]
    if picture.kind == "violin":
        xs = [-_VIOLIN, len(picture.lines) - 1 + _VIOLIN]
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
    for value in () if picture.kind == "violin" else across.ticks():
        x = across.at(value)
        parts.append(_stroke(x, _TOP, x, _HEIGHT - _BOTTOM, "#ddd"))
        parts.append(_text(x, _HEIGHT - _BOTTOM + 18, _short(value), anchor="middle"))
    for value in up.ticks():
        y = up.at(value)
        parts.append(_stroke(_LEFT, y, _WIDTH - _RIGHT, y, "#ddd"))
        parts.append(_text(_LEFT - 8, y + 4, _short(value), anchor="end"))
    if bars:
        parts += _bars(picture, across, up)
    for at, (name, line) in enumerate(() if bars else picture.lines):
        colour = _COLOURS[at % len(_COLOURS)]
        if picture.kind == "violin":
            parts.append(_violin(line, across, up, colour))
        elif picture.kind == "curve":
            parts.append(_curve(line, across, up, colour))
        else:
            parts += _dots(line, across, up, colour)
        if name:
            parts.append(_text(_LEFT + 8, _TOP + 14 + 14 * at, name, colour=colour))
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


def _curve(line: Sequence[Point], across: _Scale, up: _Scale, colour: str) -> str:
    path = " ".join(f"{across.at(x)},{up.at(y)}" for x, y, _low, _high in line)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _violin(line: Sequence[Point], across: _Scale, up: _Scale, colour: str) -> str:
    """Points (place, value, width of 0 to 1): the outline to both sides."""
    right = [(across.at(x + _VIOLIN * wide), up.at(y)) for x, y, wide, _ in line]
    left = [(across.at(x - _VIOLIN * wide), up.at(y)) for x, y, wide, _ in line]
    path = " ".join(f"{x},{y}" for x, y in [*right, *reversed(left)])
    return f'<polygon points="{path}" fill="{colour}" fill-opacity="0.5" stroke="{colour}"/>'


def _dots(line: Sequence[Point], across: _Scale, up: _Scale, colour: str) -> list[str]:
    places = [(across.at(x), up.at(y)) for x, y, _low, _high in line]
    path = " ".join(f"{x},{y}" for x, y in places)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>']
    for x, _y, low, high in line:
        parts.append(_stroke(across.at(x), up.at(low), across.at(x), up.at(high), colour))
    return parts + [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in places]


def svg_of_all(pictures: Sequence[Picture]) -> str:
    """All of them below each other as one SVG document."""
    if len(pictures) == 1:
        return svg(pictures[0])
    height = _HEIGHT * len(pictures)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"'
        f' viewBox="0 0 {_WIDTH} {height}">'
    )
    parts = [head]
    for at, picture in enumerate(pictures):
        parts.append(svg(picture).replace("<svg ", f'<svg y="{at * _HEIGHT}" ', 1).rstrip())
    return "\n".join([*parts, "</svg>", ""])


def png(pictures: Sequence[Picture], target: Path) -> None:
    """Draw them below each other into a PNG file, at most PNG_MOST.

    Raises OperationFailedError without matplotlib, and for a file that cannot be written.
    """
    try:
        canvas = importlib.import_module("matplotlib.backends.backend_agg").FigureCanvasAgg
        made = importlib.import_module("matplotlib.figure").Figure
    except ImportError:
        raise OperationFailedError(
            "a PNG is drawn by matplotlib, which is not installed",
            hint=f"pip install 'opd[{EXTRA}]', or name FILE.svg or FILE.html, which need nothing",
        ) from None
    inches = (_WIDTH / _DPI * 1.4, _HEIGHT / _DPI * 1.4 * len(pictures))
    figure = made(figsize=inches, dpi=_DPI, layout="constrained")
    for at, picture in enumerate(pictures):
        axes = figure.add_subplot(len(pictures), 1, at + 1)
        # Names may hold what matplotlib reads as mathematics.
        axes.set_title(picture.title.replace("$", r"\$"), fontsize=10)
        axes.set_xlabel(picture.x.replace("$", r"\$"))
        axes.set_ylabel(picture.y.replace("$", r"\$"))
        axes.grid(visible=True, color="#ddd")
        axes.set_axisbelow(True)
        points = [point for _name, line in picture.lines for point in line]
        if picture.kind != "violin" and _is_wide([point[0] for point in points]):
            axes.set_xscale("log")
        if picture.kind == "bars":
            begins, counts, ends, _ = zip(*points, strict=True)
            widths = [end - begin for begin, end in zip(begins, ends, strict=True)]
            axes.bar(begins, counts, widths, align="edge", color=_LINE)
            continue
        if picture.kind in ("curve", "violin"):
            _draw_shapes(axes, picture)
            continue
        if _is_wide([cell for point in points for cell in point[1:]]):
            axes.set_yscale("log")
        for number, (name, line) in enumerate(picture.lines):
            xs, ys, lows, highs = zip(*line, strict=True)
            spread = [
                [max(y - low, 0.0) for y, low in zip(ys, lows, strict=True)],
                [max(high - y, 0.0) for y, high in zip(ys, highs, strict=True)],
            ]
            colour = _COLOURS[number % len(_COLOURS)]
            label = name.replace("$", r"\$") or None
            axes.errorbar(xs, ys, yerr=spread, marker="o", color=colour, label=label, capsize=2)
        if picture.name or picture.more:
            axes.legend(fontsize=8)
    try:
        canvas(figure).print_png(str(target))
    except OSError as error:
        raise OperationFailedError(f"{target}: {error.strerror}") from error


def _draw_shapes(axes: Any, picture: Picture) -> None:
    for number, (name, line) in enumerate(picture.lines):
        xs, ys, widths, _ = zip(*line, strict=True)
        colour = _COLOURS[number % len(_COLOURS)]
        if picture.kind == "curve":
            axes.plot(xs, ys, color=colour, label=name)
            continue
        left = [x - _VIOLIN * wide for x, wide in zip(xs, widths, strict=True)]
        right = [x + _VIOLIN * wide for x, wide in zip(xs, widths, strict=True)]
        axes.fill_betweenx(ys, left, right, color=colour, alpha=0.5, label=name)
        axes.set_xticks([])
    axes.legend(fontsize=8)


def _is_wide(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) > _LOG_FROM


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


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, colour: str = "black"
) -> str:
    words = html.escape(text)
    about = f'text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f'<text x="{x}" y="{y}" {about}>{words}</text>'


def _short(value: float) -> str:
    """A number of few letters.

    >>> _short(65536.0), _short(1.2345)
    ('65.5k', '1.23')
    """
    for letter, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"

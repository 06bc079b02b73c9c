"""Rows of text fitted to a terminal's width: what can be guessed is cut, numbers never."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP = 2
LEAST = 10
# What may be cut, in this order, and which end says least: an image's folders
# and a symbol's tail.
CUTS = (("image", "left"), ("symbol", "right"), ("comm", "right"))


def fit(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """Cut cells until the columns, GAP apart, fit ``width``; the header is the first row.

    Columns that are not in CUTS stay whole, and so does what is too wide even
    then: a terminal of 40 columns wraps.
    """
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    for name, side in CUTS:
        excess = sum(widths) + GAP * (len(widths) - 1) - width
        if excess <= 0:
            break
        if name not in header:
            continue
        at = header.index(name)
        widths[at] = max(widths[at] - excess, min(LEAST, widths[at]))
        for row in table:
            row[at] = _cut(row[at], widths[at], side)
    return table


def _cut(text: str, width: int, side: str) -> str:
    if len(text) <= width:
        return text
    return "…" + text[len(text) - width + 1 :] if side == "left" else text[: width - 1] + "…"

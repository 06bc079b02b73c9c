"""What samples can be told apart by: the keys of ``--sort`` and ``--where``.

A new one needs a line here and, where its texts are not those of ``names``, a
way to read them in :func:`Texts.of`.
"""

from __future__ import annotations

from array import array
from itertools import repeat
from typing import TYPE_CHECKING, Literal, NamedTuple

from opd_native.scan import CellColumn

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

UNKNOWN = "[unknown]"
NONE = "[none]"
MODES = ("user", "kernel")

KeyKind = Literal["text", "number", "mode", "event", "label"]


class KeyInfo(NamedTuple):
    """One key. ``rolled``: the roll-ups have it too.

    Cells are numbers: ``text`` of ``names``; ``number`` one more than what is
    shown; ``label`` of ``cgroups``, of which ``field`` is shown.
    """

    name: str
    column: CellColumn
    kind: KeyKind
    rolled: bool = True
    field: str = ""


KEYS = {
    key.name: key
    for key in (
        KeyInfo("comm", CellColumn.COMM, "text"),
        KeyInfo("pid", CellColumn.PID, "number", rolled=False),
        KeyInfo("image", CellColumn.IMAGE, "text"),
        KeyInfo("symbol", CellColumn.SYMBOL, "text"),
        KeyInfo("event", CellColumn.EVENT, "event"),
        KeyInfo("mode", CellColumn.MODE, "mode"),
        KeyInfo("thread", CellColumn.THREAD, "number", rolled=False),
        KeyInfo("cpu", CellColumn.CPU, "number", rolled=False),
        KeyInfo("cgroup", CellColumn.CGROUP, "label", field="path"),
        KeyInfo("unit", CellColumn.CGROUP, "label", field="unit"),
        KeyInfo("container", CellColumn.CGROUP, "label", field="container"),
    )
}
NUMBER_KEYS = frozenset(key.name for key in KEYS.values() if key.kind == "number")

_ASKED_AT_ONCE = 500


class Labels(NamedTuple):
    """A field of all cgroups: different texts, and for each cgroup's number which of them."""

    texts: list[str]
    which: array[int]


def read_labels(connection: sqlite3.Connection, field: str) -> Labels:
    """Of cgroups; 0 and what the store does not have is ``[unknown]``, an empty one ``[none]``."""
    texts = {UNKNOWN: 0}
    which = array("I", [0])
    have = {row[1] for row in connection.execute("PRAGMA table_info(cgroups)")}
    if field in have:  # a store of schema 1 has none of it
        for number, text in connection.execute(
            f"SELECT id, {field} FROM cgroups ORDER BY id"  # noqa: S608
        ):
            which.extend(repeat(0, number + 1 - len(which)))
            which[number] = texts.setdefault(text or NONE, len(texts))
    return Labels(list(texts), which)


def read_names(connection: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, str]:
    """The texts of numbers of ``names``."""
    asked = list(set(numbers))
    texts: dict[int, str] = {}
    for at in range(0, len(asked), _ASKED_AT_ONCE):
        some = asked[at : at + _ASKED_AT_ONCE]
        marks = ",".join(repeat("?", len(some)))
        texts.update(
            connection.execute(
                f"SELECT id, text FROM names WHERE id IN ({marks})",  # noqa: S608
                some,
            )
        )
    return texts


def show(
    key: KeyInfo,
    cells: Sequence[int],
    *,
    names: dict[int, str],
    events: Sequence[str],
    labels: dict[str, Labels],
) -> list[str] | list[int]:
    """A column of cells as a report shows it; ``labels`` by field."""
    if key.kind == "text":
        return [names.get(cell, UNKNOWN) for cell in cells]
    if key.kind == "number":
        return [cell - 1 for cell in cells]
    if key.kind == "mode":
        return [MODES[cell & 1] for cell in cells]
    if key.kind == "event":
        return [events[cell] for cell in cells]
    texts = labels[key.field].texts
    return [texts[cell] for cell in cells]

r"""Shell patterns over the texts of a store; SQLite matches them, without backtracking far.

``*`` any text, ``?`` any character, ``[a-z]`` and ``[!a-z]`` one of these or
none of them; ``\`` takes the next character as it is. Two things are not as in
a shell, since names are full of brackets: a pattern that is all in one pair of
them, as in ``[kernel]``, is itself, and so is a bracket without an end. A text
that equals the pattern matches too (``operator*``). Of paths a pattern without
``/`` may be of the last part alone (``libc*``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from opd.store.dictionary import text_hash

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

_ITSELF = re.compile(r"\[[^\[\]]*\]")
_SPECIAL = re.compile(r"[*?\[\\]")
# What stands behind the last slash: all but slashes is trimmed off the rest.
_LAST_PART = "substr(text, length(rtrim(text, replace(text, '/', ''))) + 1)"


class Pattern:
    """One pattern. ``paths``: the texts are paths."""

    def __init__(self, text: str, *, paths: bool = False) -> None:
        last = paths and "/" not in text
        if _ITSELF.fullmatch(text) or not _SPECIAL.search(text):
            self._plain = text
            self._where, self._values = "text = ?", [text]
            if last:
                self._where += " OR text GLOB ?"
                self._values.append("*/" + "".join(map(_literal, text)))
                self._plain = ""
            return
        glob = _glob_of(text)
        self._plain = ""
        self._where, self._values = "text = ? OR text GLOB ?", [text, glob]
        if last:
            self._where += f" OR (text GLOB ? AND {_LAST_PART} GLOB ?)"
            self._values += ["*/" + glob, glob]

    def names(self, connection: sqlite3.Connection) -> list[int]:
        """The numbers of the texts of ``names`` that match."""
        where, values = self._where, list[object](self._values)
        if self._plain:
            where, values = "hash = ? AND text = ?", [text_hash(self._plain), self._plain]
        return [
            number
            for (number,) in connection.execute(
                f"SELECT id FROM names WHERE {where}",  # noqa: S608
                values,
            )
        ]

    def matching(self, connection: sqlite3.Connection, texts: Iterable[str]) -> list[bool]:
        """For each text whether it matches."""
        question = f"SELECT {self._where} FROM (SELECT ? AS text)"  # noqa: S608
        return [
            bool(connection.execute(question, [*self._values, text]).fetchone()[0])
            for text in texts
        ]


def _literal(letter: str) -> str:
    return f"[{letter}]" if letter in "*?[" else letter


def _glob_of(text: str) -> str:
    """The pattern as SQLite spells it."""
    made: list[str] = []
    at = 0
    while at < len(text):
        letter = text[at]
        if letter == "\\" and at + 1 < len(text):
            made.append(_literal(text[at + 1]))
            at += 2
            continue
        if letter == "[":
            first = at + 1 + (text[at + 1 : at + 2] in ("!", "^"))
            # A bracket that comes first is one of the characters.
            end = text.find("]", first + 1)
            if end >= 0:
                negated = "^" if first > at + 1 else ""
                made.append(f"[{negated}{text[first:end]}]")
                at = end + 1
                continue
        made.append(letter if letter in "*?" else _literal(letter))
        at += 1
    return "".join(made)

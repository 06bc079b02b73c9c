"""The closest of the valid words to the one that was typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(word: str, words: Iterable[str], *, most: int = 3) -> list[str]:
    """At most ``most`` of ``words`` that look like ``word``, best first; maybe none."""
    from difflib import get_close_matches

    return get_close_matches(word[:256], list(words), n=most, cutoff=0.6)


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """``"; did you mean X?"``, or nothing when no word is close."""
    found = nearest(word, words, most=2)
    return f"; did you mean {' or '.join(found)}?" if found else ""

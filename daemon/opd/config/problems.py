"""Mistakes are collected and told together, not one a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from opd.errors import ConfigError, EventError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Problem(NamedTuple):
    """One mistake: the file or flag, the key there (or empty), what is wrong."""

    source: str
    key: str
    message: str
    hint: str | None = None
    is_event: bool = False

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.key, self.message) if part)


def raise_problems(problems: Sequence[Problem]) -> None:
    """Raise one ConfigError (EventError when all concern events) that lists them all.

    The message has one line a problem; ``data["problems"]`` has them apart.
    Does nothing when there are none.
    """
    if not problems:
        return
    kind = EventError if all(problem.is_event for problem in problems) else ConfigError
    hints = list(dict.fromkeys(problem.hint for problem in problems if problem.hint))
    raise kind(
        "\n".join(str(problem) for problem in problems),
        hint="\n".join(hints) or None,
        data={
            "problems": [
                {"source": problem.source, "key": problem.key, "message": problem.message}
                for problem in problems
            ]
        },
    )

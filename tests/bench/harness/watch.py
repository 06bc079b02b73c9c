"""Memory while something happens: first, last and highest."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from bench.harness.accounting import memory_of

if TYPE_CHECKING:
    from bench.harness.accounting import Account
    from bench.harness.section import Context


class MemoryWatch:
    """Looks at an account's memory every second until the end of the block."""

    _EVERY_S = 1.0

    def __init__(self, account: Account) -> None:
        self._account = account
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.points: list[tuple[float, dict[str, int]]] = []
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._end.wait(self._EVERY_S):
            self._look()

    def _look(self) -> None:
        self.points.append((time.monotonic() - self._began, memory_of(self._account)))

    def figures(self, context: Context, key: str) -> None:
        """Add the first, the last and the highest sum."""
        totals = [point["total"] / 1e6 for _, point in self.points]
        context.figure(f"{key}.memory.before", totals[0], "MB", "PSS, rings, kernel")
        context.figure(f"{key}.memory.after", totals[-1], "MB")
        context.figure(f"{key}.memory.peak", max(totals), "MB")

    def series(self) -> list[list[float | str]]:
        """Give the points of a plot, MB by seconds."""
        return [[at, point["total"] / 1e6] for at, point in self.points]

"""A line on a terminal's stderr that says how far something is."""

from __future__ import annotations

import contextlib
import sys
import time

_EVERY_SECONDS = 0.2


class ProgressLine:
    """Drawn again and again in place, a few times a second, only on a terminal.

    ``quiet_s``: what is done within so many seconds shows none.
    """

    def __init__(self, quiet_s: float = 0.0) -> None:
        self._next = time.monotonic() + quiet_s
        self._shown = False

    def is_due(self) -> bool:
        """Whether a text would be shown now: it need not be made when not."""
        terminal = sys.stderr is not None and sys.stderr.isatty()
        return terminal and time.monotonic() >= self._next

    def show(self, text: str) -> None:
        """Put the text in place of the one before, when it is due."""
        if self.is_due():
            self._next, self._shown = time.monotonic() + _EVERY_SECONDS, True
            self._print(f"\r{text}\x1b[K")

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            self._print("\r\x1b[K")

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a terminal that has gone
            print(text, end="", file=sys.stderr, flush=True)

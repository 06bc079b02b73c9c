"""What threads do to one cache line: who reads, who writes, and whether they meet in its bytes."""

from __future__ import annotations

from typing import Literal

LINE = 64

Sharing = Literal["", "read", "true", "false", "mixed"]


class Line:
    """One line as its sampled accesses show it. At most 64 threads are told apart."""

    __slots__ = ("_touched", "_written", "threads")
    MOST = 64

    def __init__(self) -> None:
        self.threads = 0
        # By thread: masks of the bytes it touched, and wrote.
        self._touched: dict[int, int] = {}
        self._written: dict[int, int] = {}

    def add(self, thread: int, offset: int, width: int, *, store: bool) -> None:
        """An access of ``width`` bytes (0: not known, taken as 1) at ``offset`` of the line."""
        if thread not in self._touched:
            if len(self._touched) >= self.MOST:
                return
            self.threads += 1
        width = max(1, min(width, LINE - offset))
        mask = ((1 << width) - 1) << offset
        self._touched[thread] = self._touched.get(thread, 0) | mask
        if store:
            self._written[thread] = self._written.get(thread, 0) | mask

    @property
    def offsets(self) -> int:
        """How many different bytes were touched."""
        touched = 0
        for mask in self._touched.values():
            touched |= mask
        return touched.bit_count()

    def sharing(self) -> Sharing:
        """How threads share the line; "" when only one was seen.

        ``read``: nobody writes. ``true``: a thread writes bytes that another
        touches. ``false``: one writes, and each has bytes of its own: padding
        would part them. ``mixed``: both.
        """
        if self.threads < 2:
            return ""
        if not self._written:
            return "read"
        meets = apart = False
        for writer, written in self._written.items():
            for thread, touched in self._touched.items():
                if thread != writer:
                    meets = meets or bool(written & touched)
                    apart = apart or not written & touched
        if meets and apart:
            return "mixed"
        return "true" if meets else "false"

"""CPU time of stages of work, whatever thread does them."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Stopwatch:
    """Adds up the CPU time of the calling threads by stage; any thread may call.

    Meant for work of once a window: each stage reads the thread's clock twice.
    Stages do not nest.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ns: dict[str, int] = {}
        self._by_thread: dict[str, int] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure what is done within."""
        began = time.thread_time_ns()
        try:
            yield
        finally:
            self.add(name, time.thread_time_ns() - began)

    def add(self, name: str, used_ns: int) -> None:
        """Add CPU time that this thread spent on a stage."""
        thread = threading.current_thread().name
        with self._lock:
            self._ns[name] = self._ns.get(name, 0) + used_ns
            self._by_thread[thread] = self._by_thread.get(thread, 0) + used_ns

    def stages(self) -> dict[str, int]:
        """CPU time so far, ns by stage."""
        with self._lock:
            return dict(self._ns)

    def within(self, prefix: str) -> int:
        """Of it, what threads did whose name begins so: theirs is not only what they are for."""
        with self._lock:
            return sum(ns for name, ns in self._by_thread.items() if name.startswith(prefix))

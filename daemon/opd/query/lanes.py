"""A few threads that work off a bounded queue."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Lane:
    """``threads`` threads, started with the first job; at most ``waiting`` jobs in all.

    They are daemon threads: a handler that hangs does not keep the process.
    A job must not raise.
    """

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self._name = name
        self._count = threads
        self._waiting = waiting
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pending = 0
        self._threads: list[threading.Thread] = []

    def submit(self, job: Callable[[], None]) -> bool:
        """Queue a job; False when too many are there already."""
        with self._lock:
            if self._pending >= self._waiting:
                return False
            self._pending += 1
            if len(self._threads) < min(self._count, self._pending):
                name = f"{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        self._jobs.put(job)
        return True

    def idle(self) -> bool:
        """Whether every submitted job has ended."""
        with self._lock:
            return self._pending == 0

    def close(self) -> None:
        """Let the threads end after the jobs that are queued."""
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            finally:
                with self._lock:
                    self._pending -= 1

"""A few threads that work off a bounded queue, each owner's jobs in turn."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Job = Callable[[], None]


class Lane:
    """``threads`` threads, started with the first job; at most ``waiting`` jobs in all.

    Owners take turns, so that one who asks for much keeps nobody waiting. The
    threads are daemon threads: a handler that hangs does not keep the process.
    A job must not raise.
    """

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self._name = name
        self._count = threads
        self._waiting = waiting
        # The first owner is the next one served, and then the last.
        self._jobs: dict[bytes, deque[Job]] = {}
        self._changed = threading.Condition()
        self._pending = 0
        self._closed = False
        self._threads: list[threading.Thread] = []

    def submit(self, owner: bytes, job: Job) -> bool:
        """Queue a job; False when too many are there already."""
        with self._changed:
            if self._pending >= self._waiting:
                return False
            self._pending += 1
            self._jobs.setdefault(owner, deque()).append(job)
            if len(self._threads) < min(self._count, self._pending):
                name = f"{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()
        return True

    def forget(self, owner: bytes) -> int:
        """Take back the jobs of ``owner`` that have not begun: how many."""
        with self._changed:
            jobs = len(self._jobs.pop(owner, ()))
            self._pending -= jobs
            return jobs

    def idle(self) -> bool:
        """Whether every submitted job has ended."""
        with self._changed:
            return self._pending == 0

    def close(self) -> None:
        """Let the threads end after the jobs that are queued."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            finally:
                del job  # what it holds may be large
                with self._changed:
                    self._pending -= 1

    def _next(self) -> Job | None:
        with self._changed:
            while not self._jobs:
                if self._closed:
                    return None
                self._changed.wait()
            owner = next(iter(self._jobs))
            jobs = self._jobs.pop(owner)
            job = jobs.popleft()
            if jobs:
                self._jobs[owner] = jobs
            return job

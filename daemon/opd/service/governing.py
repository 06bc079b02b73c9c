"""Holds the running daemon under its budgets: reads what it costs, lowers what it does."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from opd.process import trim_memory
from opd.service import processes
from opd.service.governor import Governor

if TYPE_CHECKING:
    from opd.config.settings import GovernorSettings
    from opd.sampling.live import LiveSampling
    from opd.service.daemon import Daemon
    from opd.service.log import Logger

EVERY_SECONDS = 4.0
MEMORY_EVERY_SECONDS = 20.0
AUTO_BUDGET = 0.01  # CPU seconds a second
AUTO_PER_SAMPLE = 5e-6
# Threads that do what people ask for, and hooks of features: neither gets cheaper by sampling less.
_ASKED = ("opd-query", "opd-router", "opd-zmq", "opd-feature", "opd-probe")
_DIVISOR_MOST = 64
_RESTS = 2  # looks left out while there is room
_CALM = 0.7  # of the memory limit: below it stacks come back
NS = 1_000_000_000
MIB = 1 << 20


def budget_of(settings: GovernorSettings, asked_hz: float) -> float | None:
    """CPU seconds a second for ``asked_hz`` samples a second on all CPUs; None: no limit."""
    if settings.cpu_percent == "off":
        return None
    if settings.cpu_percent == "auto":
        return max(AUTO_BUDGET, AUTO_PER_SAMPLE * asked_hz)
    return settings.cpu_percent / 100


def floor_of(settings: GovernorSettings, sampling: LiveSampling) -> float:
    """Give the least share of the rates asked."""
    fastest = max((event.hz or 0 for event in sampling.events), default=0)
    return min(1.0, settings.least_hz / fastest) if fastest else 0.01


class Governing:
    """The daemon's duty of looking after itself; on its main thread.

    ``stats`` may be asked from any thread.
    """

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._sampling: LiveSampling | None = None
        self._governor: Governor | None = None
        self._settings: GovernorSettings | None = None
        self._rest = False
        self._worker = (0, 0, 0)  # pid, its CPU time, that of those before it
        self._memory = MemoryLimit(daemon)

    def tick(self) -> None:
        """Judge the last seconds and change the rates where that is due."""
        daemon = self._daemon
        sampling = daemon.sampling
        settings = daemon.config.governor
        if sampling is not self._sampling or settings != self._settings:
            self._begin(sampling, settings)
        governor = self._governor
        if sampling is None or governor is None:
            return
        # Far below the budget every other look is enough.
        self._rest = (
            not self._rest and governor.share == 1.0 and governor.usage < governor.budget / 2
        )
        if self._rest:
            return
        if sampling.paused:
            governor.forget()
            return
        before = governor.share
        share = governor.observe(time.monotonic(), self.cpu_ns() / NS)
        if share is not None:
            sampling.set_share(share)
            self._tell(daemon.log, governor, before)

    def memory_tick(self) -> None:
        """Compare memory with its limit and give some back where that is due."""
        self._memory.tick(self._daemon.sampling, self._daemon.config.governor.memory_mib * MIB)

    def cpu_ns(self) -> int:
        """CPU time so far that the rates can change: all but what was asked for."""
        asked = sum(
            used for name, used in processes.threads_ns().items() if name.startswith(_ASKED)
        )
        # A dump's window is cut by whoever asks; it is work of sampling all the same.
        asked -= self._daemon.stopwatch.within("opd-query")
        return time.process_time_ns() - asked + self._worker_ns()

    def _worker_ns(self) -> int:
        pid, last, before = self._worker
        now = self._daemon.link.worker_pid
        if now != pid:
            pid, last, before = now, 0, before + last
        used = processes.cpu_ns(pid) if pid else 0
        # A pid without a process has no time: the last that was seen stands.
        self._worker = (pid, max(used, last), before)
        return before + max(used, last)

    def _begin(self, sampling: LiveSampling | None, settings: GovernorSettings) -> None:
        self._sampling, self._settings = sampling, settings
        if self._governor is not None and sampling is not None and sampling.share < 1.0:
            sampling.set_share(1.0)
        # Rates of inherited events stay with those that inherited them.
        budget = None
        if sampling is not None and sampling.scope != "own":
            budget = budget_of(settings, sampling.budget_hz())
        self._governor = None
        if sampling is not None and budget is not None:
            interval = self._daemon.config.daemon.interval
            self._governor = Governor(budget, floor_of(settings, sampling), interval=interval)

    def _tell(self, log: Logger, governor: Governor, before: float) -> None:
        fields = {
            "percent_of_asked": round(100 * governor.share, 1),
            "used_percent": round(100 * governor.usage, 2),
            "budget_percent": round(100 * governor.budget, 2),
        }
        if governor.share < before:
            log.warning("governor.lowered", **fields)
        elif governor.share < 1.0:
            log.info("governor.raised", **fields)
        else:
            log.info("governor.recovered", **fields)

    def stats(self) -> dict[str, Any]:
        """Give the ``governor`` of status; ``share`` is of the rates asked."""
        governor = self._governor
        answer: dict[str, Any] = {"cpu_percent_budget": None, "share": 1.0}
        if governor is not None:
            answer = {
                "cpu_percent_budget": 100 * governor.budget,
                "cpu_percent": 100 * governor.usage,
                "share": governor.share,
                "changes": governor.changes,
                "lowered_seconds": governor.lowered_seconds,
                "over_seconds": governor.over_seconds,
            }
        return answer | self._memory.stats()


class MemoryLimit:
    """Gives memory back when there is too much of it: first caches, then distinct stacks."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._limit = 0
        self._bytes = 0
        self._over = self._in_row = self._rests = 0
        self._divisor = 1
        self._sampling: LiveSampling | None = None

    def tick(self, sampling: LiveSampling | None, limit: int) -> None:
        """Compare and act."""
        if sampling is not self._sampling:
            self._sampling, self._divisor = sampling, 1
        self._limit = limit
        if not limit or sampling is None:
            return
        if self._rests and self._bytes < _CALM * limit and self._divisor == 1:
            self._rests -= 1
            return
        self._rests = _RESTS
        pids = [os.getpid(), *processes.descendants()]
        rings = int(sampling.stats()["ring_bytes"])
        # Resident pages bound the proportional share, and are cheaper to ask for.
        self._bytes = rings + sum(map(processes.rss_bytes, pids))
        if self._bytes > limit:
            self._bytes = rings + sum(map(processes.pss_bytes, pids))
        if self._bytes > limit:
            self._shed(sampling)
            return
        self._in_row = 0
        if self._divisor > 1 and self._bytes < _CALM * limit:
            self._divisor //= 2
            stacks = sampling.limit_stacks(self._divisor)
            self._daemon.log.info("memory.recovered", bytes=self._bytes, stacks_a_window=stacks)

    def _shed(self, sampling: LiveSampling) -> None:
        self._over += 1
        self._in_row += 1
        self._daemon.link.shed()
        trim_memory()
        stacks = None
        if self._in_row > 1 and self._divisor < _DIVISOR_MOST:
            self._divisor *= 2
            stacks = sampling.limit_stacks(self._divisor)
        self._daemon.log.warning(
            "memory.over",
            bytes=self._bytes,
            limit_bytes=self._limit,
            stacks_a_window=stacks,
            times=self._over,
        )

    def stats(self) -> dict[str, Any]:
        """Give what status says of it."""
        return {
            "memory_bytes_limit": self._limit or None,
            "memory_over": self._over,
            "stacks_divided_by": self._divisor,
        }

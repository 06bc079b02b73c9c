"""Calls of one feature's hooks: bounded, timed, counted, and none while it is in quarantine."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from opd.features.declared import UnavailableError
from opd.features.quarantine import Quarantine, described
from opd.features.thread import Budget, BusyError, HookThread, OverranError, resident_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Result = TypeVar("Result")

# How long a hook that must be called waits for its turn.
PATIENCE_S = 20.0
# Of the memory budget: what opd may have grown by in all, and a feature by its calls together,
# before the feature is not called any more until there is less.
_GROWN_TIMES = 4
_KEPT_TIMES = 2


class Log(Protocol):
    """Where lines go, as opd.service.log.Logger."""

    def info(self, event: str, **values: Any) -> None:
        """What happened."""
        ...

    def warning(self, event: str, **values: Any) -> None:
        """What somebody should know."""
        ...

    def error(self, event: str, **values: Any) -> None:
        """What went wrong."""
        ...


class Failed(Exception):  # noqa: N818 - says what happened to the call
    """A hook failed: that was counted and logged."""


class HookCost(msgspec.Struct):
    """What calls of one hook took. ``longest_ns`` by the clock."""

    calls: int = 0
    failures: int = 0
    cpu_ns: int = 0
    wall_ns: int = 0
    longest_ns: int = 0


class Step(NamedTuple):
    """One call of several: the hook's name for the accounts, and the call."""

    hook: str
    call: Callable[[], object]


class Guard:
    """Runs hooks of one feature on its thread. Callers take turns by waiting."""

    def __init__(self, feature: str, plugin: str, budget: Budget, log: Log) -> None:
        self._feature = feature
        self._plugin = plugin
        self.budget = budget
        self._log = log
        self._thread = HookThread(f"opd-feature-{feature}")
        self.quarantine = Quarantine()
        self.costs: dict[str, HookCost] = {}
        self._at_first = resident_bytes()
        self.kept_bytes = 0  # what opd grew by during the calls together

    @property
    def is_open(self) -> bool:
        """Whether hooks may be called now."""
        return not self._thread.is_stuck and self.quarantine.left_s() == 0

    @property
    def is_stuck(self) -> bool:
        """Whether a call that cannot be interrupted still runs."""
        return self._thread.is_stuck

    def call(self, hook: str, work: Callable[[], Result], *, always: bool = False) -> Result:
        """What a hook returns, also in quarantine. Raises Failed, UnavailableError, BusyError.

        ``always``: however much memory the feature keeps.
        """
        try:
            result = self._weighed(lambda: self._timed(hook, work), always=always)
        except (UnavailableError, BusyError):
            raise
        except Exception as error:
            self._failed(hook, error)
            raise Failed(str(error)) from error
        self.quarantine.went_well(hook)
        return result

    def each(self, first: str, steps: Iterable[Step]) -> bool:
        """Call one after the other, within one budget; False when one failed: it was the last.

        ``first`` is the hook that is to blame when none could be called.
        """
        called: list[str] = []  # the last one is to blame
        given_up = threading.Event()

        def work() -> None:
            for step in steps:
                if given_up.is_set():
                    return  # it comes back late
                called.append(step.hook)
                self._timed(step.hook, step.call)

        try:
            self._weighed(work)
        except BusyError:
            return False
        except Exception as error:  # noqa: BLE001 - foreign code
            given_up.set()
            blamed = called.pop() if called else first
            self._failed(blamed, error)
            for hook in set(called) - {blamed}:
                self.quarantine.went_well(hook)
            return False
        for hook in set(called):
            self.quarantine.went_well(hook)
        return True

    def close(self) -> None:
        """Let the thread end."""
        self._thread.close()

    def _weighed(self, work: Callable[[], Result], *, always: bool = False) -> Result:
        """Call it on the thread, unless it has kept too much of what it was given before."""
        before, most = resident_bytes(), self.budget.memory_bytes
        grown = before - self._at_first > _GROWN_TIMES * most
        if grown and self.kept_bytes > _KEPT_TIMES * most and not always:
            kept, now = self.kept_bytes >> 20, before >> 20
            raise OverranError(f"opd grew by {kept} MiB in its calls together, and has {now} now")
        try:
            # What must be called waits for others, and they end.
            return self._thread.call(work, self.budget, patience_s=PATIENCE_S if always else None)
        finally:
            self.kept_bytes += max(0, resident_bytes() - before)

    def _timed(self, hook: str, work: Callable[[], Result]) -> Result:
        """On the feature's thread."""
        cost = self.costs.setdefault(hook, HookCost())
        cpu, wall = time.thread_time_ns(), time.monotonic_ns()
        try:
            return described(work)
        finally:
            took = time.monotonic_ns() - wall
            cost.calls += 1
            cost.cpu_ns += time.thread_time_ns() - cpu
            cost.wall_ns += took
            cost.longest_ns = max(cost.longest_ns, took)

    def _failed(self, hook: str, error: Exception) -> None:
        self.costs.setdefault(hook, HookCost()).failures += 1
        reason = str(error)
        seconds = self.quarantine.failed(hook, reason)
        self._log.error(
            "feature.failed",
            feature=self._feature,
            plugin=self._plugin,
            hook=hook,
            error=reason,
            failures=self.quarantine.failures,
            quarantined_seconds=seconds,
        )

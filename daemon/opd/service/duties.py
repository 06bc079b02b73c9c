"""What the daemon does every so often, on its main thread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from opd.errors import OperationFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from opd.service.log import Logger


class Duty(msgspec.Struct):
    """A call and when it comes next (CLOCK_MONOTONIC seconds)."""

    name: str
    every_s: float
    call: Callable[[], None]
    due: float
    failures: int = 0


class Duties:
    """Calls each duty in its turn. A duty returns at once: what is slow gets a child.

    One that raises is logged at its first failure in a row, counted, and
    called again at its next turn. Turns missed are not made up for.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._duties: list[Duty] = []

    def add(self, name: str, every_s: float, call: Callable[[], None]) -> None:
        """Call ``call`` every ``every_s`` seconds, first after that time."""
        self._duties.append(Duty(name, every_s, call, self._clock() + every_s))

    def wait_s(self) -> float | None:
        """Seconds until the next turn, 0 when one is due; None without duties."""
        if not self._duties:
            return None
        return max(0.0, min(duty.due for duty in self._duties) - self._clock())

    def run_due(self, log: Logger) -> None:
        """Do what is due."""
        for duty in self._duties:
            now = self._clock()
            if now < duty.due:
                continue
            duty.due = max(duty.due + duty.every_s, now)
            try:
                duty.call()
            except OperationFailedError as error:  # a slow worker, say: where it was tells nothing
                duty.failures += 1
                if duty.failures == 1:
                    log.warning("duty.failed", duty=duty.name, error=str(error))
            except Exception as error:  # one duty's trouble is not the daemon's end
                duty.failures += 1
                if duty.failures == 1:
                    log.exception("duty.failed", duty=duty.name, error=repr(error))
            else:
                duty.failures = 0

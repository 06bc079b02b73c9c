"""Whether sampling makes progress: what feeds the service manager's watchdog."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from opd.sampling.live import LiveSampling
    from opd.service.log import Logger
    from opd.service.sdnotify import Notifier
    from opd.service.windows import WindowLoop

TURNS_A_WATCHDOG = 4
"""How often a watchdog's time is divided: one late turn must not end the daemon."""


class Liveness:
    """Compares with what it saw the last time; never waits for what it watches."""

    def __init__(self) -> None:
        self._drained = -1
        self._turned = -1

    def stalled(self, sampling: LiveSampling | None, loop: WindowLoop | None) -> str:
        """What did not go on since the last call; "" when all did.

        A daemon that serves a recording has nothing to drain, and is alive by
        asking. While sampling is stopped the drain thread still follows the
        side-band.
        """
        if sampling is None or loop is None:
            return ""
        drained, turned = sampling.progress(), loop.turned
        stalled = ""
        if turned == self._turned:
            stalled = "the window loop"
        if drained == self._drained:
            stalled = "the drain thread"
        self._drained, self._turned = drained, turned
        return stalled


class Watchdog:
    """Tells the manager that the daemon lives, only while it does its work."""

    def __init__(
        self,
        notifier: Notifier,
        log: Logger,
        running: Callable[[], tuple[LiveSampling | None, WindowLoop | None]],
    ) -> None:
        self._notifier = notifier
        self._log = log
        self._running = running
        self._liveness = Liveness()
        self._said = False

    def turn(self) -> None:
        """Feed it, or say what hangs."""
        stalled = self._liveness.stalled(*self._running())
        if not stalled:
            if self._said:
                self._notifier.status("goes on")
            self._said = False
            self._notifier.watchdog()
        elif not self._said:
            self._said = True
            self._log.error("watchdog.starved", stalled=stalled)
            self._notifier.status(f"{stalled} makes no progress")

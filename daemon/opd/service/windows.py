"""The window loop: cuts windows on time and hands them, with their images, to the worker."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from opd.errors import ConfigError, OperationFailedError
from opd.events import select_cpus
from opd_native.errors import NativeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.sampling.live import LiveSampling
    from opd.sampling.window import Window
    from opd.service.featuring import Featuring
    from opd.service.log import Logger
    from opd.service.stopwatch import Stopwatch
    from opd.store.handover import WorkerLink

# Images go to the worker this often: their files must be open while they exist.
IMAGES_EVERY_S = 2.0
CPUS_EVERY_S = 2.0
STOP_TIMEOUT_S = 30.0


class WindowLoop:
    """One thread that turns sampling into stored windows until stopped."""

    def __init__(
        self,
        sampling: LiveSampling,
        link: WorkerLink,
        featuring: Featuring,
        *,
        interval_s: float,
        cpus_asked: str,
        log: Logger,
        stopwatch: Stopwatch,
    ) -> None:
        self._sampling = sampling
        self._link = link
        self._featuring = featuring
        self.interval_s = interval_s
        self._cpus_asked = cpus_asked
        self._cpus: Sequence[int] = ()
        self._log = log
        self._stopwatch = stopwatch
        self._stopping = threading.Event()
        self.turned = 0  # passes of the loop so far
        self._cut_at = self._next_window = time.monotonic()
        self.last_end_ns = 0  # of the last window, since 1970; 0: there was none
        self._hand_lock = threading.Lock()
        self._thread = threading.Thread(target=self._main, name="opd-windows", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._cpus = select_cpus(self._cpus_asked)
        self._thread.start()

    def since_cut_s(self) -> float:
        """Seconds since the last window ended."""
        return time.monotonic() - self._cut_at

    def cut_now(self) -> int:
        """End the window now, with every sample taken before the call; its sequence number.

        The next one is a whole interval long, unless somebody asks again.
        """
        with self._hand_lock:
            try:
                with self._stopwatch.stage("take"):
                    window = self._sampling.cut(flush=True)
            except NativeError as error:
                raise OperationFailedError(f"the drain thread does not answer: {error}") from error
            if window is None:
                raise OperationFailedError("the drain thread does not answer")
            self._next_window = time.monotonic() + self.interval_s
            self._hand_over(window)
            return window.sequence

    def stop(self) -> None:
        """End the loop, stop sampling and hand over the last window."""
        self._stopping.set()
        self._thread.join(STOP_TIMEOUT_S)
        with self._hand_lock:
            with self._stopwatch.stage("take"):
                window = self._sampling.finish()
            if window is not None:
                self._hand_over(window)

    def _hand_over(self, window: Window) -> None:
        self._cut_at, self.last_end_ns = time.monotonic(), window.end_ns
        # After the window: all images and cgroups that it mentions are known by then.
        with self._stopwatch.stage("hand over"):
            self._send_images()
            if images := self._featuring.window(window):
                self._link.send_images(images)
            self._link.send_window(window)

    def _send_images(self) -> None:
        if not self._sampling.has_news():
            return
        while images := self._sampling.take_images():
            self._featuring.saw_images(images)
            self._link.send_images(images)
        if cgroups := self._sampling.take_cgroups():
            self._link.send_cgroups(cgroups)

    def _main(self) -> None:
        now = time.monotonic()
        self._next_window, next_cpus = now + self.interval_s, now + CPUS_EVERY_S
        while not self._stopping.is_set():
            now = time.monotonic()
            self.turned += 1
            try:
                if now >= self._next_window:
                    # Windows missed while the machine was suspended are not made up for.
                    self._next_window = max(self._next_window + self.interval_s, now)
                    self._tick()
                if now >= next_cpus:
                    next_cpus = now + CPUS_EVERY_S
                    self._follow_cpus()
                self._sampling.follow_processes()
                if self._sampling.has_news():
                    with self._stopwatch.stage("hand over"):
                        self._send_images()
            except NativeError as error:
                self._log.error("window.failed", error=str(error))
            wait = min(self._next_window, now + IMAGES_EVERY_S) - time.monotonic()
            self._stopping.wait(max(wait, 0.0))

    def _tick(self) -> None:
        with self._hand_lock:
            with self._stopwatch.stage("take"):
                window = self._sampling.cut()
            if window is None:
                self._log.warning("window.late", reason="the drain thread does not answer")
                return
            self._hand_over(window)
        self._log.debug(
            "window.cut",
            sequence=window.sequence,
            rows=window.rows,
            samples=window.quality["samples"],
        )

    def _follow_cpus(self) -> None:
        try:
            cpus = select_cpus(self._cpus_asked)
        except ConfigError:
            # Some of the CPUs asked for are offline: those that are left go on.
            cpus = tuple(cpu for cpu in select_cpus("") if cpu in self._cpus)
        if cpus != self._cpus:
            have = self._sampling.set_cpus(cpus)
            self._log.info("cpus.changed", cpus=list(cpus), rings=have)
            self._cpus = cpus

"""One feature that runs: how it begins and ends, and what it adds to each window."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from opd.features.checks import check_nothing
from opd.features.context import Context
from opd.features.declared import Stats, UnavailableError
from opd.features.files import SampleFiles
from opd.features.guard import Failed, Guard, Step
from opd.features.records import Records, Rows, events_of
from opd.features.thread import BusyError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opd.events import EventRequest
    from opd.features.asked import Activation
    from opd.features.guard import Log
    from opd.features.records import FeatureImages
    from opd.features.thread import Budget
    from opd.sampling.window import EventInfo, Window

WAITING = "waiting"
RUNNING = "running"
UNAVAILABLE = "unavailable"
QUARANTINED = "quarantined"
REPLAYING = "replaying"
REPLAYED = "replayed"


class RunningFeature:
    """A feature of a daemon that samples, from ``begin`` to ``end``.

    The calls that change it take turns; any thread may ask for ``stats``.
    """

    def __init__(
        self,
        activation: Activation,
        *,
        budget: Budget,
        log: Log,
        images: FeatureImages,
        asked: Sequence[EventRequest] = (),
    ) -> None:
        plugin, feature = activation.plugin, activation.feature
        self.activation = activation
        self.name = feature.name
        self.reason = ""  # why it is unavailable
        # A recording that stands for the machine: no hook is called, opd imports it.
        self.replay: str = getattr(activation.options, "replay", "")
        self.replayed = ""  # its session, once it is there
        self.guard = Guard(feature.name, plugin.name, budget, log)
        self.skipped_windows = 0
        self.ids: Mapping[str, int] = {}
        self.records = Records(feature)
        self.files = SampleFiles(
            plugin, {event.name: tuple(c.name for c in event.columns) for event in feature.events}
        )
        self._asked = asked
        self.context = Context(feature, self.records, log, asked)
        self._log = log
        self._images = images
        self._turn = threading.RLock()
        self._last_stats = Stats()
        self._begun = self._called = self._ended = False

    @property
    def state(self) -> str:
        """One of RUNNING, WAITING, UNAVAILABLE, QUARANTINED, REPLAYING, REPLAYED."""
        if self.reason:
            return UNAVAILABLE
        if self.replay:
            return REPLAYED if self.replayed else REPLAYING
        if not self.guard.is_open:
            return QUARANTINED
        return RUNNING if self._begun else WAITING

    # ---- life

    def begin(self) -> None:
        """Ask whether it can run here, and have it begin. What goes wrong, ``state`` tells."""
        plugin, feature = self.activation.plugin, self.activation.feature
        context = Context(feature, self.records, self._log, self._asked)
        if self.replay:
            return
        with self._turn:
            try:
                reason = self.guard.call("unavailable", lambda: plugin.unavailable(feature))
                if reason:
                    self._refuse(reason)
                    return
                self._called = True
                options = self.activation.options
                self.guard.call("opd_ext_init", lambda: plugin.init(feature, options, context))
            except UnavailableError as error:
                self._refuse(error.message)
                return
            except (Failed, BusyError):
                return  # it was counted and logged; the next try is at a window
            context.seal()
            self.context = context
            self._begun = True
        self._log.info("feature.started", feature=self.name, plugin=plugin.name)

    def refuse(self, reason: str) -> None:
        """The kernel refused what it needs: it ends, and the rest goes on."""
        self._refuse(reason)
        self.end()

    def _refuse(self, reason: str) -> None:
        self.reason = " ".join(reason.split())[:1000] or "it gave no reason"
        self._log.warning("feature.unavailable", feature=self.name, reason=self.reason)

    def end(self) -> None:
        """Close its sample files, have it end, and let its thread go."""
        with self._turn:
            if self._ended:
                return
            self._ended = True
            if self._called:
                self.files.close_all()
                if self.guard.is_open and self.files.wanted:
                    self.guard.each("opd_sfile_close", self.files.flush())
                plugin, feature = self.activation.plugin, self.activation.feature
                with contextlib.suppress(Failed, BusyError, UnavailableError):
                    self.guard.call("opd_ext_deinit", lambda: plugin.deinit(feature), always=True)
            self._begun = False
            self.guard.close()

    # ---- events

    def events(self) -> list[EventInfo]:
        """Its events in a run, each followed by its extra columns.

        What did not begin, but may yet, has a place for all of them.
        """
        if self.reason or self.replay:
            return []
        chosen = self.context.chosen if self._begun else self.activation.feature.events
        return events_of(self.activation.feature, [event.name for event in chosen])

    # ---- windows

    def window(
        self, window: Window, events: int, paths: Mapping[int, str], *, hooks: bool = True
    ) -> None:
        """Add to a window what was fed in, and what hooks say of its sample files.

        ``events``: how many the run has. ``paths``: of the images, by uid.
        Without ``hooks`` there is no time left for them.
        """
        with self._turn:
            if self.reason or self.replay or self._ended:
                return
            if not (hooks and self.guard.is_open):
                self.skipped_windows += 1
            elif self._begun or self._begin_late():
                self._call_for(window)
            rows = Rows(window)
            self.records.take(self.ids, self._images, rows)
            rows.append(events)
            if hooks and self._begun and self.files.wanted and self.guard.is_open:
                self._sync(window, events, paths)

    def _begin_late(self) -> bool:
        self.begin()
        if self._begun and (self.context.kernel_events or self.context.opened_calls):
            self._refuse("it began after sampling had; its events are opened the next time")
        return self._begun and not self.reason

    def _call_for(self, window: Window) -> None:
        start, end = window.start_ns, window.end_ns
        calls = self.context.window_calls
        if calls:
            self.guard.each(
                "each_window",
                (
                    Step("each_window", lambda call=call: check_nothing(call(start, end)))  # type: ignore[misc]
                    for call in calls
                ),
            )

    def _sync(self, window: Window, events: int, paths: Mapping[int, str]) -> None:
        seen = self.files.of_window(window, self.ids, paths)
        if not (seen or self.files.owes):
            return
        if not self.guard.each("opd_sfile_sync", self.files.steps(seen)):
            return  # of a window that failed, no extra column is right
        rows = Rows(window)
        for one in seen:
            for column, values in one.rows.take_columns().items():
                event = self.ids[f"{one.sfile.event}.{column}"]
                rows.add_column(event, one.at, one.rows, values)
        rows.append(events)

    def turn_over(self, *, saved: bool) -> None:
        """The session ended: by a save what goes on is a copy, by a reset it begins anew."""
        with self._turn:
            if self._begun and self.files.wanted:
                self.files.turn_over(copy=saved)
                if self.guard.is_open:
                    self.guard.each("opd_sfile_close", self.files.flush())

    # ---- answers

    def stats(self) -> Stats:
        """What it says of itself; its last word where it cannot be asked now."""
        plugin, feature = self.activation.plugin, self.activation.feature
        if self._begun and self.guard.is_open and plugin.has("opd_ext_print_stats"):
            with contextlib.suppress(Failed, BusyError, UnavailableError):
                self._last_stats = self.guard.call(
                    "opd_ext_print_stats", lambda: plugin.print_stats(feature)
                )
        return self._last_stats

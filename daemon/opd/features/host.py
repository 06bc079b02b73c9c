"""The features of a daemon: begun before events are opened, ended with them."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from opd.errors import ConfigError, OperationFailedError, UnknownNameError
from opd.features.records import FeatureImages
from opd.features.running import REPLAYED, REPLAYING, RUNNING, UNAVAILABLE, RunningFeature
from opd.features.thread import Budget

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from opd.config.settings import DaemonSettings
    from opd.events import EventRequest
    from opd.features.asked import Activation
    from opd.features.context import KernelEvent
    from opd.features.declared import Stats
    from opd.features.guard import Log
    from opd.sampling.window import EventInfo, ImageInfo, Window
    from opd_native.sampler import Sampler

PATHS_MOST = 16384
_BUDGETS_A_WINDOW = 3


class FeatureHost:
    """All features that a daemon was asked for, over one stretch of sampling.

    ``begin``, ``numbered`` and ``end`` are the main thread's, ``window`` and
    ``saw_images`` the window loop's; the rest any thread may call.
    """

    def __init__(
        self,
        activations: Sequence[Activation],
        settings: DaemonSettings,
        log: Log,
        asked: Sequence[EventRequest] = (),
    ) -> None:
        self._log = log
        self._images = FeatureImages()
        self._paths: dict[int, str] = {}
        self._events = 0
        self._hook_s = settings.hook_seconds
        budget = Budget(settings.hook_seconds, settings.hook_mib << 20)
        self._running = [
            RunningFeature(one, budget=budget, log=log, images=self._images, asked=asked)
            for one in activations
        ]
        self._follows_paths = any(one.files.wanted for one in self._running)

    # ---- life

    def begin(self, *, strict: bool = False) -> None:
        """Have all begin, before events are opened.

        Raises ConfigError if ``strict`` and one cannot run.
        """
        for one in self._running:
            one.begin()
        if strict:
            self.check_strictly()

    def check_strictly(self) -> None:
        """Raises ConfigError when one does not run."""
        wrong = [
            f"feature {one.name}: {one.state}: {one.reason or one.guard.quarantine.last_error}"
            for one in self._running
            if one.state not in (RUNNING, REPLAYING, REPLAYED)
        ]
        if wrong:
            raise ConfigError(
                "\n".join(wrong), hint="without --strict opd runs without what cannot run"
            )

    def kernel_events(self) -> list[tuple[RunningFeature, KernelEvent]]:
        """What to open beside the events that were asked for."""
        return [
            (one, event)
            for one in self._running
            if one.state != UNAVAILABLE
            for event in one.context.kernel_events
        ]

    def opened(self, sampler: Sampler, events: Sequence[EventInfo]) -> None:
        """Tell those that asked for it that events are open."""
        for one in self._running:
            if one.state != RUNNING:
                continue
            try:
                for call in one.context.opened_calls:
                    call(sampler, events)
            except Exception as error:  # noqa: BLE001 - a plugin's; sampling goes on without it
                one.refuse(f"it failed when events were open: {error!r}")

    def refused(self, one: RunningFeature, event: KernelEvent, number: int) -> None:
        """The kernel refused an event of a feature: it is unavailable."""
        if event.refused is not None:
            event.refused(number)
        word = errno.errorcode.get(number, str(number))
        one.refuse(f"the kernel refused {event.request.name}: {os.strerror(number)} ({word})")

    def events(self, first: int) -> list[EventInfo]:
        """The events of features in a run, numbered from ``first``."""
        found: list[EventInfo] = []
        for one in self._running:
            mine = one.events()
            one.ids = {event.name: first + len(found) + at for at, event in enumerate(mine)}
            found += mine
        self._events = first + len(found)
        return found

    def replays(self) -> list[RunningFeature]:
        """Those whose records come from a recording that is to be imported."""
        return [one for one in self._running if one.state == REPLAYING]

    def end(self) -> None:
        """Log the last statistics, and have all end."""
        self.log_stats()
        for one in self._running:
            one.end()

    # ---- windows

    def saw_images(self, images: Iterable[tuple[ImageInfo, int | None]]) -> None:
        """Remember paths for sample files, the latest of them."""
        if not self._follows_paths:
            return
        for info, _fd in images:
            self._paths[info.uid] = info.path
        while len(self._paths) > PATHS_MOST:
            del self._paths[next(iter(self._paths))]

    def window(self, window: Window) -> list[tuple[ImageInfo, int | None]]:
        """Add to a window what features have for it; images that it names for the first time.

        However many hooks overrun, it takes three budgets: then the rest must
        do without theirs this time.
        """
        until = time.monotonic() + _BUDGETS_A_WINDOW * self._hook_s
        for one in self._running:
            in_time = time.monotonic() < until
            one.window(window, self._events, self._paths, hooks=in_time)
        return [(info, None) for info in self._images.take_new()]

    def turn_over(self, *, saved: bool) -> None:
        """The session ended by save or reset."""
        for one in self._running:
            one.turn_over(saved=saved)

    # ---- answers

    def states(self) -> dict[str, dict[str, Any]]:
        """State and reason by name, for ``status``."""
        return {one.name: _state(one) for one in self._running}

    def view(self) -> list[dict[str, Any]]:
        """Everything about what was asked for, for ``features``."""
        return [_view(one) for one in self._running]

    def stats(self, name: str | None = None) -> dict[str, dict[str, Any]]:
        """Statistics by name: the feature's own and what opd counted. Raises UnknownNameError."""
        return {one.name: _stats(one, one.stats()) for one in self._chosen(name)}

    def require(self, name: str) -> None:
        """Raises UnknownNameError when nobody asked for it, OperationFailedError unless it runs."""
        for one in self._chosen(name):
            if one.state != RUNNING:
                why = one.reason or one.guard.quarantine.last_error
                raise OperationFailedError(f"feature {one.name}: {one.state}: {why}")

    def cost_ns(self) -> dict[str, int]:
        """CPU time of hooks so far, by feature."""
        return {
            one.name: sum(cost.cpu_ns for cost in list(one.guard.costs.values()))
            for one in self._running
        }

    def log_stats(self) -> None:
        """Write a line of statistics for each feature that runs."""
        for one in self._running:
            if one.state != UNAVAILABLE:
                own = one.stats().values
                costs = list(one.guard.costs.values())
                self._log.info(
                    "feature.stats",
                    feature=one.name,
                    **_state(one),
                    own=dict(own),
                    records_added=one.records.added,
                    records_refused=one.records.refused,
                    calls=sum(cost.calls for cost in costs),
                    cpu_seconds=sum(cost.cpu_ns for cost in costs) / 1e9,
                )

    def _chosen(self, name: str | None) -> list[RunningFeature]:
        if name is None:
            return self._running
        name = name.replace("-", "_")
        chosen = [one for one in self._running if one.name == name]
        if not chosen:
            there = " ".join(one.name for one in self._running) or "none"
            raise UnknownNameError(
                f"feature {name!r} does not run here; those asked for: {there}",
                hint="opd --list-features shows what there is",
            )
        return chosen


def _state(one: RunningFeature) -> dict[str, Any]:
    quarantine = one.guard.quarantine
    state: dict[str, Any] = {"state": one.state}
    if one.reason:
        state["reason"] = one.reason
    if one.replayed:
        state["session"] = one.replayed
    if quarantine.failures:
        state["failures"] = quarantine.failures
        state["last_error"] = f"{quarantine.last_hook}: {quarantine.last_error}"
    if left := quarantine.left_s():
        state["quarantined_seconds"] = round(left, 1)
    if one.guard.is_stuck:
        state["stuck"] = True
    return state


def _view(one: RunningFeature) -> dict[str, Any]:
    from opd.features.listing import describe_feature

    return {
        **describe_feature(one.activation.plugin, one.activation.feature),
        **_state(one),
        "set": {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in msgspec.structs.asdict(one.activation.options).items()
        },
    }


def _stats(one: RunningFeature, own: Stats) -> dict[str, Any]:
    return {
        **_state(one),
        "own": dict(own.values),
        **({"document": own.document, "notes": list(own.notes)} if own.document else {}),
        "records": {"added": one.records.added, "refused": one.records.refused},
        "sample_files": {"known": len(one.files), "dropped": one.files.dropped},
        "skipped_windows": one.skipped_windows,
        "hooks": {
            hook: msgspec.structs.asdict(cost) for hook, cost in list(one.guard.costs.items())
        },
    }

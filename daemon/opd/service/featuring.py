"""The daemon's extended features; without any, nothing of them is imported."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opd.config.nearest import did_you_mean
from opd.errors import OpdError, OperationFailedError, UnknownNameError
from opd.events import opened
from opd.service.fallbacks import log_steps
from opd.service.imports import import_in_child
from opd.service.status import flat
from opd_native.errors import NativeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from opd.config.settings import Config
    from opd.events import EventRequest
    from opd.features.asked import Activation
    from opd.features.host import FeatureHost
    from opd.features.profile_hash.hooks import ProfileHash
    from opd.features.registry import Registry
    from opd.features.running import RunningFeature
    from opd.sampling.live import LiveSampling
    from opd.sampling.window import EventInfo, ImageInfo, Window
    from opd.service.daemon import Daemon


class Featuring:
    """Has features begin and end with sampling; ``host`` is there while they run.

    The daemon's main thread calls what changes it.
    """

    def __init__(self, daemon: Daemon, registry: Registry | None, *, strict: bool) -> None:
        self._daemon = daemon
        self._registry = registry
        self._strict = strict
        self.host: FeatureHost | None = None

    def check(self, config: Config, requests: Sequence[EventRequest]) -> list[Activation]:
        """What the settings ask for, events of features too. Raises ConfigError."""
        theirs = [request for request in requests if request.feature]
        if not (config.features.flags or config.features.tables or theirs):
            return []
        from opd.features.asked import resolve
        from opd.features.fromevents import pulled_in

        if self._registry is None:
            from opd.features.registry import Registry

            self._registry = Registry()
        return resolve(config.features, self._registry, pulled_in(theirs))

    def begin(self, config: Config, requests: Sequence[EventRequest]) -> None:
        """Have them begin, before events are opened. Raises ConfigError, as strictness wants."""
        self.end()
        activations = self.check(config, requests)
        if activations:
            from opd.features.host import FeatureHost

            self.host = FeatureHost(
                activations, config.daemon, _Told(self._daemon), opened(requests)
            )
            self.host.begin(strict=self._strict)

    def open_events(self, sampling: LiveSampling) -> list[EventInfo]:
        """Open what they need of the kernel; all events of the run."""
        if self.host is None:
            return sampling.events
        theirs = []
        for one, event in self.host.kernel_events():
            known = len(sampling.ladder)
            try:
                index = sampling.add_event(event.request, feature=one.name)
            except NativeError as error:
                self.host.refused(one, event, error.errno or 0)
            else:
                theirs.append((one, event, index))
            log_steps(self._daemon.log, sampling.ladder[known:])
        events = [*sampling.events, *self.host.events(len(sampling.events))]
        for one, event, index in theirs:
            if event.opened is None:
                continue
            try:
                event.opened(sampling.sampler, index, one.ids)
            except Exception as error:  # noqa: BLE001 - a plugin's; sampling goes on without it
                one.refuse(f"it failed when {event.request.name} was open: {error!r}")
        self.host.opened(sampling.sampler, sampling.events)
        if self._strict:
            self.host.check_strictly()
        return events

    def replay(self) -> None:
        """Import the recordings that stand for a feature's records, on a thread of their own."""
        if self.host is not None and (replays := self.host.replays()):
            work = threading.Thread(
                target=self._import_all, args=(replays,), name="opd-replay", daemon=True
            )
            work.start()

    def _import_all(self, replays: list[RunningFeature]) -> None:
        daemon = self._daemon
        for one in replays:
            try:
                with Path(one.replay).open("rb") as file:
                    result = import_in_child(
                        file.fileno(),
                        daemon.directory,
                        name="",
                        origin=one.replay,
                        ending=daemon.ending.is_set,
                        redact=daemon.config.privacy.redact,
                    )
            except (OpdError, OSError) as error:
                one.refuse(f"{one.replay}: cannot be replayed: {error}")
                continue
            one.replayed = str(result["session"])
            daemon.log.info("feature.replayed", feature=one.name, **flat(result))

    def end(self) -> None:
        """Have them end; at any time, and more than once."""
        host, self.host = self.host, None
        if host is not None:
            host.end()

    # ---- windows, the window loop's thread

    def saw_images(self, images: Iterable[tuple[ImageInfo, int | None]]) -> None:
        """Paths for sample files."""
        if self.host is not None:
            self.host.saw_images(images)

    def window(self, window: Window) -> list[tuple[ImageInfo, int | None]]:
        """Have them add to a window; the images they name in it for the first time."""
        return self.host.window(window) if self.host is not None else []

    # ---- answers, any thread

    def why_without(self, event: str) -> str:
        """Why an event of a feature that was asked for is not there; "" when there is no why."""
        for one in self.host.view() if self.host is not None else []:
            if event not in (one["name"], *(its["name"] for its in one["events"])):
                continue
            if one["state"] == "unavailable":
                return f"feature {one['name']} is unavailable: {one.get('reason', '')}"
            if one["state"] == "replayed":
                return f"feature {one['name']} was replayed: see --session {one['session']}"
        return ""

    def states(self) -> dict[str, Any]:
        """For ``status``."""
        return self.host.states() if self.host is not None else {}

    def view(self, params: dict[str, Any]) -> dict[str, Any]:
        """For ``features``: those that were asked for, then all others there are."""
        name = str(params.get("name", "")).replace("-", "_")
        mine = self.host.view() if self.host is not None else []
        if name and (chosen := [one for one in mine if one["name"] == name]):
            return {"features": chosen}
        from opd.features.installed import installed_features

        running = {one["name"] for one in mine}
        others = [_off(one) for one in installed_features() if one.get("name") not in running]
        everything = [*mine, *others]
        if not name:
            return {"features": everything}
        if chosen := [one for one in others if one.get("name") == name]:
            return {"features": chosen}
        names = [one["name"] for one in everything if "name" in one]
        raise UnknownNameError(
            f"no feature {name[:100]!r}{did_you_mean(name, names)}",
            hint=f"there are: {' '.join(names)}",
        )

    def stats(self, params: dict[str, Any]) -> dict[str, Any]:
        """For ``stats``."""
        self._refuse_name(params)
        return {"features": self.host.stats(params.get("name")) if self.host else {}}

    def profile(self) -> ProfileHash:
        """For ``readprofile``. Raises UnknownNameError, OperationFailedError when there is none."""
        from opd.features.profile_hash.hooks import running

        self._refuse_name({"name": "profile_hash"})
        if self.host is not None:
            self.host.require("profile_hash")
        if (one := running()) is None:
            raise OperationFailedError("profile_hash counts nothing yet", hint="ask again soon")
        return one

    def settings(self) -> dict[str, Any]:
        """Their tables, with every option, for ``config``."""
        if self.host is None:
            return {}
        return {f"feature.{one['name']}": one["set"] for one in self.host.view()}

    def turn_over(self, what: str) -> None:
        """A session ended by ``save`` or ``reset``."""
        if self.host is not None:
            self.host.turn_over(saved=what == "save")

    def log_stats(self) -> None:
        """A line each in the log."""
        if self.host is not None:
            self.host.log_stats()

    def cost_ns(self) -> dict[str, int]:
        """CPU time by feature."""
        return self.host.cost_ns() if self.host is not None else {}

    def _refuse_name(self, params: dict[str, Any]) -> None:
        if self.host is None and "name" in params:
            raise UnknownNameError(
                f"feature {params['name']!r} does not run here; none was asked for",
                hint="opd --list-features shows what there is",
            )


class _Told:
    """Logs what features do, and publishes what goes wrong with them."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def info(self, event: str, **values: Any) -> None:
        """What happened."""
        self._daemon.log.info(event, **values)

    def warning(self, event: str, **values: Any) -> None:
        """What somebody should know."""
        self._daemon.log.warning(event, **values)
        self._daemon.publish_log("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        """What went wrong."""
        self._daemon.log.error(event, **values)
        self._daemon.publish_log("error", event, values)


def _off(listed: dict[str, Any]) -> dict[str, Any]:
    """A feature or broken plugin that nobody asked for, as the others."""
    if "broken" in listed:
        return {**listed, "state": "broken"}
    about = {key: value for key, value in listed.items() if key not in ("available", "reason")}
    if listed["available"]:
        return {**about, "state": "off"}
    return {**about, "state": "unavailable", "reason": listed["reason"]}

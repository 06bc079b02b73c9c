"""The daemon's life: everything it starts, in order, and ends, in the other order."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opd import __version__
from opd.config import reload
from opd.errors import ConfigError, OpdError, OperationFailedError, RecordFileError, StoreError
from opd.events import opened, parse_events, requests_of, select_cpus
from opd.process import return_memory, started
from opd.query.server import Server
from opd.sampling.kernel import boot_id, cpuid, kernel_build_id
from opd.sampling.live import LiveSampling, this_host
from opd.sampling.window import RunInfo
from opd.service import crashes, governing, machine, segments, triggers
from opd.service import log as logging
from opd.service.answers import Answers
from opd.service.bursts import Bursts
from opd.service.cost import NativeCost
from opd.service.duties import Duties
from opd.service.fallbacks import log_limits, log_load
from opd.service.featuring import Featuring
from opd.service.governing import Governing
from opd.service.imports import import_in_child
from opd.service.liveness import TURNS_A_WATCHDOG, Watchdog
from opd.service.probing import Probing
from opd.service.refusals import explain_open_failure
from opd.service.sdnotify import Notifier
from opd.service.segments import SegmentDuty
from opd.service.sessions import limits_of
from opd.service.signals import Signals
from opd.service.status import flat, published_stats
from opd.service.stopwatch import Stopwatch
from opd.service.triggers import Triggers
from opd.service.windows import WindowLoop
from opd.store.handover import WorkerLink
from opd.store.segments.ask import Asker

if TYPE_CHECKING:
    from opd.config.settings import Config
    from opd.features.registry import Registry
    from opd.sampling.window import EventInfo
    from opd.store.linkstats import LinkEvent

LIVE_SESSION = "live"
CLOSE_TIMEOUT_S = 30.0
MIB = 1 << 20
KIB = 1 << 10


def run(
    config: Config,
    *,
    replay: str | None = None,
    strict: bool = False,
    registry: Registry | None = None,
) -> int:
    """Run opd in the foreground until SIGTERM or SIGINT; its exit status.

    Raises OpdError for what keeps it from starting; ``strict``: also a feature
    that cannot run. ``registry`` knows the plugins, when it was asked already.
    """
    return_memory()
    logging.configure(config.daemon.log_format, verbose=config.daemon.verbose)
    with Signals() as signals:
        daemon = Daemon(config, replay=replay, strict=strict, registry=registry)
        try:
            daemon.start(signals)
            daemon.serve(signals)
        except StoreError as error:
            # Of a daemon's start, a directory it cannot use is a wrong setting.
            raise ConfigError(error.message, hint=error.hint) from error
        finally:
            daemon.stop()
    return 0


class Daemon:
    """Owns sampling, the worker and the server.

    Other threads (the server's handlers) read ``sampling`` and ``loop`` under
    ``state_lock``; only the main thread changes them.
    """

    def __init__(
        self,
        config: Config,
        *,
        replay: str | None = None,
        strict: bool = False,
        registry: Registry | None = None,
    ) -> None:
        self._config = config
        self.replay = replay
        self.session = LIVE_SESSION
        self.directory = Path(config.daemon.session_dir)
        self.log = logging.get_logger()
        self.store_trouble = ""  # the last reason why a window was not stored
        self._notifier = Notifier.from_environment()
        self.duties = Duties()
        self.segments = SegmentDuty(self.directory, self.log, enabled=config.store.segments)
        self.asker = Asker(self.directory, memory_mib=config.store.sql_memory_mib)
        self.started = time.monotonic()
        self.start_cpu_ns = 0  # of the main thread, until ready
        self.ending = threading.Event()
        self.sampling: LiveSampling | None = None
        self.loop: WindowLoop | None = None
        self._run_events: list[EventInfo] = []
        self.state_lock = threading.Lock()  # sampling and loop change together
        self.link = WorkerLink(
            self.directory,
            self._on_link,
            queue_bytes=config.store.queue_mib * MIB,
            memory_bytes=config.store.worker_memory_mib * MIB,
            redact=config.privacy.redact,
        )
        self._crash_file = crashes.CrashFile(self.directory, "opd")
        self.stopwatch = Stopwatch()
        self.native_cost = NativeCost()
        self.governing = Governing(self)
        self.bursts = Bursts(
            self.directory,
            lambda: self.log,
            self._mark_trigger,
            redact=config.privacy.redact,
        )
        self.triggers = Triggers(self)
        self.probing = Probing(self)
        self.featuring = Featuring(self, registry, strict=strict)
        self.answers = Answers(self)
        self._server = Server(
            config.daemon.endpoint,
            self.answers,
            state_dir=self.directory,
            failed=self._on_handler_failed,
        )

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self._config

    # ---- life cycle, main thread

    def start(self, signals: Signals) -> None:
        """Start everything; raises OpdError and leaves nothing behind ``stop`` cannot end."""
        _raise_file_limit()
        self._server.bind()
        if self.replay is None:
            # Before the store: permission is what most often is missing.
            self._open_sampling(self._config)
        try:
            self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.directory}: cannot create it: {error.strerror}") from error
        for trace in crashes.take_stock(self.directory):
            self.log.error("daemon.crashed", trace=str(trace))
        self._crash_file.arm()
        self.link.keep(limits_of(self._config.store))
        self.link.start()
        if self.replay is not None:
            self.session = self._import_replay(self.replay, signals)
            if self.ending.is_set():
                return
        else:
            self._start_sampling()
        self._server.start()
        self.log.info(
            "daemon.ready",
            version=__version__,
            endpoint=self._config.daemon.endpoint,
            session_dir=str(self.directory),
        )
        self.start_cpu_ns = time.thread_time_ns()
        self._notifier.ready("sampling" if self.replay is None else "serving a recording")

    def serve(self, signals: Signals) -> None:
        """Wait for signals until one of them, or ``shutdown``, ends the daemon."""
        started()
        if self._notifier.watchdog_s is not None:
            # Without state_lock: whoever holds it may wait for what hangs.
            watchdog = Watchdog(self._notifier, self.log, lambda: (self.sampling, self.loop))
            self.duties.add("watchdog", self._notifier.watchdog_s / TURNS_A_WATCHDOG, watchdog.turn)
        self.duties.add("governor", governing.EVERY_SECONDS, self.governing.tick)
        if self.replay is None and self._config.burst.trigger:
            self.duties.add("triggers", triggers.EVERY_SECONDS, self.triggers.tick)
        self.duties.add("memory", governing.MEMORY_EVERY_SECONDS, self.governing.memory_tick)
        self.duties.add("segments", segments.EVERY_S, self.segments.run)
        self.duties.add("sql", segments.EVERY_S, self.asker.reap)
        self.duties.add("machine", machine.EVERY_S, machine.MachineWatch(self.link).turn)
        if every := self._config.daemon.stats_interval:
            self.duties.add("feature stats", every, self.featuring.log_stats)
        self.probing.start(self._config.probes)
        while not self.ending.is_set():
            for name in signals.wait(self.duties.wait_s()):
                self._on_signal(name)
            self.duties.run_due(self.log)

    def _on_signal(self, name: str) -> None:
        self.log.info("signal.received", signal=name)
        if name in ("SIGTERM", "SIGINT"):
            self.ending.set()
        elif name == "SIGHUP":
            self._reload()
        elif name == "SIGUSR1":
            try:
                self.log.info("daemon.stats", **flat(self.answers.status({})))
            except OpdError as error:
                self.log.error("daemon.stats", error=str(error))
            self.featuring.log_stats()

    def stop(self) -> None:
        """Dump, close, wait for every child. Never raises for what has not been started."""
        self._notifier.stopping()
        self.bursts.close()
        self.probing.close()
        self._stop_sampling()
        self.segments.stop()
        self.asker.close()
        if not self.link.close(CLOSE_TIMEOUT_S):
            self.log.error("store.incomplete", **flat(self.link.stats()))
        self._server.stop()
        self._crash_file.disarm()
        self.log.info("daemon.stopped", uptime_seconds=round(time.monotonic() - self.started, 3))

    def _open_sampling(self, config: Config) -> None:
        requests = requests_of(config.sampling)
        self.featuring.begin(config, requests)
        sampling = LiveSampling(
            opened(requests) or parse_events(("cpu-clock",), idle=config.sampling.idle),
            select_cpus(config.sampling.cpus),
            callchain=config.sampling.callgraph == "fp",
            separate_thread=config.sampling.separate_thread,
            separate_cpu=config.sampling.separate_cpu,
            ring_bytes=config.sampling.ring_kib * KIB,
            explain=explain_open_failure,
        )
        log_limits(self.log, sampling, asked_ring_bytes=config.sampling.ring_kib * KIB)
        log_load(self.log, sampling.budget_hz())
        self.sampling = sampling
        self._run_events = self.featuring.open_events(sampling)

    def _start_sampling(self) -> None:
        sampling = self.sampling
        if sampling is None:
            raise OperationFailedError("sampling was not opened")
        host, release = this_host()
        self.link.open_run(
            RunInfo(
                run=os.urandom(16).hex(),
                boot=boot_id(),
                kind="live",
                session=LIVE_SESSION,
                origin="",
                kernel_release=release,
                kernel_build_id=kernel_build_id(),
                host=host,
                cpus=os.cpu_count() or 1,
                started_ns=time.time_ns(),
                events=self._run_events,
                cpuid=cpuid(),
            )
        )
        loop = WindowLoop(
            sampling,
            self.link,
            self.featuring,
            interval_s=self._config.daemon.interval,
            cpus_asked=self._config.sampling.cpus,
            log=self.log,
            stopwatch=self.stopwatch,
        )
        sampling.start()
        loop.start()
        self.loop = loop
        self.featuring.replay()

    def _stop_sampling(self) -> None:
        with self.state_lock:
            sampling, loop = self.sampling, self.loop
            self.sampling = self.loop = None
            if loop is not None:
                loop.stop()
            if sampling is not None:
                self.native_cost.retire(sampling.stats())
        # Features may ask the sampler until they have ended.
        self.featuring.end()
        if sampling is not None:
            sampling.close()

    def _reload(self) -> None:
        self._notifier.reloading()
        try:
            config = reload(self._config)
            requests = requests_of(config.sampling)
            select_cpus(config.sampling.cpus)
            self.featuring.check(config, requests)
        except ConfigError as error:
            self.log.warning("config.refused", error=str(error))
            self._notifier.ready()
            return
        before, self._config = self._config, config
        logging.configure(config.daemon.log_format, verbose=config.daemon.verbose)
        self.log = logging.get_logger()
        fixed = [
            name
            for name in ("endpoint", "session_dir")
            if getattr(config.daemon, name) != getattr(before.daemon, name)
        ]
        if config.privacy != before.privacy:
            fixed.append("privacy.redact")
        if fixed:
            self.log.warning("config.needs_restart", keys=fixed)
        self.segments.enabled = config.store.segments
        self.asker.memory_mib = config.store.sql_memory_mib
        self.link.keep(limits_of(config.store))
        if self.loop is not None:
            self.loop.interval_s = config.daemon.interval
        if config.probes != before.probes:
            self.probing.start(config.probes)
        asked = config.sampling != before.sampling or config.features != before.features
        if asked and self.replay is None:
            self._restart_sampling(before)
        self.log.info("config.reloaded")
        self._notifier.ready()

    def _restart_sampling(self, before: Config) -> None:
        self._stop_sampling()
        try:
            self._open_sampling(self._config)
        except OpdError as error:
            # What worked a moment ago goes on.
            self.log.warning("config.refused", error=str(error))
            self._config = before
            self._open_sampling(before)
        self._start_sampling()

    def _import_replay(self, path: str, signals: Signals) -> str:
        """Import the recording; its session's name."""

        def ending() -> bool:
            for name in signals.read():
                self._on_signal(name)
            return self.ending.is_set()

        try:
            with Path(path).open("rb") as file:
                result = import_in_child(
                    file.fileno(),
                    self.directory,
                    name="",
                    origin=path,
                    ending=ending,
                    redact=self._config.privacy.redact,
                )
        except OSError as error:
            raise ConfigError(f"{path}: cannot read it: {error.strerror}") from error
        except RecordFileError as error:
            raise ConfigError(error.message, hint=error.hint) from error
        except OperationFailedError:
            if not self.ending.is_set():
                raise
            return ""
        level = "info" if result["complete"] else "warning"
        getattr(self.log, level)("replay.imported", **flat(result))
        return str(result["session"])

    # ---- told by the link and the server, on their threads

    def _on_link(self, event: LinkEvent) -> None:
        levels = {"ready": "info", "stored": "debug", "line": "info"}
        level = levels.get(event.kind, "error")
        getattr(self.log, level)(f"worker.{event.kind}", **event.fields)
        if event.kind in ("refused", "dropped"):
            self.store_trouble = str(event.fields.get("detail") or event.kind)
        if event.kind == "stored":
            self._server.publish("window", event.fields)
            self._server.publish("stats", published_stats(self.link.stats()))
        elif level != "info":
            self.publish_log(level, event.kind, event.fields)

    def publish_log(self, level: str, event: str, fields: dict[str, Any]) -> None:
        """Tell subscribers what went wrong; any thread may."""
        self._server.publish("log", {"level": level, "event": event, **fields})

    def _mark_trigger(self, text: str) -> None:
        self.link.request("mark", {"marks": [(time.time_ns(), "trigger", text)]})

    def end(self) -> None:
        """Begin to end: wakes the main thread."""
        self.ending.set()
        os.kill(os.getpid(), signal.SIGTERM)

    def _on_handler_failed(self, method: str, error: Exception) -> None:
        self.log.error("query.broken", method=method, error=repr(error))


def _raise_file_limit() -> None:
    """Take all the open files that the hard limit allows: events and images need them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

"""The daemon's answers: what the server's handler threads call."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from opd.errors import OpdError, OperationFailedError, UnknownNameError
from opd.query.backend import events_answer, report_answer
from opd.query.history import marks_answer, sessions_answer
from opd.service import sessions
from opd.service.imports import import_in_child
from opd.service.status import status_of

if TYPE_CHECKING:
    from opd.query.endpoint import Peer
    from opd.service.daemon import Daemon
    from opd.store.queries import Reader

DUMP_TIMEOUT_S = 60.0
# A worker that is stopped or busy: what it last said has to do.
REPORT_TIMEOUT_S = 1.0
TOP_CUT_S = 1.0
STATUS_RANGE_NS = 86_400_000_000_000


class Answers:
    """The Backend of ``opd.query`` over a running Daemon; any thread may call."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._top_turn = threading.Lock()

    def _reader(self) -> Reader:
        from opd.store.queries import open_reader  # start-up has a budget

        return open_reader(self._daemon.directory)

    def hello(self) -> dict[str, Any]:
        """Give the session that answers and what this daemon can do."""
        sampling = self._daemon.sampling
        events = [event.name for event in sampling.events] if sampling is not None else []
        return {
            "capabilities": {"sampling": sampling is not None, "events": events},
            "session": self._daemon.session,
        }

    def status(self, params: dict[str, Any]) -> dict[str, Any]:
        """Give the contract's status, without ``messages``; with ``cost`` what opd costs."""
        daemon = self._daemon
        quality: dict[str, Any] = {}
        problem = ""
        try:
            with self._reader() as reader:
                # A session may be months long, and status has a budget.
                since_ns = time.time_ns() - STATUS_RANGE_NS if daemon_is_live(daemon) else None
                quality = reader.quality(session=daemon.session, since_ns=since_ns)
        except OpdError as error:
            # How the daemon does can be asked even when its store is broken.
            problem = str(error)
        if params.get("cost"):
            daemon.link.ask_report(REPORT_TIMEOUT_S)
        with daemon.state_lock:
            status = status_of(
                started=daemon.started,
                sampling=daemon.sampling,
                link=daemon.link.stats(),
                quality=quality,
                governor=daemon.governing.stats(),
            )
            status["features"] = daemon.featuring.states()
            status["burst"] = daemon.bursts.view()["running"]
            if params.get("cost"):
                from opd.service.cost import cost_of

                status["cost"] = cost_of(daemon)
        status |= {"segments": daemon.segments.stats(), "sql": daemon.asker.stats()}
        if held := status["store"]["held"]:
            waiting = status["worker"]["waiting"]
            problem = problem or f"the store takes no windows ({held}): {waiting} wait for it"
        return status | {"problem": problem} if problem else status

    def report(self, params: dict[str, Any]) -> dict[str, Any]:
        """Answer from the store; live: the last hour unless asked otherwise."""
        if self._daemon.link.stats()["windows_stored"] == 0:
            self.dump()  # the first window may be long in coming
        live = daemon_is_live(self._daemon) and "session" not in params
        try:
            with self._reader() as reader:
                return report_answer(reader, {"session": self._daemon.session} | params, live=live)
        except UnknownNameError as error:
            if why := self._daemon.featuring.why_without(str(params.get("event", ""))):
                error.hint = f"{why}; {error.hint}"
            raise

    def precise(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer from precise samples; live: the last hour unless asked otherwise."""
        from opd.query.precise import precise_answer  # start-up has a budget

        live = daemon_is_live(self._daemon) and "session" not in params
        with self._reader() as reader:
            return precise_answer(
                reader, method, {"session": self._daemon.session} | params, live=live
            )

    def top(self, params: dict[str, Any]) -> dict[str, Any]:
        """Report the last ``seconds``, up to this moment or a second before.

        However many ask, and however often, a window is not ended for them
        more than once in TOP_CUT_S: short windows cost more than long ones.
        """
        params = dict(params)
        seconds = float(params.pop("seconds", 10.0))
        if daemon_is_live(self._daemon):
            until_s = time.time()
            with self._top_turn:
                loop = self._daemon.loop
                if loop is not None and loop.since_cut_s() >= TOP_CUT_S:
                    self.dump()
                if loop is not None and loop.last_end_ns:
                    until_s = loop.last_end_ns / 1e9
            # A window counts whole: the one before must not come along by a moment.
            params["since"] = f"{until_s - 0.9 * seconds:.6f}"
        return self.report(params)

    def sql(self, params: dict[str, Any], peer: Peer | None) -> dict[str, Any]:
        """Answer a query in the child for that."""
        from opd.query.sql import sql_answer

        with self._reader() as reader:
            return sql_answer(self._daemon.asker, reader, params, peer)

    def events(self) -> dict[str, Any]:
        """Give the events of the session that answers."""
        with self._reader() as reader:
            return events_answer(reader, self._daemon.session)

    def features(self, params: dict[str, Any]) -> dict[str, Any]:
        """Give the features that were asked for: options, events, state."""
        return self._daemon.featuring.view(params)

    def stats(self, params: dict[str, Any]) -> dict[str, Any]:
        """Ask features and probes for their statistics; of an older session, what is stored."""
        from opd.query.probestats import stats_answer

        daemon, name = self._daemon, params.get("name")
        with self._reader() as reader:
            if "session" in params:
                return {"features": reader.feature_stats(name, params["session"])}

            def features() -> dict[str, Any]:
                if daemon_is_live(daemon):
                    return dict(daemon.featuring.stats(params)["features"])
                return reader.feature_stats(name, daemon.session)

            return {"features": stats_answer(reader, name, features)}

    def readprofile(self, params: dict[str, Any]) -> dict[str, Any]:
        """Give the profile buffer of profile-hash, after a flip."""
        from opd.query.readprofile import readprofile_answer

        return readprofile_answer(self._daemon.featuring.profile().read(), params)

    def readprofile_reset(self) -> dict[str, Any]:
        """Have all slots of the profile buffer at 0."""
        self._daemon.featuring.profile().reset()
        return {"reset": True}

    def doctor(self) -> dict[str, Any]:
        """Say what is off on this machine, as the daemon sees it."""
        from opd.service.capabilities import examine, own_processes_finding

        settings = self._daemon.config.sampling
        findings = examine(ring_kib=settings.ring_kib, events=len(settings.events))
        if (limits := own_processes_finding(self._daemon.sampling)) is not None:
            findings.insert(0, limits)
        return {"findings": msgspec.to_builtins(findings)}

    def log(self, params: dict[str, Any]) -> dict[str, Any]:
        """Give the last lines of the daemon's log."""
        from opd.service.log import RECENT_LINES, recent

        return {"lines": recent(params.get("lines", RECENT_LINES))}

    def config(self) -> dict[str, Any]:
        """Give the settings in force, and which file or flag set each."""
        from opd.config.settings import SECTIONS

        config = self._daemon.config
        settings = {name: msgspec.to_builtins(getattr(config, name)) for name in SECTIONS}
        settings |= self._daemon.featuring.settings()
        return {"settings": settings, "sources": dict(config.origin.sources)}

    def dump(self) -> dict[str, Any]:
        """Return after every sample taken before the call can be queried."""
        daemon = self._daemon
        with daemon.state_lock:
            loop = daemon.loop
        if loop is None:
            return {"dumped": True}
        sequence = loop.cut_now()
        began = time.monotonic()
        if not daemon.link.wait_acknowledged(sequence, DUMP_TIMEOUT_S):
            link = daemon.link.stats()
            if time.monotonic() - began < DUMP_TIMEOUT_S:
                raise OperationFailedError(
                    f"window {sequence} could not be stored: {daemon.store_trouble or 'dropped'}",
                    hint="its samples are counted as window_dropped",
                )
            raise OperationFailedError(
                f"window {sequence} was not stored within {DUMP_TIMEOUT_S:g} s",
                hint=f"the worker is pid {link['pid']}; {link['waiting']} windows wait",
            )
        return {"dumped": True, "sequence": sequence}

    def start(self) -> dict[str, Any]:
        """Go on sampling."""
        return self._pause(paused=False)

    def stop(self) -> dict[str, Any]:
        """Stop sampling; the daemon goes on answering."""
        return self._pause(paused=True)

    def _pause(self, *, paused: bool) -> dict[str, Any]:
        daemon = self._daemon
        with daemon.state_lock:
            if daemon.sampling is None:
                raise OperationFailedError("this daemon serves a recording, it does not sample")
            daemon.sampling.pause(paused=paused)
        daemon.log.info("sampling.stopped" if paused else "sampling.started")
        return {"sampling": not paused}

    def sessions(self) -> dict[str, Any]:
        """List the sessions of the store."""
        with self._reader() as reader:
            return sessions_answer(reader)

    def marks(self, params: dict[str, Any]) -> dict[str, Any]:
        """List the marks of a range."""
        with self._reader() as reader:
            return marks_answer(reader, params)

    def mark(self, params: dict[str, Any]) -> dict[str, Any]:
        """Keep a mark."""
        return sessions.mark(self._daemon.link, params)

    def save(self, params: dict[str, Any]) -> dict[str, Any]:
        """Keep the running session under a name and begin another."""
        return sessions.turn_over(self._daemon, "save", params)

    def reset(self) -> dict[str, Any]:
        """Begin the running session anew."""
        return sessions.turn_over(self._daemon, "reset", {})

    def record(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Begin, follow, end or list bursts."""
        return self._daemon.bursts.answer(method, params)

    def probe(self, method: str, params: dict[str, Any], peer: Peer | None) -> dict[str, Any]:
        """Measure, follow, end, list, show, compare."""
        return self._daemon.probing.answer(method, params, peer)

    def shutdown(self) -> dict[str, Any]:
        """Begin to end."""
        self._daemon.log.info("daemon.shutdown", reason="asked by a client")
        self._daemon.end()
        return {"stopping": True}

    def import_file(self, fd: int, *, name: str, size: int, origin: str) -> dict[str, Any]:
        """Import ``size`` bytes as a session of their own."""
        self._daemon.log.info("import.started", origin=origin, bytes=size)
        return import_in_child(
            fd,
            self._daemon.directory,
            name=name,
            origin=origin,
            ending=self._daemon.ending.is_set,
            redact=self._daemon.config.privacy.redact,
        )


def daemon_is_live(daemon: Daemon) -> bool:
    """Tell whether the daemon samples, rather than serves a recording."""
    return daemon.replay is None

"""A burst: some seconds of sampling at a high rate into a session of its own.

Runs in a child of the daemon (``python -m opd.recording``), beside the running
profile and into the same store, or in the client for a store without a
daemon. It has its own sampler: what a burst loses, it alone loses.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from opd.errors import (
    ConfigError,
    OpdError,
    OperationFailedError,
    PermissionDeniedError,
    UsageError,
)
from opd.events import parse_events, select_cpus
from opd.events.catalogue import DEFAULT_HZ
from opd.events.cpus import format_cpu_list, online_cpus, parse_cpu_list
from opd.process import die_with, name_process, return_memory
from opd.redaction import Redact  # noqa: TC001 - msgspec reads it
from opd.sampling.kernel import boot_id, kernel_build_id
from opd.sampling.live import LiveSampling, this_host
from opd.sampling.window import RunInfo
from opd.service.refusals import explain_open_failure
from opd.store.requests import check_session_name
from opd.store.writer import StoreWriter
from opd_native.errors import NativeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opd.events import EventRequest
    from opd.sampling.window import Window

DEFAULT_RATE = 4999
DEFAULT_SECONDS = 30.0
SECONDS_MOST = 3600.0
COMMS_MOST = 16
PIDS_MOST = 64
# A window this long: what is taken is stored before much of it could be lost.
WINDOW_SECONDS = 5.0
TURN_SECONDS = 0.5
STORE_BYTES_MOST = 256 << 20
RING_BYTES = 1 << 20
# How often a busy store is tried again before the burst ends.
_TRIES = 5
_RATE = re.compile(r":[0-9]+hz(:|$)", re.IGNORECASE)
_BURSTS = "burst"

# What ended it.
OVER, ASKED, GONE, FULL = "time", "asked", "gone", "store"


class Burst(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for; not both ``pids`` and ``comms``."""

    name: str = ""
    events: tuple[str, ...] = ("cycles:p",)
    rate: int = DEFAULT_RATE
    seconds: float = DEFAULT_SECONDS
    pids: tuple[int, ...] = ()
    comms: tuple[str, ...] = ()
    cpus: str = ""
    callchain: bool = True
    origin: str = ""
    store_bytes: int = STORE_BYTES_MOST
    redact: Redact = "none"  # of paths, before they are stored


class Progress(msgspec.Struct, frozen=True):
    """How far it is."""

    session: str
    seconds: float
    samples: int
    lost: int
    bytes: int


def most_rate(proc: str = "/proc") -> int:
    """Samples a second that the kernel allows at most."""
    try:
        return int(Path(proc, "sys/kernel/perf_event_max_sample_rate").read_text())
    except (OSError, ValueError):
        return 100_000


def check(burst: Burst) -> Burst:
    """The burst with its name filled in. UsageError says what is wrong with it."""
    most = most_rate()
    if not 1 <= burst.rate <= most:
        raise UsageError(
            f"a rate of {burst.rate} Hz: expected 1 to {most}",
            hint="the sysctl kernel.perf_event_max_sample_rate is the limit",
        )
    if not 0 < burst.seconds <= SECONDS_MOST:
        raise UsageError(f"{burst.seconds:g} s: expected more than 0 and at most {SECONDS_MOST:g}")
    if burst.pids and burst.comms:
        raise UsageError("pids or names, not both", hint="one burst after the other does both")
    if len(burst.pids) > PIDS_MOST or len(burst.comms) > COMMS_MOST:
        raise UsageError(f"at most {PIDS_MOST} pids or {COMMS_MOST} names")
    if any(not 0 < pid < 1 << 31 for pid in burst.pids):
        raise UsageError("a pid is a positive number")
    if any(not comm or len(comm) > 64 or "\0" in comm for comm in burst.comms):
        raise UsageError("a name is a glob of 1 to 64 characters", hint="such as 'nginx*'")
    try:
        events(burst)
        cpus = parse_cpu_list(burst.cpus, what="--cpus")
        online = online_cpus()
    except ConfigError as error:  # of a daemon it would be a setting; here it was asked for
        raise UsageError(error.message, hint=error.hint) from error
    if away := sorted(set(cpus) - set(online)):
        raise UsageError(f"CPU {away[0]} is not online", hint=f"online: {format_cpu_list(online)}")
    name = burst.name or time.strftime(f"{_BURSTS}-%Y%m%dT%H%M%SZ", time.gmtime())
    return structs.replace(burst, name=check_session_name(name))


def events(burst: Burst) -> tuple[EventRequest, ...]:
    """What to open: the rate is that of events that are sampled by time and say none."""
    requests = parse_events(burst.events, source="--event")
    if features := [request.name for request in requests if request.feature]:
        raise UsageError(f"event {features[0]!r} is one of a feature, which bursts do not sample")
    return tuple(
        request if _RATE.search(spec) else _at_rate(request, burst.rate)
        for spec, request in zip(burst.events, requests, strict=True)
    )


def _at_rate(request: EventRequest, rate: int) -> EventRequest:
    fallbacks = tuple(_at_rate(fallback, rate) for fallback in request.fallbacks)
    hz = rate if request.hz == DEFAULT_HZ else request.hz
    return structs.replace(request, hz=hz, fallbacks=fallbacks)


def record(
    burst: Burst,
    directory: str | os.PathLike[str],
    *,
    progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> dict[str, Any]:
    """Sample for the time asked, or until ``stop``, into a session of its own.

    Returns ``{"session", "run", "events", "samples", "lost", "filtered",
    "seconds", "windows", "bytes", "ended", "ladder"}``; ``ended`` is "time",
    "asked", "gone" (the processes asked for have ended) or "store" (it grew to
    ``store_bytes``). What was taken until then is kept. Raises UsageError,
    OperationFailedError (no such process), PermissionDeniedError, EventError,
    StoreError.
    """
    burst = check(burst)
    recording = _Recording(burst, Path(directory), progress)
    try:
        return recording.run(stop or threading.Event())
    finally:
        recording.close()


class _Recording:
    def __init__(
        self, burst: Burst, directory: Path, progress: Callable[[Progress], None] | None
    ) -> None:
        from opd.symbols.resolver import Resolver

        self._burst = burst
        self._progress = progress
        self._samples = self._lost = self._filtered = self._windows = self._bytes = 0
        cpus = parse_cpu_list(burst.cpus, what="--cpus") if burst.cpus else select_cpus("")
        self._sampling = LiveSampling(
            events(burst),
            cpus,
            callchain=burst.callchain,
            separate_thread=True,
            separate_cpu=False,
            ring_bytes=RING_BYTES,
            explain=explain_open_failure,
            targeted=bool(burst.pids),
            comms=burst.comms,
        )
        self._writer: StoreWriter | None = None
        try:
            for pid in burst.pids:
                self._add(pid)
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            _refuse_known(directory, burst.name)
            self._writer = StoreWriter(directory, Resolver, redact=burst.redact)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._sampling.close()
        if self._writer is not None:
            self._writer.close()

    def _add(self, pid: int) -> None:
        try:
            self._sampling.add_process(pid)
        except NativeError as error:
            if error.errno == errno.ESRCH:
                raise OperationFailedError(f"there is no process {pid}") from error
            if error.errno in (errno.EACCES, errno.EPERM):
                raise PermissionDeniedError(
                    f"process {pid} may not be sampled by user {os.geteuid()}",
                    hint="it belongs to another user; ask as root",
                ) from error
            raise explain_open_failure(error.errno or 0, f"of process {pid}") from error

    def run(self, stop: threading.Event) -> dict[str, Any]:
        host, release = this_host()
        info = RunInfo(
            run=os.urandom(16).hex(),
            boot=boot_id(),
            kind="burst",
            session=self._burst.name,
            origin=self._burst.origin,
            kernel_release=release,
            kernel_build_id=kernel_build_id(),
            host=host,
            cpus=os.cpu_count() or 1,
            started_ns=time.time_ns(),
            events=self._sampling.events,
        )
        self._open(info)
        began = time.monotonic()
        self._sampling.start()
        ended = self._sample(began, stop)
        seconds = time.monotonic() - began
        self._store(self._sampling.finish())
        if self._writer is not None:
            self._writer.finish()
        return {
            "session": self._burst.name,
            "run": info.run,
            "events": [event.name for event in self._sampling.events],
            "samples": self._samples,
            "lost": self._lost,
            "filtered": self._filtered,
            "seconds": seconds,
            "windows": self._windows,
            "bytes": self._bytes,
            "ended": ended,
            "ladder": [f"{step.refused} → {step.instead}" for step in self._sampling.ladder],
        }

    def _sample(self, began: float, stop: threading.Event) -> str:
        """Cut windows until something ends it; what that was."""
        until = began + self._burst.seconds
        window_at = began + WINDOW_SECONDS
        while (now := time.monotonic()) < until:
            if now >= window_at:
                window_at = max(window_at + WINDOW_SECONDS, now)
                self._store(self._sampling.cut())
                if self._bytes >= self._burst.store_bytes:
                    return FULL
            if self._burst.pids and self._sampling.sweep_targets() == 0:
                return GONE
            self._sampling.follow_processes()
            self._announce()
            if self._progress is not None:
                self._progress(
                    Progress(
                        *(self._burst.name, now - began, self._samples, self._lost, self._bytes)
                    )
                )
            if stop.wait(max(0.0, min(TURN_SECONDS, until - time.monotonic()))):
                return ASKED
        return OVER

    def _open(self, info: RunInfo) -> None:
        assert self._writer is not None  # noqa: S101 - for mypy; made before
        for attempt in range(_TRIES):
            try:
                self._writer.open_run(info)
            except OpdError:
                if attempt + 1 == _TRIES:
                    raise
                time.sleep(TURN_SECONDS)
            else:
                return

    def _announce(self) -> None:
        """Give the writer images and cgroups while they can be looked at."""
        if self._writer is None:
            return
        while images := self._sampling.take_images():
            self._writer.add_images(images)
        self._writer.add_cgroups(self._sampling.take_cgroups())

    def _store(self, window: Window | None) -> None:
        """Store what was taken; a store that is busy is tried again."""
        self._announce()
        if window is None or self._writer is None:
            return
        for attempt in range(_TRIES):
            try:
                receipt = self._writer.append(window)
            except OpdError:
                if attempt + 1 == _TRIES:
                    raise
                time.sleep(TURN_SECONDS)
            else:
                break
        self._windows += 1
        self._samples += receipt.samples
        self._bytes += receipt.bytes
        self._lost += window.quality["ring_full"] + window.quality["hash_full"]
        self._filtered += window.quality["filtered"]


def _refuse_known(directory: Path, name: str) -> None:
    """Raise UsageError when the store has a session of that name."""
    from opd.store.queries import open_reader
    from opd.store.schema import FILE_NAME

    if not (directory / FILE_NAME).exists():
        return
    with open_reader(directory) as reader:
        if any(session.name == name for session in reader.sessions()):
            raise UsageError(f"there is a session {name!r} already", hint="choose another --name")


# ---- the daemon's child


def main(arguments: Sequence[str]) -> int:
    """Record for the daemon: DIRECTORY PARENT BURST-as-JSON; lines of JSON on stdout.

    ``{"progress": …}`` now and then, then ``{"result": …}`` or ``{"error": …}``.
    SIGTERM ends it early and keeps what was taken.
    """
    directory, parent, text = arguments
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with(int(parent))
    name_process("opd-burst")
    return_memory()

    def tell(what: str, value: Any) -> None:
        sys.stdout.write(json.dumps({what: value}) + "\n")
        sys.stdout.flush()

    try:
        burst = msgspec.json.decode(text, type=Burst)
        result = record(
            burst,
            directory,
            progress=lambda progress: tell("progress", structs.asdict(progress)),
            stop=stop,
        )
    except OpdError as error:
        tell("error", {"code": error.code, "message": error.message, "hint": error.hint})
        return 1
    tell("result", result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Bursts beside the running profile: one at a time, each in a child of its own."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from opd import errors
from opd.errors import OpdError, OperationFailedError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from opd.recording import Burst
    from opd.redaction import Redact
    from opd.service.log import Logger

# A client that has not asked for so long is gone, and its burst ends.
LEASE_SECONDS = 10.0
# What a child may take beyond the time asked: to name, to store, a busy machine.
GRACE_SECONDS = 60.0
CLOSE_SECONDS = 10.0
REMEMBERED = 8


class _Running:
    """One burst and its child. The watcher's thread changes it, under ``changed``."""

    def __init__(self, burst: Burst, lease: float | None) -> None:
        self.burst = burst
        self.began = time.monotonic()
        self.at = time.time()
        self.lease = lease
        self.asked = self.began
        self.changed = threading.Condition()
        self.progress: dict[str, Any] = {}
        self.result: dict[str, Any] | None = None
        self.error: OpdError | None = None
        self.child: subprocess.Popen[bytes] | None = None
        self.ended = False
        self.stopping = False

    def stop(self) -> None:
        """Ask the child to end; what it has taken is kept."""
        with self.changed:
            self.stopping = True
            if self.child is not None and self.child.poll() is None:
                self.child.terminate()

    def view(self) -> dict[str, Any]:
        """Give what a client is told; ``error`` is not in it."""
        with self.changed:
            return {
                "session": self.burst.name,
                "running": not self.ended,
                "started": self.at,
                "asked_seconds": self.burst.seconds,
                "origin": self.burst.origin,
                "progress": self.progress,
                "result": self.result,
                "failed": str(self.error) if self.error else None,
            }


class Bursts:
    """The daemon's bursts; any thread may call."""

    def __init__(
        self,
        directory: Path,
        log: Callable[[], Logger],
        mark: Callable[[str], object],
        *,
        redact: Redact = "none",
    ) -> None:
        """``mark`` keeps a text in the store: of bursts that a trigger began."""
        self._mark = mark
        self._directory = directory
        self._redact: Redact = redact
        self._log = log
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._ended: dict[str, _Running] = {}
        self._failed: _Running | None = None  # the last one, before it sampled
        self._closed = False

    def start(self, burst: Burst, *, lease: float | None = LEASE_SECONDS) -> dict[str, Any]:
        """Begin. With a ``lease`` somebody must ``poll``, which tells what went wrong.

        Raises OperationFailedError when one runs, and what ``opd.recording.check`` does.
        """
        from opd.recording import check  # its way in is heavy, and start-up has a budget

        burst = msgspec.structs.replace(check(burst), redact=self._redact)
        running = _Running(burst, lease)
        with self._lock:
            if self._closed:
                raise OperationFailedError("the daemon is ending")
            if self._running is not None:
                other = self._running
                left = other.burst.seconds - (time.monotonic() - other.began)
                how_long = f"for {left:.0f} s more" if left > 0 else "and about to end"
                raise OperationFailedError(
                    f"burst {other.burst.name!r} is running, {how_long}",
                    hint=f"wait, or end it: opctl record --stop {other.burst.name}",
                )
            self._running = running
            self._failed = None
        # The child ends with the thread that started it: one that stays as long.
        threading.Thread(target=self._watch, args=(running,), name="opd-burst", daemon=True).start()
        return running.view()

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer one of the four methods."""
        if method == "record":
            return self.start(_burst_of(params))
        if method == "record_poll":
            return self.poll(params["session"])
        if method == "record_stop":
            return self.stop(params.get("session"))
        return self.view()

    def poll(self, session: str) -> dict[str, Any]:
        """Tell how far a burst is, and keep it going. Raises UnknownNameError, its error."""
        running = self._find(session)
        running.asked = time.monotonic()
        if running.error is not None:
            raise running.error
        return running.view()

    def stop(self, session: str | None) -> dict[str, Any]:
        """End a burst (the running one unless named) early. Raises UnknownNameError."""
        with self._lock:
            running = self._running
        if session is None and running is None:
            raise OperationFailedError("no burst is running")
        if session is not None:
            running = self._find(session)
        if running is not None:
            running.stop()
            return running.view()
        return {}

    def view(self) -> dict[str, Any]:
        """Give the burst that runs, and the last ones."""
        with self._lock:
            running, ended = self._running, list(self._ended.values())
        return {
            "running": running.view() if running is not None else None,
            "ended": [one.view() for one in ended],
        }

    def close(self) -> None:
        """End the running one and wait for it."""
        with self._lock:
            self._closed = True
            running = self._running
        if running is None:
            return
        running.stop()
        with running.changed:
            if not running.changed.wait_for(lambda: running.ended, CLOSE_SECONDS):
                with contextlib.suppress(OSError):
                    if running.child is not None:
                        running.child.kill()

    def _find(self, session: str) -> _Running:
        with self._lock:
            for one in (self._running, self._failed):
                if one is not None and one.burst.name == session:
                    return one
            if session in self._ended:
                return self._ended[session]
        raise UnknownNameError(
            f"no burst {session!r} of this daemon", hint="opctl record --list shows them"
        )

    # ---- the watcher's thread

    def _watch(self, running: _Running) -> None:
        self._log().info(
            "burst.started",
            session=running.burst.name,
            seconds=running.burst.seconds,
            origin=running.burst.origin,
        )
        try:
            self._follow(running)
        except OpdError as error:
            running.error = error
        except Exception as error:  # noqa: BLE001 - a burst's end is not the daemon's
            running.error = OperationFailedError(f"the burst broke: {error!r}")
        with self._lock:
            self._running = None
            if running.error is not None and not running.progress:
                self._failed = running
            else:
                self._ended[running.burst.name] = running
            while len(self._ended) > REMEMBERED:
                del self._ended[next(iter(self._ended))]
        with running.changed:
            running.ended = True
            running.changed.notify_all()
        if running.error is not None:
            self._log().error("burst.failed", session=running.burst.name, error=str(running.error))
        else:
            fields = running.result or {}
            self._log().info(
                "burst.ended",
                **{name: fields.get(name) for name in ("session", "samples", "lost", "ended")},
            )

    def _follow(self, running: _Running) -> None:
        """Start the child, take its word line by line, and see to its end."""
        text = msgspec.json.encode(running.burst).decode()
        command = [sys.executable, "-P", "-m", "opd.recording", str(self._directory)]
        command += [str(os.getpid()), text]
        until = running.began + running.burst.seconds + GRACE_SECONDS
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        ) as child:
            with running.changed:
                running.child = child
                if running.stopping:
                    child.terminate()
            complaint = bytearray()
            for line in _lines(child, complaint):
                now = time.monotonic()
                if line:
                    self._take(running, line)
                if running.lease is not None and now - running.asked > running.lease:
                    running.lease = None
                    self._log().warning("burst.abandoned", session=running.burst.name)
                    running.stop()
                if now > until:
                    child.kill()
                    raise OperationFailedError("the burst did not end in time and was killed")
        if running.result is None and running.error is None:
            if child.returncode < 0:
                why = f"was killed by signal {-child.returncode}"
            else:
                last = complaint.decode(errors="replace").strip().splitlines()[-1:]
                why = f"ended with status {child.returncode}: {' '.join(last)}"
            raise OperationFailedError(f"the burst's process {why}")

    def _take(self, running: _Running, line: bytes) -> None:
        word: dict[str, Any] = json.loads(line)
        if running.burst.origin and "progress" in word and not running.progress:
            try:
                self._mark(f"{running.burst.name}: {running.burst.origin}")
            except OpdError as error:
                self._log().warning("trigger.not_marked", reason=str(error))
        with running.changed:
            running.progress = word.get("progress", running.progress)
            running.result = word.get("result", running.result)
            if wrong := word.get("error"):
                running.error = error_of(wrong)
            running.changed.notify_all()


def _burst_of(params: dict[str, Any]) -> Burst:
    from opd.recording import Burst

    names = {"event": "events", "pid": "pids", "comm": "comms"}
    return Burst(**{names.get(name, name): value for name, value in params.items()})


def _lines(child: subprocess.Popen[bytes], complaint: bytearray) -> Any:
    """Give each line of the child's output, and an empty one about every second."""
    assert child.stdout is not None  # noqa: S101 - for mypy; both are pipes
    assert child.stderr is not None  # noqa: S101
    poll = select.poll()
    open_fds = {child.stdout.fileno(), child.stderr.fileno()}
    for fd in open_fds:
        poll.register(fd, select.POLLIN)
    rest = b""
    while open_fds:
        for fd, _events in poll.poll(1000):
            data = os.read(fd, 65536)
            if not data:
                poll.unregister(fd)
                open_fds.discard(fd)
            elif fd == child.stderr.fileno():
                complaint += data
                del complaint[:-4096]
            else:
                *whole, rest = (rest + data).split(b"\n")
                yield from whole
        yield b""


def error_of(wrong: dict[str, Any]) -> OpdError:
    """Give the error that a child told as code, message and hint."""
    kinds = {
        kind.code: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, OpdError)
    }
    kind = kinds.get(wrong["code"], OperationFailedError)
    return kind(wrong["message"], hint=wrong["hint"])

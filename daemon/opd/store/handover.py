"""The daemon's side of the worker: hands windows over and keeps them until stored.

One thread starts the worker, talks to it and starts the next one when it
dies. Callers only put things in a queue: they wait for a lock, never for the
worker, which may be stopped or gone for as long as the queue lasts.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import select
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from opd.errors import OperationFailedError, ProtocolError, StoreError
from opd.store import messages
from opd.store.linkstats import LinkEvent, link_stats
from opd.store.outbox import Fate, Outbox, close_all
from opd.store.requests import error_of
from opd.store.start import start_worker

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from opd.redaction import Redact
    from opd.sampling.window import CgroupInfo, ImageInfo, RunInfo, Window

DEFAULT_QUEUE_BYTES = 64 << 20
REQUEST_TIMEOUT_S = 20.0
_BACKOFF_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
# Signals that somebody sent; any other end was the worker's own fault.
_SENT_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_STEP_SECONDS = 0.05
_HELD_SECONDS = 3.0


class WorkerLink:
    """Everything a daemon needs of the store's worker.

    ``queue_bytes`` bounds the columns of windows that wait; beyond it the
    oldest one not sent yet is dropped, and its samples are added to
    ``window_dropped`` of the next window that is sent. ``memory_bytes`` is the
    worker's limit. ``on_event`` is called on the link's thread and must be
    quick; what it raises is counted and goes no further.
    """

    def __init__(
        self,
        directory: Path,
        on_event: Callable[[LinkEvent], None] | None = None,
        *,
        queue_bytes: int = DEFAULT_QUEUE_BYTES,
        memory_bytes: int | None = None,
        resolver: str | None = None,
        redact: Redact = "none",
    ) -> None:
        self._directory = directory
        self._on_event = on_event
        self._options: list[str] = []
        if memory_bytes is not None:
            self._options += ["--memory-bytes", str(memory_bytes)]
        if resolver is not None:
            self._options += ["--resolver", resolver]
        if redact != "none":
            self._options += ["--redact", redact]

        # Guards everything of this block.
        self._changed = threading.Condition()
        self._outbox = Outbox(queue_bytes)
        self._report = messages.Report(0, 0.0, 0, {})
        self._cpu_before = 0.0
        self._failure: StoreError | None = None
        self._ready = False
        self._keep: messages.Keep | None = None
        self._keep_sent = False
        self._held = ""  # why the store takes no windows
        self._closing = False
        self._abandoned = False
        self._events: list[LinkEvent] = []

        # The link's thread only.
        self._child: subprocess.Popen[bytes] | None = None
        self._child_fd = -1
        self._socket: socket.socket | None = None
        self._splitter = messages.Splitter[messages.ToDaemon](messages.ToDaemon)
        self._sending: list[tuple[memoryview, list[int]]] = []
        self._close_sent = False
        self._deaths_in_row = 0
        self._start_at = 0.0

        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._main, name="opd-store-link", daemon=True)

    # ---- any thread

    def start(self, timeout: float = 10.0) -> None:
        """Start the worker. StoreError when the store cannot be opened in time."""
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._failure is not None, timeout)
            if self._failure is not None:
                raise self._failure
            if not self._ready:
                raise StoreError(f"{self._directory}: the worker did not start in {timeout:g} s")

    def open_run(self, run: RunInfo) -> None:
        """Windows from now on belong to ``run``; the same run may change its session."""
        with self._changed:
            self._outbox.open_run(run)
        self._wake()

    def send_images(self, images: Iterable[tuple[ImageInfo, int | None]]) -> None:
        """Announce images; their open files become the link's, which closes them."""
        with self._changed:
            self._outbox.add_images(self._run(), list(images))
        self._wake()

    def send_cgroups(self, cgroups: Sequence[CgroupInfo]) -> None:
        """Announce cgroups before the windows that mention them, or that none will."""
        with self._changed:
            self._outbox.add_cgroups(self._run(), cgroups)
        self._wake()

    def send_window(self, window: Window) -> None:
        """Hand a window over. It is kept until the worker has stored it."""
        with self._changed:
            for lost in self._outbox.add_window(self._run(), window):
                self._tell("dropped", sequence=lost.sequence, samples=lost.samples)
            self._changed.notify_all()
        self._wake()

    def shed(self) -> None:
        """Have the worker forget what only saves it work."""
        with self._changed:
            self._outbox.add_word(messages.Shed())
        self._wake()

    def ask_report(self, timeout: float) -> bool:
        """Have the worker report, and wait for it up to ``timeout`` s; whether it did."""
        with self._changed:
            before = self._report
            self._outbox.add_word(messages.Tell())
        self._wake()
        with self._changed:
            return self._changed.wait_for(lambda: self._report is not before, timeout)

    @property
    def worker_pid(self) -> int:
        """The worker that runs now; 0 between two."""
        child = self._child
        return child.pid if child is not None else 0

    def wait_acknowledged(self, sequence: int, timeout: float) -> bool:
        """Wait up to ``timeout`` s until ``sequence`` of the current run is stored.

        False when it is not by then, and at once when it was refused or
        dropped. The last thousand are remembered.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._outbox.fate(sequence) in (Fate.STORED, Fate.LOST), max(timeout, 0.0)
            )
            return self._outbox.fate(sequence) is Fate.STORED

    def request(
        self, what: str, params: dict[str, Any], timeout: float = REQUEST_TIMEOUT_S
    ) -> dict[str, Any]:
        """Have the worker do something (opd.store.requests) after the windows that wait.

        It is done once, also when a worker dies over it. Raises what it raised,
        and OperationFailedError when there is no answer in time.
        """
        request = messages.Request(os.urandom(8).hex(), what, params)
        with self._changed:
            if self._closing:
                raise OperationFailedError("opd is ending")
            self._outbox.add_request(request, awaited=True)
        self._wake()
        with self._changed:
            self._changed.wait_for(lambda: self._outbox.has_reply(request.id), timeout)
            reply, given_up = self._outbox.take_reply(request.id)
            waiting = self._outbox.waiting_windows
        if reply is None:
            raise OperationFailedError(
                f"{what}: the store's worker did not answer within {timeout:g} s",
                hint=f"{waiting} windows wait for it; "
                + ("nothing was done" if given_up else "it may still be done"),
            )
        if reply.code:
            raise error_of(reply)
        return reply.result

    def post(self, what: str, params: dict[str, Any]) -> None:
        """As ``request``, without waiting: what becomes of it nobody is told."""
        with self._changed:
            request = messages.Request(os.urandom(8).hex(), what, params)
            self._outbox.add_request(request, awaited=False)
        self._wake()

    def stats(self) -> dict[str, object]:
        """Counters of the link and the worker's last report, see opd.store.linkstats."""
        with self._changed:
            return link_stats(self._outbox, self._report, self._cpu_before, self._held)

    def keep(self, limits: messages.Keep) -> None:
        """Have the store keep so much from now on, whoever the worker is."""
        with self._changed:
            self._keep, self._keep_sent = limits, False
        self._wake()

    def close(self, timeout: float = 10.0) -> bool:
        """Store what waits, end the worker and reap it; True when nothing was left over.

        After ``timeout`` seconds, sooner on a full disk, the worker is killed and what waits is
        counted as dropped.
        """
        with self._changed:
            self._closing = True
            if self._held:
                # A full disk: what it does not take now it need not take by the end.
                timeout = min(timeout, _HELD_SECONDS)
        self._wake()
        if self._thread.ident is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                with self._changed:
                    self._abandoned = True
                self._wake()
                self._thread.join()
        with self._changed:
            left_over = self._outbox.waiting_windows
            self._outbox.abandon()
            self._changed.notify_all()
            for fd in (self._wake_read, self._wake_write):
                if fd >= 0:
                    os.close(fd)
            self._wake_read = self._wake_write = -1
            return left_over == 0

    def _run(self) -> RunInfo:
        if self._outbox.run is None:
            raise StoreError("images or a window before a run was opened")
        return self._outbox.run

    def _tell(self, kind: str, **fields: object) -> None:
        """Keep an event for the callback, which runs without the lock."""
        self._events.append(LinkEvent(kind, fields))

    def _wake(self) -> None:
        # Full means that the thread will wake anyway.
        with contextlib.suppress(BlockingIOError):
            if self._wake_write >= 0:
                os.write(self._wake_write, b"x")

    # ---- the link's thread

    def _main(self) -> None:
        try:
            while not self._is_done():
                if self._child is None and time.monotonic() >= self._start_at:
                    self._spawn()
                self._turn()
                self._deliver()
        finally:
            if self._child is not None:
                self._child.kill()
                self._bury()
            self._deliver()

    def _is_done(self) -> bool:
        with self._changed:
            if self._abandoned:
                return True
            if not self._closing or self._outbox.waiting_windows:
                return False
        return self._child is None

    def _spawn(self) -> None:
        """Start a worker.

        On this thread, which lives until the worker is reaped: the kernel
        kills the worker when the *thread* that started it ends.
        """
        try:
            child, ours = start_worker(self._directory, self._options)
        except OSError as error:
            with self._changed:
                self._tell("died", reason=f"cannot start: {error.strerror}")
            self._delay()
            return
        self._child = child
        self._child_fd = os.pidfd_open(child.pid)
        self._socket = ours
        self._splitter = messages.Splitter[messages.ToDaemon](messages.ToDaemon)
        self._close_sent = False
        with self._changed:
            self._keep_sent = False
            self._held = ""
            self._outbox.counters["starts"] += 1

    def _turn(self) -> None:
        """Wait for something to do, and do it."""
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        timeout: float | None = max(0.0, self._start_at - time.monotonic())
        if self._child is not None:
            poll.register(self._child_fd, select.POLLIN)
            timeout = None
        if self._socket is not None:
            poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._next() else 0))
        ready = dict(poll.poll(None if timeout is None else timeout * 1000))
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        if self._socket is not None and (events := ready.get(self._socket.fileno())):
            if events & ~select.POLLOUT:
                self._receive()
            if events & select.POLLOUT and self._socket is not None:
                self._send()
        if self._child_fd in ready and self._child is not None:
            while self._socket is not None and self._receive():
                pass  # its last acknowledgements
            self._bury()

    def _next(self) -> bool:
        """Whether there is something to send; takes it from the outbox."""
        if self._sending:
            return True
        with self._changed:
            if not self._ready:
                return False
            if self._keep is not None and not self._keep_sent:
                self._keep_sent = True
                self._sending = [(memoryview(messages.frame(self._keep)), [])]
                return True
            parcels = self._outbox.take()
            goodbye = not parcels and self._closing and not self._outbox.waiting_windows
        self._sending = [
            (memoryview(messages.frame(parcel.message)), parcel.files) for parcel in parcels
        ]
        if goodbye and not self._close_sent:
            self._close_sent = True
            self._sending = [(memoryview(messages.frame(messages.Close())), [])]
        return bool(self._sending)

    def _send(self) -> None:
        """Send as much as the socket takes."""
        while self._socket is not None and self._next():
            data, files = self._sending[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
            try:
                sent = self._socket.sendmsg([data], rights if files else [])
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ETOOMANYREFS:
                    # The worker is behind with files it was sent.
                    time.sleep(_STEP_SECONDS)
                    return
                self._hang_up()
                return
            # Files go with the first byte.
            close_all(files)
            self._sending[0] = (data[sent:], files)
            if sent == len(data):
                del self._sending[0]

    def _receive(self) -> bool:
        """Take what the worker sent; False when there is nothing more."""
        assert self._socket is not None  # noqa: S101 - for mypy; callers looked
        try:
            data, files = messages.receive(self._socket)
        except BlockingIOError:
            return False
        except OSError:
            data, files = b"", []
        close_all(files)
        if not data:
            self._hang_up()
            return False
        try:
            answers = self._splitter.feed(data)
        except ProtocolError as error:
            with self._changed:
                self._tell("line", level="error", text=f"store: worker: {error}")
            self._hang_up()
            if self._child is not None:
                self._child.kill()
            return False
        with self._changed:
            for answer in answers:
                self._take_answer(answer)
            self._changed.notify_all()
        return True

    def _take_answer(self, answer: messages.ToDaemon) -> None:
        fields = {name: getattr(answer, name) for name in answer.__struct_fields__}
        if isinstance(answer, messages.Stored):
            self._deaths_in_row = 0
            self._outbox.stored(
                answer.run,
                answer.sequence,
                new=answer.new,
                samples=answer.samples,
                size=answer.bytes,
            )
            self._tell("stored", **fields)
        elif isinstance(answer, messages.Refused):
            self._deaths_in_row = 0
            lost = self._outbox.refuse(answer.run, answer.sequence, answer.reason)
            self._tell("refused", samples=lost, **fields)
        elif isinstance(answer, messages.Reply):
            self._deaths_in_row = 0
            self._outbox.reply(answer)
        elif isinstance(answer, messages.Report):
            self._report = answer
        elif isinstance(answer, messages.Line):
            self._tell("line", **fields)
        elif isinstance(answer, messages.Held):
            self._held = answer.reason
        elif isinstance(answer, messages.Ready):
            self._ready = True
            self._failure = None
            self._tell("ready", **fields)
        else:
            self._failure = StoreError(answer.message, hint=answer.hint)
            self._tell("failed", **fields)

    def _hang_up(self) -> None:
        """Close the socket; the worker's end shows on its pidfd."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _bury(self) -> None:
        """Reap the worker and make ready for the next."""
        assert self._child is not None  # noqa: S101 - for mypy; callers looked
        status = self._child.wait()
        os.close(self._child_fd)
        self._child, self._child_fd = None, -1
        self._hang_up()
        for _data, files in self._sending:
            close_all(files)
        self._sending = []
        crashed = status != 0 and -status not in _SENT_SIGNALS
        with self._changed:
            self._ready = False
            self._cpu_before += self._report.cpu_seconds
            self._report = messages.Report(0, 0.0, 0, self._report.errors)
            if status == 0 and self._close_sent:
                return
            self._outbox.counters["deaths"] += 1
            given_up = self._outbox.worker_died(crashed=crashed)
            self._tell("died", status=status)
            if given_up is not None:
                self._tell("given_up", sequence=given_up.sequence, samples=given_up.samples)
            self._changed.notify_all()
        self._delay()

    def _delay(self) -> None:
        """Wait longer with each death before the next start."""
        at = min(self._deaths_in_row, len(_BACKOFF_SECONDS) - 1)
        self._start_at = time.monotonic() + _BACKOFF_SECONDS[at]
        self._deaths_in_row += 1

    def _deliver(self) -> None:
        with self._changed:
            events, self._events = self._events, []
        if self._on_event is None:
            return
        for event in events:
            try:
                self._on_event(event)
            except Exception:  # noqa: BLE001 - the link goes on; stats() shows it
                with self._changed:
                    self._outbox.counters["callback_errors"] += 1

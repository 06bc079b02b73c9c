"""The process that owns the store: ``python -m opd.store --fd N --directory DIR``.

It reads image files that anybody may have written and a disk that may be
full, so that the daemon does not have to: it may die at any moment, and what
it has not acknowledged is sent again to the next one. It ends when the daemon
does (by signal, and by the end of the socket), and on Close.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import os
import resource
import select
import signal
import socket
import sqlite3
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opd.errors import OpdError, OperationFailedError, StoreError
from opd.process import die_with, name_process, pss_bytes, return_memory, started, trim_memory
from opd.redaction import Redact  # noqa: TC001 - msgspec reads it
from opd.service.crashes import CrashFile
from opd.store import messages
from opd.store.damage import is_ours, set_aside
from opd.store.database import DamagedStoreError, StoreGoneError
from opd.store.metered import Meter, MeteredNames
from opd.store.requests import reply_with
from opd.store.writer import StoreWriter, WindowReceipt

if TYPE_CHECKING:
    from collections.abc import Callable

    from opd.sampling.window import RunInfo, Window
    from opd.store.names import NameSource

DEFAULT_MEMORY_BYTES = 512 << 20
DEFAULT_RESOLVER = "opd.symbols.resolver:Resolver"

# Reading the process's own memory costs the kernel a walk of its pages.
EXIT_STORE_GONE = 3
_REPORT_SECONDS = 5.0
_WEIGH_SECONDS = 60.0
# What burst and is free again lies between what is kept: 14 of 53 MB after 50 minutes.
_TRIM_SECONDS = 180.0
# What may pass by itself: the window is tried again this often.
_WAITED_FOR = frozenset(("disk_full", "io_error", "busy", "read_only", "sqlite"))
_HOLD_SECONDS = 1.0
_TRIES = 5


def main(arguments: list[str] | None = None) -> int:
    """Serve one daemon; the exit status is 1 when the store could not be opened."""
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    die_with(options.parent)
    name_process("opd-store")
    return_memory()
    # The daemon is asked to stop; the worker stores what that brings first.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_DATA, (options.memory_bytes, options.memory_bytes))
    with socket.socket(fileno=options.fd) as connection:
        connection.setblocking(True)  # noqa: FBT003
        worker = Worker(
            connection, Path(options.directory), _resolver(options.resolver), redact=options.redact
        )
        # The daemon may be gone at any time, and then nobody is left to tell.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            return worker.run()
    return 0


class Options(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    """The command line: ``--name value`` each."""

    fd: int  # socket to the daemon
    directory: str  # session directory
    parent: int = 0  # pid of the daemon
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    resolver: str = DEFAULT_RESOLVER  # MODULE:NAME
    redact: Redact = "none"  # of paths


def _parse(arguments: list[str]) -> Options:
    # The daemon writes it, nobody else: argparse would cost more than all of this module.
    names = [name.removeprefix("--") for name in arguments[::2]]
    values = dict(zip(names, arguments[1::2], strict=True))
    return msgspec.convert(values, Options, strict=False)


def _resolver(name: str) -> Callable[[RunInfo], NameSource]:
    """Find the resolver when the first run opens: its modules are heavy."""
    module, _, attribute = name.partition(":")

    def make(run: RunInfo) -> NameSource:
        source: NameSource = getattr(importlib.import_module(module), attribute)(run)
        return source

    return make


class Worker:
    """One connection to a daemon and the store behind it."""

    def __init__(
        self,
        connection: socket.socket,
        directory: Path,
        resolver: Callable[[RunInfo], NameSource],
        *,
        redact: Redact = "none",
    ) -> None:
        self._redact: Redact = redact
        self._connection = connection
        self._directory = directory
        self._meter = Meter()
        self._resolver = lambda run: MeteredNames(resolver(run), self._meter)
        self._files: collections.deque[int] = collections.deque()
        self._errors: collections.Counter[str] = collections.Counter()
        self._run = ""
        self._reported = 0.0
        self._weighed, self._pss = -_WEIGH_SECONDS, 0
        self._trimmed = time.monotonic()

    def run(self) -> int:
        """Serve until Close or the daemon's end."""
        try:
            self._writer = self._open()
        except StoreError as error:
            self._send(messages.Failed(error.message, error.hint))
            return 1
        crash_file = CrashFile(self._directory, "opd-store")
        crash_file.arm()
        try:
            self._send(messages.Ready(os.getpid()))
            started()
            self._report()
            self._serve()
        finally:
            # The daemon has its acknowledgements; what is left to do is tidy.
            with contextlib.suppress(StoreError, sqlite3.Error):
                self._writer.close()
            crash_file.disarm()
        return 0

    def _open(self) -> StoreWriter:
        """Open the store; one of ours that is damaged goes aside, and a new one is begun."""

        def open_it() -> StoreWriter:
            return StoreWriter(self._directory, self._resolver, exclusive=True, redact=self._redact)

        try:
            return open_it()
        except StoreError as error:
            if reason_of(error) != "corrupt" or not is_ours(self._directory):
                raise
            self._set_aside(error)
            return open_it()

    def _set_aside(self, error: StoreError) -> None:
        aside = set_aside(self._directory)
        words = (
            f"store: {error}: it is damaged, moved to {aside}, and a new one is begun; it counts"
            " for store.keep_mib and goes first, so move it elsewhere to keep it"
        )
        self._send(messages.Line("error", words))

    def _serve(self) -> None:
        splitter = messages.Splitter[messages.ToWorker](messages.ToWorker)
        while True:
            self._rest()
            data, files = messages.receive(self._connection)
            self._files.extend(files)
            if not data:
                return
            message: messages.ToWorker
            for message in splitter.feed(data):
                if isinstance(message, messages.Close):
                    self._report()
                    return
                self._handle(message)

    def _handle(self, message: messages.ToWorker) -> None:
        if isinstance(message, messages.Append):
            self._append(message.window)
            return
        if isinstance(message, messages.Request):
            self._send(self._carry_out(message))
            return
        try:
            if isinstance(message, messages.Shed):
                self._writer.shed()
                trim_memory()
            elif isinstance(message, messages.Tell):
                self._report()
            elif isinstance(message, messages.Keep):
                self._writer.keep(message)
            elif isinstance(message, messages.Run):
                self._run = message.run.run
                self._meter.storing(self._writer.open_run, message.run)
            elif isinstance(message, messages.Images):
                images = [
                    (messages.image_of(wire), self._files.popleft() if wire.file else None)
                    for wire in message.images
                ]
                self._meter.storing(self._writer.add_images, images)
            elif isinstance(message, messages.Cgroups):
                self._writer.add_cgroups(map(messages.cgroup_of, message.cgroups))
        except Exception as error:  # noqa: BLE001 - the windows that follow are refused in turn
            self._fail(error, type(message).__name__.lower())

    def _rest(self) -> None:
        """Delete what is old, a little at a time, until there is a message."""
        while self._tidy() and not _readable(self._connection):
            pass

    def _tidy(self) -> bool:
        """A few milliseconds of it; True while there is more to do."""
        try:
            more = self._meter.storing(self._writer.tidy)
        except StoreError as error:
            self._fail(error, "retention")
            return False
        if self._writer.retention is not None and (news := self._writer.retention.news()):
            self._send(messages.Line(*news))
        return more

    def _append(self, window: Window) -> None:
        """Store it or say why not: no window ends this process."""
        try:
            receipt = self._store(window)
        except StoreGoneError as error:
            # The next worker begins a new store, and gets the window again.
            self._send(messages.Line("error", f"store: {error}; a new one is begun"))
            raise SystemExit(EXIT_STORE_GONE) from error
        except Exception as error:  # noqa: BLE001 - every reason is told to the daemon
            reason = self._fail(error, f"window {window.sequence}")
            self._send(messages.Refused(self._run, window.sequence, reason, str(error)))
        else:
            self._send(
                messages.Stored(
                    *(receipt.run, receipt.sequence, receipt.new),
                    *(receipt.samples, receipt.bytes),
                )
            )
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self._report()

    def _store(self, window: Window) -> WindowReceipt:
        """Store it, as soon as the disk lets it: until then windows wait with the daemon."""
        held, tries = "", 0
        while True:
            try:
                receipt = self._meter.storing(self._writer.append, window)
            except StoreError as error:
                reason = reason_of(error)
                if reason not in _WAITED_FOR:
                    raise
                if reason != held:
                    self._errors[reason] += 1
                    words = f"store: {reason}: {error}; windows wait until it takes them again"
                    self._send(messages.Line("error", words))
                    self._send(messages.Held(reason))
                    held = reason
                if _hung_up(self._connection, _HOLD_SECONDS):
                    raise
                tries += 1
                if reason == "sqlite" and tries >= _TRIES:
                    self._send(messages.Line("error", f"store: {error}; tried by another worker"))
                    raise SystemExit(EXIT_STORE_GONE) from error
                self._tidy()
            else:
                if held:
                    self._send(messages.Line("info", "store: windows are stored again"))
                    self._send(messages.Held(""))
                return receipt

    def _carry_out(self, request: messages.Request) -> messages.Reply:
        try:
            result = self._writer.carry_out(request.id, request.what, request.params)
        except OpdError as error:
            if reason_of(error) == "corrupt":
                self._fail(error, request.what)
            return reply_with(request.id, error)
        except Exception as error:  # noqa: BLE001 - the reply says it
            words = f"{request.what}: {type(error).__name__}: {error}"
            return reply_with(request.id, OperationFailedError(words))
        return messages.Reply(request.id, result)

    def _fail(self, error: Exception, what: str) -> str:
        """Count the error by its reason and tell the daemon once a reason.

        A damaged store, or one that fails in ways that have no word, is left
        to the next worker, which gets the window again.
        """
        reason = reason_of(error)
        self._errors[reason] += 1
        if reason == "corrupt" and isinstance(error, StoreError) and is_ours(self._directory):
            # Closed first: its log goes by its name.
            with contextlib.suppress(StoreError, sqlite3.Error):
                self._writer.close()
            self._set_aside(error)
            raise SystemExit(EXIT_STORE_GONE)
        if self._errors[reason] == 1:
            self._send(messages.Line("error", f"store: {what}: {reason}: {error}"))
        return reason

    def _report(self) -> None:
        self._reported = time.monotonic()
        errors = {**self._errors, **self._writer.trouble()}
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._send(
            messages.Report(
                *(os.getpid(), time.process_time(), self._own_pss(), errors),
                *(self._meter.cpu_seconds(), children.ru_utime + children.ru_stime),
                {} if self._writer.retention is None else self._writer.retention.counts(),
            )
        )

    def _own_pss(self) -> int:
        """At most a minute old: the kernel walks all pages to tell it."""
        now = time.monotonic()
        if now - self._weighed > _WEIGH_SECONDS:
            if now - self._trimmed > _TRIM_SECONDS:
                self._trimmed = now
                trim_memory()
            self._weighed = now
            self._pss = pss_bytes()
        return self._pss

    def _send(self, message: messages.ToDaemon) -> None:
        self._connection.sendall(messages.frame(message))


def _readable(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _hung_up(connection: socket.socket, seconds: float) -> bool:
    """Wait; True at once when the daemon closed its end."""
    poll = select.poll()
    poll.register(connection, select.POLLHUP | select.POLLRDHUP)
    return bool(poll.poll(seconds * 1000))


def reason_of(error: BaseException) -> str:
    """One word for what stopped a window from being stored."""
    if isinstance(error, StoreError) and isinstance(error.__cause__, sqlite3.Error):
        error = error.__cause__
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, sqlite3.Error):
        name = getattr(error, "sqlite_errorname", "") or ""
        for prefix, reason in (
            ("SQLITE_FULL", "disk_full"),
            ("SQLITE_IOERR", "io_error"),
            ("SQLITE_CANTOPEN", "io_error"),
            ("SQLITE_BUSY", "busy"),
            ("SQLITE_LOCKED", "busy"),
            ("SQLITE_CORRUPT", "corrupt"),
            ("SQLITE_NOTADB", "corrupt"),
            ("SQLITE_READONLY", "read_only"),
            ("SQLITE_NOMEM", "memory"),
        ):
            if name.startswith(prefix):
                return reason
        return "sqlite"
    if isinstance(error, OSError):
        return "io_error"
    if isinstance(error, OpdError | OverflowError | ValueError):
        return "corrupt" if isinstance(error, DamagedStoreError) else "invalid"
    return "internal"

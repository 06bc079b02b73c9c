"""A small synchronous client. Imports msgpack and little else."""

from __future__ import annotations

import contextlib
import os
import select
import time
from typing import TYPE_CHECKING, Any, Self

from opd.errors import (
    ConfigError,
    NoDaemonError,
    OpdError,
    OperationFailedError,
    PermissionDeniedError,
    UsageError,
)
from opd.query import endpoint as endpoints
from opd.query import protocol
from opd.query.dealer import Dealer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import BinaryIO

ANSWER_SECONDS = 5.0
"""How long a daemon that runs may take to show that it does."""

LIVING_SECONDS = 60.0
"""How long an answer may take from a daemon that shows meanwhile that it runs."""

CALL_SECONDS = {
    "report": 120.0,
    "mem": 120.0,
    "branches": 120.0,
    "derive": 120.0,
    "top": 120.0,
    "sql": 1800.0,  # it may wait for its turn; the query itself has a limit of its own
    "dump": 300.0,
    "import_end": 7200.0,
}
_PING_EVERY_SECONDS = 1.0
_PATIENCE_SECONDS = 0.25
_PING = "ping"


class Client:
    """One connection to a daemon.

    The constructor connects to the socket file, so that it raises at once:
    NoDaemonError (with how to start one) or PermissionDeniedError; UsageError
    for what is no endpoint.
    """

    def __init__(self, endpoint: str, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.endpoint = endpoint
        self._answer_seconds = answer_seconds
        try:
            self._path = endpoints.socket_path(endpoint)
        except ConfigError as error:
            raise UsageError(error.message, hint=error.hint) from error
        self._plain = self._connect()
        self.daemon_pid = endpoints.peer_of(self._plain).pid
        self._serial = 0
        self._dealer: Dealer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close at once; answers that are still to come are lost."""
        self._plain.close()

    def call(
        self, method: str, params: dict[str, Any] | None = None, *, seconds: float | None = None
    ) -> Any:
        """Call and wait for the result.

        Raises what the daemon answered as the OpdError it was there, and
        OperationFailedError naming the daemon's pid when it went away, shows
        no life for 5 s, or takes longer than ``seconds``.
        """
        limit = seconds or CALL_SECONDS.get(method, LIVING_SECONDS)
        self._serial += 1
        try:
            return self._ask(method, params, limit)
        except ConnectionError as error:
            raise self._gone(method) from error
        except TimeoutError as error:
            raise self._no_answer(method, self._answer_seconds) from error

    def _ask(self, method: str, params: dict[str, Any] | None, limit: float) -> Any:
        """``call``; raises ConnectionError and TimeoutError as they come."""
        if self._dealer is None:
            self._dealer = Dealer(self._plain, self._answer_seconds)
        dealer = self._dealer
        request = protocol.encode_request(self._serial, method, params)
        dealer.send(request, self._answer_seconds)
        end = time.monotonic() + limit
        heard = time.monotonic()
        pinged: float | None = None
        while (left := end - time.monotonic()) > 0:
            # A long call is kept company by hellos, which a living daemon
            # answers at once: so a hung one is noticed all the same.
            now = time.monotonic()
            if (
                pinged is None
                and limit > self._answer_seconds
                and now - heard > _PING_EVERY_SECONDS
            ):
                dealer.send(protocol.encode_request(_PING, "hello"), self._answer_seconds)
                pinged = now
            if pinged is not None and now - pinged > self._answer_seconds - _PING_EVERY_SECONDS:
                raise self._no_answer(method, self._answer_seconds)
            body = dealer.receive(min(left, _PATIENCE_SECONDS))
            if body is None:
                continue
            reply_id, result, error = protocol.decode_reply(body)
            if reply_id == _PING:
                pinged, heard = None, time.monotonic()
            elif error is not None and reply_id in (self._serial, None):
                raise error
            elif reply_id == self._serial:
                return result
        raise self._no_answer(method, limit)

    def send_file(
        self,
        file: BinaryIO,
        *,
        name: str,
        origin: str,
        progress: Callable[[int], None] | None = None,
    ) -> Any:
        """Stream a file to the daemon, which imports it; its result.

        ``progress`` is told how many bytes have arrived. Raises as ``call``.
        """
        info = os.fstat(file.fileno())
        about = {
            "name": name,
            "origin": origin,
            "size": info.st_size,
            "mtime_ns": max(0, info.st_mtime_ns),
        }
        begun = self.call("import_begin", about)
        transfer, sent = begun["transfer"], 0
        try:
            while data := file.read(begun["chunk_bytes"]):
                chunk = {"transfer": transfer, "offset": sent, "data": data}
                # The spool's disk may be slow, the daemon is not.
                self.call("import_chunk", chunk, seconds=60.0)
                sent += len(data)
                if progress is not None:
                    progress(sent)
        except (OSError, KeyboardInterrupt):
            with contextlib.suppress(OpdError):
                self.call("import_abort", {"transfer": transfer})
            raise
        return self.call("import_end", {"transfer": transfer, "size": sent})

    def wait_until_gone(self, seconds: float) -> bool:
        """Wait for the daemon's process to end; False when it is still there."""
        try:
            fd = os.pidfd_open(self.daemon_pid)
        except OSError:
            return True
        try:
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            return bool(poller.poll(max(0.0, seconds) * 1000))
        finally:
            os.close(fd)

    def _connect(self) -> socket.socket:
        try:
            return endpoints.connect_plain(self._path, self._answer_seconds)
        except PermissionError as error:
            raise PermissionDeniedError(
                f"{self._path}: {error.strerror}",
                hint="run as root, or join the group that owns the socket (opd)",
            ) from error
        except (TimeoutError, BlockingIOError) as error:
            raise self._stuck() from error
        except OSError as error:
            raise NoDaemonError(
                f"no opd listens at {self.endpoint}",
                hint=f"start one: opd --endpoint {self.endpoint}, or systemctl start opd",
            ) from error

    def _stuck(self) -> OperationFailedError:
        pid = endpoints.holder_from_proc(self._path)
        return OperationFailedError(
            f"pid {pid} holds {self.endpoint} and does not answer: it accepted no connection"
            f" in {self._answer_seconds:g} s",
            data={"pid": pid},
        )

    def _no_answer(self, method: str, seconds: float) -> OperationFailedError:
        return OperationFailedError(
            f"{method}: no answer in {seconds:g} s from pid {self.daemon_pid},"
            f" which holds {self.endpoint}",
            hint=f"is it stopped or stuck? see /proc/{self.daemon_pid}/status",
            data={"pid": self.daemon_pid},
        )

    def _gone(self, method: str) -> OperationFailedError:
        return OperationFailedError(
            f"{method}: the daemon (pid {self.daemon_pid}) at {self.endpoint}"
            " went away before it answered",
            data={"pid": self.daemon_pid},
        )

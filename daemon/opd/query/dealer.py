"""A client's DEALER connection without libzmq, whose import took longer than the question.

ZMTP 3.0 with the NULL mechanism over one unix socket, which never reconnects:
the end of the daemon is the end of the stream. For one thread.
"""

from __future__ import annotations

import select
import socket
import time

from opd.errors import ProtocolError
from opd.query import zmtp

_READ_BYTES = 1 << 18


class Dealer:
    """One connection; ``plain`` is connected and becomes the dealer's."""

    def __init__(self, plain: socket.socket, seconds: float) -> None:
        """Shake hands. Raises TimeoutError, ProtocolError, ConnectionError."""
        self._plain = plain
        self._buffer = bytearray()
        self._parts: list[bytes] = []
        plain.settimeout(None)
        end = time.monotonic() + seconds
        self._write(zmtp.GREETING, end)
        while len(self._buffer) < zmtp.GREETING_BYTES:
            self._read(end)
        zmtp.check_greeting(self._buffer)
        del self._buffer[: zmtp.GREETING_BYTES]
        self._write(zmtp.ready(b"DEALER"), end)
        while (frame := zmtp.take_frame(self._buffer)) is None:
            self._read(end)
        if zmtp.socket_type(frame) not in (b"ROUTER", b"REP", b"DEALER"):
            raise ProtocolError("what listens there does not answer questions")

    def close(self) -> None:
        """Close at once."""
        self._plain.close()

    def send(self, body: bytes, seconds: float) -> None:
        """Send one message of one frame. Raises TimeoutError, ConnectionError."""
        self._write(zmtp.message((body,)), time.monotonic() + seconds)

    def receive(self, seconds: float) -> bytes | None:
        """The next message's body, None when none came in time.

        Raises ConnectionError when the peer has gone, ProtocolError for what
        is no message of one frame.
        """
        end = time.monotonic() + seconds
        while True:
            while (frame := zmtp.take_frame(self._buffer)) is not None:
                if frame.command:
                    if (answer := zmtp.pong(frame)) is not None:
                        self._write(answer, end)
                    continue
                self._parts.append(frame.body)
                if frame.more:
                    continue
                parts, self._parts = self._parts, []
                if len(parts) != 1:
                    raise ProtocolError(f"an answer of {len(parts)} frames")
                return parts[0]
            try:
                self._read(end)
            except TimeoutError:
                return None

    def _wait(self, event: int, end: float) -> None:
        poller = select.poll()
        poller.register(self._plain, event)
        if not poller.poll(max(0.0, end - time.monotonic()) * 1000):
            raise TimeoutError

    def _read(self, end: float) -> None:
        self._wait(select.POLLIN, end)
        data = self._plain.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError
        self._buffer += data

    def _write(self, data: bytes, end: float) -> None:
        view = memoryview(data)
        while view:
            self._wait(select.POLLOUT, end)
            # Only what fits now: a peer that does not read must not hold us.
            view = view[self._plain.send(view, socket.MSG_DONTWAIT) :]

"""Hears what a daemon publishes, over its restarts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import zmq
from zmq.utils.monitor import recv_monitor_message

from opd.errors import ProtocolError
from opd.query import endpoint as endpoints
from opd.query import protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_RETRY_MS = 200
_RETRY_AT_MOST_MS = 2000
# A daemon that is stopped keeps its connections and says nothing on them.
_HEARTBEAT_MS = 2000
_HEARTBEAT_TIMEOUT_MS = 6000
_QUEUE_MESSAGES = 10_000
_ENDING_SECONDS = 0.1
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class Heard(NamedTuple):
    """A message: the topic and what was published with it."""

    topic: str
    payload: Any


class Gone(NamedTuple):
    """The connection ended; ``hung``: somebody is there but has not answered for seconds."""

    hung: bool


class Back(NamedTuple):
    """A daemon is there, the first time or again; ``pid`` 0: it is gone once more."""

    pid: int


class Subscription:
    """Connects to a PUB endpoint as ``hello`` gives it, and again when it comes back."""

    def __init__(self, address: str, topics: Sequence[str]) -> None:
        self._path = endpoints.socket_path(address.removesuffix(endpoints.PUB_SUFFIX))
        self._path += endpoints.PUB_SUFFIX
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.RCVHWM, _QUEUE_MESSAGES),
            (zmq.RECONNECT_IVL, _RETRY_MS),
            (zmq.RECONNECT_IVL_MAX, _RETRY_AT_MOST_MS),
            (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS),
            (zmq.HANDSHAKE_IVL, _HEARTBEAT_TIMEOUT_MS),
        ):
            self._socket.setsockopt(option, value)
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        for topic in topics:
            self._socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        self._socket.connect(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close at once."""
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)
        self._context.term()

    def listen(self, seconds: float | None = None) -> Iterator[Heard | Gone | Back]:
        """What happens, as it happens, for so long (None: without end).

        Raises ProtocolError for a message that no daemon sends.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while end is None or time.monotonic() < end:
            left_ms = None if end is None else max(0, int((end - time.monotonic()) * 1000)) + 1
            ready = dict(self._poller.poll(left_ms))
            if self._socket in ready:
                # Before the news that nobody is there: these came first.
                frames = self._socket.recv_multipart()
                if len(frames) != 2:
                    raise ProtocolError(f"a published message of {len(frames)} frames")
                yield Heard(frames[0].decode("utf-8", "replace"), protocol.unpack(frames[1]))
            elif self._monitor in ready:
                event = recv_monitor_message(self._monitor)["event"]
                if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    yield Back(self._pid())
                else:
                    # One that ends closes its connections before it stops to listen.
                    time.sleep(_ENDING_SECONDS)
                    yield Gone(hung=self._pid() > 0)

    def _pid(self) -> int:
        try:
            with endpoints.connect_plain(self._path, 1.0) as plain:
                return endpoints.peer_of(plain).pid
        except OSError:
            return 0

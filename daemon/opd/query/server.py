"""The ROUTER that answers requests and the PUB that tells what happens.

One thread owns both sockets. It reads, refuses what is no request, hands the
rest to a few handler threads and sends what they answer; it never waits for a
handler or for a peer.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import zmq

from opd.errors import OpdError, OperationFailedError
from opd.query import endpoint as endpoints
from opd.query import methods, protocol
from opd.query.dispatch import Dispatcher
from opd.query.lanes import Lane
from opd.query.listener import claim
from opd.query.peers import peer_of_frame, peer_uids_are_genuine
from opd.query.transfers import Transfers

if TYPE_CHECKING:
    from collections.abc import Callable

    from opd.query.backend import Backend
    from opd.query.endpoint import Peer
    from opd.query.listener import Listener

TOPICS = ("window", "stats", "probe", "log")

# What ZeroMQ itself reads of one frame before it cuts the connection. Twice
# and twice again our own limit, so that a message somewhat too long still
# gets an answer that says so.
_FRAME_LIMIT_BYTES = 4 * protocol.MESSAGE_LIMIT_BYTES
_SUBSCRIPTION_LIMIT_BYTES = 4096
_RECEIVE_QUEUE = 64
_SEND_QUEUE = 256
_PUBLISH_QUEUE = 1000
_BURST = 64
_SWEEP_MS = 1000
_LINGER_MS = 1000
_QUICK_THREADS = 2
_SLOW_THREADS = 4
_QUICK_WAITING = 1024
_SLOW_WAITING = 64


class Server:
    """Serves a Backend at an ``ipc://`` endpoint until ``stop``.

    ``bind`` claims the endpoint (early, so that a second daemon fails before
    it does anything else), ``start`` begins to answer. ``state_dir`` spools
    imports. ``failed`` is told the method and the exception of a handler that
    broke; it runs on a handler's thread.
    """

    def __init__(
        self,
        endpoint: str,
        backend: Backend,
        *,
        state_dir: str | os.PathLike[str],
        group: str = "opd",
        failed: Callable[[str, Exception], None] | None = None,
        transfers: Transfers | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.path = endpoints.socket_path(endpoint)
        self.pub_endpoint = endpoint + endpoints.PUB_SUFFIX
        self._group = group
        self._transfers = transfers or Transfers(os.fspath(state_dir))
        self._dispatcher = Dispatcher(
            backend,
            transfers=self._transfers,
            messages=self.messages,
            pub_endpoint=self.pub_endpoint,
            failed=failed,
        )
        self._quick = Lane("opd-query", _QUICK_THREADS, _QUICK_WAITING)
        self._slow = Lane("opd-query-slow", _SLOW_THREADS, _SLOW_WAITING)
        self._received = self._answered = self._dropped = 0
        self._outbox: deque[tuple[list[bytes] | None, list[bytes]]] = deque()
        self._wake = -1
        self._listeners: list[Listener] = []
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._sockets: list[zmq.Socket[bytes]] = []
        self._stop_by: float | None = None
        self._thread = threading.Thread(target=self._loop, name="opd-router", daemon=True)

    def bind(self) -> None:
        """Claim both socket files; raises as ``listener.claim``."""
        if self._listeners:
            return
        try:
            for path in (self.path, self.path + endpoints.PUB_SUFFIX):
                self._listeners.append(claim(path, group=self._group))
        except BaseException:
            self._release()
            raise

    def start(self) -> None:
        """Answer from now on. Raises what ``bind`` does, if that was not called before."""
        self.bind()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._context = zmq.Context()
        self._dispatcher.trusts_peers = peer_uids_are_genuine(self._context)
        for kind, listener in zip((zmq.ROUTER, zmq.PUB), self._listeners, strict=True):
            opened = self._context.socket(kind)
            opened.setsockopt(zmq.LINGER, _LINGER_MS)
            opened.setsockopt(zmq.USE_FD, listener.detach())
            if kind == zmq.ROUTER:
                opened.setsockopt(zmq.ROUTER_MANDATORY, 1)
                opened.setsockopt(zmq.RCVHWM, _RECEIVE_QUEUE)
                opened.setsockopt(zmq.SNDHWM, _SEND_QUEUE)
                opened.setsockopt(zmq.MAXMSGSIZE, _FRAME_LIMIT_BYTES)
            else:
                opened.setsockopt(zmq.SNDHWM, _PUBLISH_QUEUE)
                opened.setsockopt(zmq.MAXMSGSIZE, _SUBSCRIPTION_LIMIT_BYTES)
            opened.bind(f"ipc://{listener.path}")
            self._sockets.append(opened)
        self._thread.start()

    def publish(self, topic: str, payload: object) -> None:
        """Send a msgpack payload to the subscribers of ``topic``; from any thread, never waits.

        Slow subscribers lose messages, the server does not wait for them.
        Raises ValueError for a topic not in TOPICS.
        """
        if topic not in TOPICS:
            raise ValueError(f"no topic {topic!r}; there are {' '.join(TOPICS)}")
        self._post(None, [topic.encode(), protocol.pack(payload)])

    def messages(self) -> dict[str, int]:
        """How many messages were received, answered, dropped; the first is the sum when idle."""
        return {
            "received": self._received,
            "answered": self._answered,
            "dropped": self._dropped,
        }

    def stop(self, seconds: float = 5.0) -> None:
        """Read no more, send what handlers answer within ``seconds``, close, remove the files."""
        if self._thread.is_alive():
            self._stop_by = time.monotonic() + seconds
            self._notify()
            self._thread.join()
        self._quick.close()
        self._slow.close()
        self._transfers.close()
        if self._context is not None:
            self._context.term()
            self._context = None
        self._release()
        if self._wake >= 0:
            wake, self._wake = self._wake, -1
            os.close(wake)

    def _release(self) -> None:
        for listener in self._listeners:
            listener.release()
        self._listeners.clear()

    def _post(self, to: list[bytes] | None, frames: list[bytes]) -> None:
        self._outbox.append((to, frames))
        self._notify()

    def _notify(self) -> None:
        # A handler may end after the server did; then nobody is there to wake.
        if self._wake >= 0:
            with contextlib.suppress(OSError):
                os.eventfd_write(self._wake, 1)

    def _loop(self) -> None:
        router, pub = self._sockets
        poller = zmq.Poller()
        poller.register(self._wake, zmq.POLLIN)
        poller.register(router, zmq.POLLIN)
        swept = time.monotonic()
        while not self._finished():
            ready = dict(poller.poll(20 if self._stop_by is not None else _SWEEP_MS))
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            self._send_all(router, pub)
            if self._stop_by is not None and router in poller:
                poller.unregister(router)
            elif router in ready:
                for _ in range(_BURST):
                    if not self._receive(router):
                        break
                    self._send_all(router, pub)
            if time.monotonic() - swept > _SWEEP_MS / 1000:
                swept = time.monotonic()
                self._transfers.expire()
        self._send_all(router, pub)
        router.close()
        pub.close()

    def _finished(self) -> bool:
        if self._stop_by is None:
            return False
        return time.monotonic() > self._stop_by or (self._quick.idle() and self._slow.idle())

    def _receive(self, router: zmq.Socket[bytes]) -> bool:
        """Take one message; False when there is none."""
        try:
            frames = router.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        self._received += 1
        sender, *parts = frames
        # Everything up to the first empty frame came from REQ or a proxy and
        # goes back as it is; a bare DEALER body has no such frame.
        ends = [at for at, part in enumerate(parts[:-1]) if len(part) == 0]
        envelope, body = (parts[: ends[0] + 1], parts[ends[0] + 1 :]) if ends else ([], parts)
        if len(envelope) > protocol.ENVELOPE_LIMIT_FRAMES:
            self._dropped += 1
            return True
        to = [frame.bytes for frame in (sender, *envelope)]
        size = sum(len(part) for part in parts)
        if size > protocol.MESSAGE_LIMIT_BYTES:
            request: protocol.Request | protocol.Refusal = protocol.refusal_of_size(size)
        elif len(body) != 1:
            request = protocol.refusal(None, f"a request is one frame, not {len(body)}")
        else:
            request = protocol.parse_request(body[0].buffer)
        if isinstance(request, protocol.Refusal):
            self._refuse(router, to, request)
        elif request.notification:
            self._dropped += 1
        else:
            self._accept(router, to, request, peer_of_frame(sender))
        return True

    def _accept(
        self,
        router: zmq.Socket[bytes],
        to: list[bytes],
        request: protocol.Request,
        peer: Peer | None,
    ) -> None:
        try:
            method = methods.find(request.method)
            self._dispatcher.authorize(request.method, method, peer)
            params = methods.check(request.method, method, request.params)
        except OpdError as error:
            code = None if request.method in methods.METHODS else protocol.METHOD_NOT_FOUND
            self._refuse(router, to, protocol.Refusal(request.id, code, error))
            return
        owner = (to[0], peer)

        def handle() -> None:
            self._post(to, [self._dispatcher.answer(request, params, owner)])

        lane = self._slow if method.slow else self._quick
        if not lane.submit(handle):
            busy = OperationFailedError("too many requests are waiting", hint="ask again later")
            self._refuse(router, to, protocol.Refusal(request.id, None, busy))

    def _refuse(
        self, router: zmq.Socket[bytes], to: list[bytes], refusal: protocol.Refusal
    ) -> None:
        body = protocol.encode_error(refusal.id, refusal.error, refusal.rpc_code)
        self._send(router, [*to, body])

    def _send_all(self, router: zmq.Socket[bytes], pub: zmq.Socket[bytes]) -> None:
        while self._outbox:
            to, frames = self._outbox.popleft()
            if to is None:
                with contextlib.suppress(zmq.ZMQError):  # PUB drops for whoever is slow
                    pub.send_multipart(frames, zmq.NOBLOCK)
            else:
                self._send(router, [*to, *frames])

    def _send(self, router: zmq.Socket[bytes], frames: list[bytes]) -> None:
        """Hand a reply to ZeroMQ; one whose peer is gone or does not read is dropped."""
        try:
            router.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError:
            self._dropped += 1
        else:
            self._answered += 1

"""The ROUTER that answers requests and the PUB that tells what happens.

One thread owns both sockets. It reads, refuses what is no request, answers
hello, hands the rest to a few handler threads and sends what they answer; it
never waits for a handler or for a peer.
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
from opd.query.publisher import QUEUE_LIMIT_MESSAGES, Publisher
from opd.query.transfers import Transfers

if TYPE_CHECKING:
    from collections.abc import Callable

    from opd.query.backend import Backend
    from opd.query.endpoint import Peer
    from opd.query.listener import Listener

TOPICS = ("window", "stats", "probe", "log")

UNDER_WAY_LIMIT = 32
"""How many requests of one connection are handled or wait at a time."""

# What ZeroMQ itself reads of one frame before it cuts the connection: somewhat
# more than we take, so that a message just too long gets an answer that says so.
_FRAME_LIMIT_BYTES = protocol.MESSAGE_LIMIT_BYTES + (1 << 20)
_RECEIVE_QUEUE = 16
_SEND_QUEUE = 256
_BURST = 64
_SWEEP_MS = 1000
_IDLE_MS = 60_000
_LINGER_MS = 1000
_GRACE_SECONDS = 2.0
_QUICK_THREADS = 2
_SLOW_THREADS = 4
_QUICK_WAITING = 1024
_SLOW_WAITING = 64
_ALONE_WAITING = 16


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
        self._alone = Lane("opd-query-alone", 1, _ALONE_WAITING)
        self._lanes = (self._quick, self._slow, self._alone)
        self._received = self._answered = self._dropped = 0
        self._outbox: deque[tuple[list[bytes], bytes]] = deque()
        self._news: deque[tuple[str, bytes]] = deque(maxlen=QUEUE_LIMIT_MESSAGES)
        # By routing id; the loop's alone, as is everything about sockets.
        self._under_way: dict[bytes, int] = {}
        self._wake = -1
        self._listeners: list[Listener] = []
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._router: zmq.Socket[bytes] | None = None
        self._publisher: Publisher | None = None
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
        requests, news = self._listeners
        router = self._router = self._context.socket(zmq.ROUTER)
        router.setsockopt(zmq.LINGER, _LINGER_MS)
        router.setsockopt(zmq.USE_FD, requests.detach())
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.RCVHWM, _RECEIVE_QUEUE)
        router.setsockopt(zmq.SNDHWM, _SEND_QUEUE)
        router.setsockopt(zmq.MAXMSGSIZE, _FRAME_LIMIT_BYTES)
        router.bind(f"ipc://{requests.path}")
        self._publisher = Publisher(news.detach(), TOPICS)
        self._thread.start()

    def publish(self, topic: str, payload: object) -> None:
        """Send a msgpack payload to the subscribers of ``topic``; from any thread, never waits.

        Slow subscribers lose messages, the server does not wait for them.
        Raises ValueError for a topic not in TOPICS.
        """
        if topic not in TOPICS:
            raise ValueError(f"no topic {topic!r}; there are {' '.join(TOPICS)}")
        self._news.append((topic, protocol.pack(payload)))
        self._notify()

    def messages(self) -> dict[str, int]:
        """How many messages were received, answered, dropped; the first is the sum when idle."""
        return {
            "received": self._received,
            "answered": self._answered,
            "dropped": self._dropped,
        }

    def stop(self, seconds: float = 5.0) -> None:
        """Read no more, send what handlers answer within ``seconds``, close, remove the files.

        Returns a few seconds after that at the latest, whatever peers and
        ZeroMQ do; threads that then still run do not keep the process.
        """
        if self._thread.is_alive():
            self._stop_by = time.monotonic() + seconds
            self._notify()
            self._thread.join(seconds + _GRACE_SECONDS)
        else:
            self._close_sockets()
        for lane in self._lanes:
            lane.close()
        self._transfers.close()
        if self._context is not None:
            # term() returns when every socket is closed and has lingered.
            end = threading.Thread(target=self._context.term, name="opd-zmq-end", daemon=True)
            end.start()
            end.join(_LINGER_MS / 1000 + _GRACE_SECONDS)
            self._context = None
        self._release()
        if self._wake >= 0 and not self._thread.is_alive():
            wake, self._wake = self._wake, -1
            os.close(wake)

    def _release(self) -> None:
        for listener in self._listeners:
            listener.release()
        self._listeners.clear()

    def _post(self, to: list[bytes], body: bytes) -> None:
        self._outbox.append((to, body))
        self._notify()

    def _notify(self) -> None:
        # A handler may end after the server did; then nobody is there to wake.
        if self._wake >= 0:
            with contextlib.suppress(OSError):
                os.eventfd_write(self._wake, 1)

    def _loop(self) -> None:
        if self._router is None or self._publisher is None:
            return
        try:
            self._serve(self._router, self._publisher)
        except zmq.ContextTerminated:
            pass  # stop() did not wait any longer
        finally:
            self._close_sockets()

    def _close_sockets(self) -> None:
        if self._router is not None:
            self._router.close()
        if self._publisher is not None:
            self._publisher.close()
        self._router = self._publisher = None

    def _serve(self, router: zmq.Socket[bytes], publisher: Publisher) -> None:
        poller = zmq.Poller()
        poller.register(self._wake, zmq.POLLIN)
        poller.register(publisher.fileno(), zmq.POLLIN)
        poller.register(router, zmq.POLLIN)
        swept = time.monotonic()
        while not self._finished():
            ready = dict(poller.poll(self._patience_ms(publisher)))
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            self._send_all(router, publisher)
            if self._stop_by is not None and router in poller:
                poller.unregister(router)
            elif router in ready:
                for _ in range(_BURST):
                    if not self._receive(router):
                        break
                    self._send_all(router, publisher)
            if publisher.fileno() in ready:
                publisher.turn()
            if time.monotonic() - swept > _SWEEP_MS / 1000:
                swept = time.monotonic()
                self._transfers.expire()
                publisher.sweep()
        self._send_all(router, publisher)

    def _patience_ms(self, publisher: Publisher) -> int:
        """How long nothing but what comes in needs this thread: a wake-up costs CPU."""
        if self._stop_by is not None:
            return 20
        return _SWEEP_MS if publisher.is_used() or self._transfers.any_open() else _IDLE_MS

    def _finished(self) -> bool:
        if self._stop_by is None:
            return False
        return time.monotonic() > self._stop_by or all(lane.idle() for lane in self._lanes)

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
        peer_id = to[0]
        owner = (peer_id, peer)
        if method.at_once:
            self._send(router, [*to, self._dispatcher.answer(request, params, owner)])
            return

        def handle() -> None:
            self._post(to, self._dispatcher.answer(request, params, owner))

        lane = self._alone if method.alone else self._slow if method.slow else self._quick
        under_way = self._under_way.get(peer_id, 0)
        if under_way >= UNDER_WAY_LIMIT:
            busy = OperationFailedError(
                f"{under_way} requests of this connection are waiting", hint="read their answers"
            )
        elif lane.submit(peer_id, handle):
            self._under_way[peer_id] = under_way + 1
            return
        else:
            busy = OperationFailedError("too many requests are waiting", hint="ask again later")
        self._refuse(router, to, protocol.Refusal(request.id, None, busy))

    def _refuse(
        self, router: zmq.Socket[bytes], to: list[bytes], refusal: protocol.Refusal
    ) -> None:
        body = protocol.encode_error(refusal.id, refusal.error, refusal.rpc_code)
        self._send(router, [*to, body])

    def _send_all(self, router: zmq.Socket[bytes], publisher: Publisher) -> None:
        while self._news:
            publisher.publish(*self._news.popleft())
        while self._outbox:
            to, body = self._outbox.popleft()
            self._ended(to[0], 1)
            self._send(router, [*to, body])

    def _ended(self, peer_id: bytes, requests: int) -> None:
        left = self._under_way.pop(peer_id, 0) - requests
        if left > 0:
            self._under_way[peer_id] = left

    def _send(self, router: zmq.Socket[bytes], frames: list[bytes]) -> None:
        """Hand a reply to ZeroMQ; one whose peer is gone or does not read is dropped.

        What a peer that is gone asked for and has not begun goes with it.
        """
        self._answered += 1  # before whoever reads it can ask for the count
        try:
            router.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            self._answered -= 1
            self._dropped += 1
            peer_id = frames[0]
            if error.errno == zmq.EHOSTUNREACH and peer_id in self._under_way:
                forgotten = sum(lane.forget(peer_id) for lane in self._lanes)
                self._dropped += forgotten
                self._ended(peer_id, forgotten)

"""The PUB socket of the daemon, where a subscriber costs a bounded amount whatever it sends.

It is not libzmq's: PUB and XPUB keep each subscription of each peer in a tree
of their own, in XPUB's manual mode too, and read as fast as a peer writes; so
one peer takes gigabytes and the thread. Here a subscriber is a set of prefixes
of the topics there are, a bounded queue, and a share of reading a second.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections import deque

from opd.errors import ProtocolError
from opd.query import zmtp

SUBSCRIBERS_LIMIT = 128
QUEUE_LIMIT_MESSAGES = 1000
QUEUE_LIMIT_BYTES = 8 << 20
_HANDSHAKE_SECONDS = 30.0
_READ_BYTES = 2048
_READ_LIMIT_BYTES = 64 << 10
_EVENTS = 8
_GONE = select.EPOLLHUP | select.EPOLLERR


class _Subscriber:
    """One connection: what it still has to read, and what it wants."""

    def __init__(self, plain: socket.socket) -> None:
        self.socket = plain
        self.since = time.monotonic()
        self.greeted = self.ready = False
        self.received = bytearray()
        self.read_bytes = 0
        self.prefixes: set[bytes] = set()
        self.queue: deque[bytes] = deque([zmtp.GREETING])
        self.queue_bytes = len(zmtp.GREETING)
        self.sent_bytes = 0  # of the queue's first
        self.interest = 0

    def add(self, data: bytes) -> None:
        """Queue bytes; they are lost when too many wait."""
        full = self.queue_bytes + len(data) > QUEUE_LIMIT_BYTES
        if len(self.queue) >= QUEUE_LIMIT_MESSAGES or (full and self.queue):
            return
        self.queue.append(data)
        self.queue_bytes += len(data)

    def send(self) -> None:
        """Write what the kernel takes. Raises OSError when the peer has gone."""
        with contextlib.suppress(BlockingIOError):
            while self.queue:
                first = self.queue[0]
                self.sent_bytes += self.socket.send(memoryview(first)[self.sent_bytes :])
                if self.sent_bytes == len(first):
                    self.queue.popleft()
                    self.queue_bytes -= len(first)
                    self.sent_bytes = 0

    def wants(self, topic: bytes) -> bool:
        """Whether it subscribed to ``topic``."""
        return self.ready and any(map(topic.startswith, self.prefixes))


class Publisher:
    """Accepts on a listening socket and sends to who subscribed. One thread's, never waits.

    ``fileno`` is readable when there is something to do for ``turn``.
    """

    def __init__(self, fd: int, topics: tuple[str, ...]) -> None:
        """Take over the listening descriptor."""
        self._topics = tuple(topic.encode() for topic in topics)
        self._listening = socket.socket(fileno=fd)
        self._listening.settimeout(0)
        self._epoll = select.epoll()
        self._subscribers: dict[int, _Subscriber] = {}
        self._accepting = False
        self._accept(on=True)

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._epoll.fileno()

    def turn(self) -> None:
        """Do a bounded part of what there is to do."""
        for fd, events in self._epoll.poll(0, _EVENTS):
            subscriber = self._subscribers.get(fd)
            if subscriber is None:
                if fd == self._listening.fileno():
                    self._admit()
                continue
            try:
                if events & _GONE:
                    raise ConnectionResetError
                if events & select.EPOLLIN:
                    self._read(subscriber)
                subscriber.send()
            except (OSError, ProtocolError):
                self._drop(subscriber)
            else:
                self._watch(subscriber)

    def publish(self, topic: str, payload: bytes) -> None:
        """Send to the subscribers of ``topic``; who is too far behind loses it."""
        name = topic.encode()
        data = zmtp.message((name, payload))
        for subscriber in list(self._subscribers.values()):
            if subscriber.wants(name):
                subscriber.add(data)
                self._flush(subscriber)

    def is_used(self) -> bool:
        """Whether sweeps have something to look at."""
        return bool(self._subscribers) or not self._accepting

    def sweep(self) -> None:
        """Once a second: read on from who wrote much, end handshakes that take too long."""
        oldest = time.monotonic() - _HANDSHAKE_SECONDS
        for subscriber in list(self._subscribers.values()):
            subscriber.read_bytes = 0
            if not subscriber.ready and subscriber.since < oldest:
                self._drop(subscriber)
            else:
                self._watch(subscriber)
        self._accept(on=len(self._subscribers) < SUBSCRIBERS_LIMIT)

    def close(self) -> None:
        """Close all connections; what the kernel has still arrives."""
        for subscriber in self._subscribers.values():
            subscriber.socket.close()
        self._subscribers.clear()
        self._epoll.close()
        self._listening.close()

    def _admit(self) -> None:
        try:
            plain, _ = self._listening.accept()
        except BlockingIOError:
            return
        except OSError:  # out of descriptors: again after the next sweep
            self._accept(on=False)
            return
        plain.settimeout(0)
        subscriber = self._subscribers[plain.fileno()] = _Subscriber(plain)
        subscriber.interest = select.EPOLLIN
        self._epoll.register(plain.fileno(), subscriber.interest)
        self._flush(subscriber)
        if len(self._subscribers) >= SUBSCRIBERS_LIMIT:
            self._accept(on=False)

    def _accept(self, *, on: bool) -> None:
        if on and not self._accepting:
            self._epoll.register(self._listening.fileno(), select.EPOLLIN)
        elif self._accepting and not on:
            self._epoll.unregister(self._listening.fileno())
        self._accepting = on

    def _flush(self, subscriber: _Subscriber) -> None:
        try:
            subscriber.send()
        except OSError:
            self._drop(subscriber)
        else:
            self._watch(subscriber)

    def _watch(self, subscriber: _Subscriber) -> None:
        interest = select.EPOLLIN if subscriber.read_bytes < _READ_LIMIT_BYTES else 0
        interest |= select.EPOLLOUT if subscriber.queue else 0
        if interest != subscriber.interest:
            subscriber.interest = interest
            self._epoll.modify(subscriber.socket.fileno(), interest)

    def _drop(self, subscriber: _Subscriber) -> None:
        del self._subscribers[subscriber.socket.fileno()]
        subscriber.socket.close()  # which takes it out of the epoll too
        self._accept(on=True)

    def _read(self, subscriber: _Subscriber) -> None:
        """Take one piece. Raises OSError or ProtocolError when the connection is of no use."""
        try:
            data = subscriber.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError
        subscriber.read_bytes += len(data)
        received = subscriber.received
        received += data
        if not subscriber.greeted:
            zmtp.check_greeting(received)
            if len(received) < zmtp.GREETING_BYTES:
                return
            del received[: zmtp.GREETING_BYTES]
            subscriber.greeted = True
            subscriber.add(zmtp.ready(b"PUB"))
        for frame in zmtp.take_frames(received):
            self._obey(subscriber, frame)

    def _obey(self, subscriber: _Subscriber, frame: zmtp.Frame) -> None:
        if not subscriber.ready:
            if zmtp.socket_type(frame) not in (b"SUB", b"XSUB"):
                raise ProtocolError("the peer is no subscriber")
            subscriber.ready = True
        elif (asked := zmtp.subscription(frame)) is not None:
            wanted, prefix = asked
            if not wanted:
                subscriber.prefixes.discard(prefix)
            elif any(topic.startswith(prefix) for topic in self._topics):
                subscriber.prefixes.add(prefix)
        elif (answer := zmtp.pong(frame)) is not None:
            subscriber.add(answer)

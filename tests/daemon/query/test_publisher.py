"""The PUB socket: with ZeroMQ's subscribers, and with peers that ZeroMQ would not be."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time

import msgpack
import pytest
import zmq

from opd.query import zmtp
from opd.query.publisher import QUEUE_LIMIT_MESSAGES, SUBSCRIBERS_LIMIT

_OPEN = []
HANDSHAKE = zmtp.GREETING + zmtp.ready(b"SUB")


@pytest.fixture
def context():
    """A context whose sockets are closed after the test."""
    with zmq.Context() as made:
        yield made
        while _OPEN:
            _OPEN.pop().close(linger=0)


@pytest.fixture
def raw(server):
    """Make plain connections to the PUB socket."""
    with contextlib.ExitStack() as opened:

        def connect(data=b""):
            made = opened.enter_context(socket.socket(socket.AF_UNIX))
            made.settimeout(20)
            made.connect(f"{server.path}.pub")
            made.sendall(data)
            return made

        yield connect


def subscriber(context, server, kind=zmq.SUB, address=None, **options):
    """A connected socket of ZeroMQ."""
    made = context.socket(kind)
    _OPEN.append(made)
    made.rcvtimeo = 20_000
    for name, value in options.items():
        setattr(made, name, value)
    made.connect(address or server.pub_endpoint)
    return made


def news_of(server, one, topic="window"):
    """The first message that arrives while ``topic`` is published."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        server.publish(topic, {"n": 1})
        if one.poll(20):
            return one.recv_multipart()
    raise AssertionError("nothing arrived")


def messages_of(plain, count):
    """The bodies of so many frames that follow the handshake on a plain connection."""
    received = bytearray()
    while len(received) < zmtp.GREETING_BYTES:
        received += plain.recv(65536)
    del received[: zmtp.GREETING_BYTES]
    frames = []
    while len(frames) < count:
        frames += [frame.body for frame in zmtp.take_frames(received) if not frame.command]
        if len(frames) < count:
            data = plain.recv(65536)
            if not data:
                raise EOFError
            received += data
    return frames


def is_closed(plain):
    """Whether the daemon ends the connection."""
    with contextlib.suppress(ConnectionError):
        while plain.recv(65536):
            pass
    return True


def test_every_kind_of_subscriber_is_served(server, context):
    """SUB, XSUB, one with heartbeats and one with a long routing id get what they asked for."""
    subs = [
        subscriber(context, server),
        subscriber(context, server, routing_id=b"r" * 255),
        subscriber(context, server, heartbeat_ivl=50, heartbeat_timeout=2000),
    ]
    for sub, prefix in zip(subs, (b"", b"win", b"window"), strict=True):
        sub.subscribe(prefix)
    xsub = subscriber(context, server, zmq.XSUB)
    xsub.send(b"\x01window")
    for one in (*subs, xsub):
        assert news_of(server, one) == [b"window", msgpack.packb({"n": 1})]


def test_heartbeats_are_answered(server, context):
    """A subscriber that gives the daemon a second to answer its PINGs stays connected."""
    sub = subscriber(context, server, heartbeat_ivl=20, heartbeat_timeout=1000)
    sub.subscribe(b"")
    monitor = sub.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    news_of(server, sub)
    assert not monitor.poll(1500)
    sub.disable_monitor()
    monitor.close()


def test_an_unsubscribed_topic_stops(server, context):
    """After an unsubscription only the other topic arrives, large messages whole."""
    sub = subscriber(context, server)
    sub.subscribe(b"log")
    sub.subscribe(b"window")
    news_of(server, sub, "log")
    sub.unsubscribe(b"log")
    large = os.urandom(300_000)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        server.publish("log", {})
        server.publish("window", {"large": large})
        topics = [b""]
        while topics[-1] != b"window":
            topic, body = sub.recv_multipart()
            topics.append(topic)
        assert msgpack.unpackb(body) == {"large": large}
        if b"log" not in topics:
            return
    raise AssertionError("the unsubscription had no effect")


def test_commands_of_zmtp_3_1_are_understood(server, raw):
    """SUBSCRIBE and CANCEL as commands do what the messages of 3.0 do."""
    plain = raw(
        HANDSHAKE
        + zmtp.command(b"SUBSCRIBE", b"stats")
        + zmtp.command(b"SUBSCRIBE", b"window")
        + zmtp.command(b"CANCEL", b"stats")
        + zmtp.command(b"PING", b"\0\0context")
    )
    received = bytearray()
    pong = zmtp.command(b"PONG", b"context")
    while pong not in received:
        received += plain.recv(4096)
    server.publish("stats", {})
    server.publish("window", {})
    received.clear()
    while len(received) < 8:
        received += plain.recv(4096)
    assert next(zmtp.take_frames(received)).body == b"window"


def test_a_flood_of_subscriptions_costs_nothing(server, context, raw):
    """Of one that subscribes to other names without end nothing is kept, and others go on."""
    plain = raw(HANDSHAKE)
    plain.settimeout(0.3)
    names = [zmtp.message((b"\x01" + os.urandom(100),)) for _ in range(100_000)]
    with pytest.raises(TimeoutError):  # it is read slowly
        plain.sendall(b"".join(names))
    sub = subscriber(context, server)
    sub.subscribe(b"window")
    news_of(server, sub)
    kept = [len(one.prefixes) for one in server._publisher._subscribers.values()]
    assert sorted(kept) == [0, 1]
    req = subscriber(context, server, zmq.REQ, server.endpoint)
    req.send(msgpack.packb({"jsonrpc": "2.0", "id": 1, "method": "status"}))
    assert "result" in msgpack.unpackb(req.recv())


def test_a_flooder_that_subscribed_still_gets_its_topic(server, raw):
    """Names that no topic begins with are passed over, not held against the peer."""
    plain = raw(HANDSHAKE + zmtp.message((b"\x01tomorrow's topic",)) + zmtp.message((b"\x01w",)))
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if any(one.prefixes for one in list(server._publisher._subscribers.values())):
            break
        time.sleep(0.01)
    server.publish("window", {})
    assert messages_of(plain, 2) == [b"window", b"\x80"]


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n" * 8,
        zmtp.GREETING[:10] + b"\x01\x01" + bytes(52),
        zmtp.GREETING[:12] + b"CURVE".ljust(20, b"\0") + bytes(32),
        zmtp.GREETING + zmtp.ready(b"PUSH"),
        zmtp.GREETING + zmtp.command(b"READY"),
        zmtp.GREETING + zmtp.command(b"READY", b"\x0bSocket-Type\xff\xff\xff\xffSUB"),
        zmtp.GREETING + zmtp.command(b"ERROR", b"\0"),
        zmtp.GREETING + b"\x04\x00",
        HANDSHAKE + b"\x02" + (1 << 40).to_bytes(8),
        HANDSHAKE + b"\xff\x00",
        HANDSHAKE + b"\x04\x02\x7fx",
    ],
)
def test_who_does_not_speak_zmtp_is_cut(raw, data):
    """Another protocol, mechanism or socket type, and malformed frames end the connection."""
    assert is_closed(raw(data))


def test_random_bytes_do_not_stop_the_publisher(server, context, raw):
    """After mutated handshakes and subscriptions a subscriber is still served."""
    rng = random.Random(5)
    good = HANDSHAKE + zmtp.message((b"\x01window",)) + zmtp.command(b"PING", b"\0\0x")
    for _ in range(300):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(OSError), contextlib.closing(raw()) as plain:
            plain.sendall(bytes(data[: rng.randrange(len(data))] if rng.randrange(3) else data))
    sub = subscriber(context, server)
    sub.subscribe(b"")
    assert news_of(server, sub)[0] == b"window"


def test_who_does_not_read_loses_the_latest(server, raw):
    """A subscriber that falls behind keeps a bounded queue of whole messages in their order."""
    plain = raw(HANDSHAKE + zmtp.message((b"\x01stats",)))
    while not any(one.prefixes for one in list(server._publisher._subscribers.values())):
        time.sleep(0.01)
    [one] = server._publisher._subscribers.values()
    published = 2 * QUEUE_LIMIT_MESSAGES
    for at in range(published):
        server.publish("stats", {"at": at, "filling": b"x" * 2000})
        while server._news:
            time.sleep(0.001)
    assert len(one.queue) <= QUEUE_LIMIT_MESSAGES
    frames = messages_of(plain, 2 * QUEUE_LIMIT_MESSAGES)
    numbers = [msgpack.unpackb(body)["at"] for body in frames[1::2]]
    assert numbers == list(range(len(numbers)))


def test_connections_are_bounded(server, context, raw):
    """Beyond the limit a subscriber waits until another leaves."""
    many = [raw() for _ in range(SUBSCRIBERS_LIMIT)]
    while len(server._publisher._subscribers) < SUBSCRIBERS_LIMIT:
        time.sleep(0.01)
    sub = subscriber(context, server)
    sub.subscribe(b"")
    raw()
    assert not sub.poll(200)
    assert len(server._publisher._subscribers) == SUBSCRIBERS_LIMIT
    for one in many[:2]:
        one.close()
    assert news_of(server, sub)[0] == b"window"

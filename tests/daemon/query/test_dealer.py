"""The client's own DEALER against libzmq's ROUTER and against what is none."""

from __future__ import annotations

import socket
import threading
import time

import pytest
import zmq

from opd.errors import ProtocolError
from opd.query import zmtp
from opd.query.dealer import Dealer
from opd.query.endpoint import connect_plain


@pytest.fixture
def router(tmp_path):
    """A ROUTER of libzmq."""
    context = zmq.Context()
    made = context.socket(zmq.ROUTER)
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.RCVTIMEO, 20_000)
    made.bind(f"ipc://{tmp_path}/sock")
    yield made
    made.close()
    context.term()


@pytest.fixture
def dealer(router, tmp_path):  # noqa: ARG001 - it must listen
    """Connected to it."""
    made = Dealer(connect_plain(f"{tmp_path}/sock", 5), 20)
    yield made
    made.close()


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000, 20_000_000])
def test_messages_of_any_size_travel_both_ways(router, dealer, size):
    """Short and long frames, and what fills the socket's buffers."""
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    thread = threading.Thread(target=lambda: router.send_multipart(router.recv_multipart()))
    thread.start()
    dealer.send(body, 20)
    assert dealer.receive(20) == body
    thread.join()


def test_nothing_in_time_is_none(dealer):
    """Waiting has an end."""
    began = time.monotonic()
    assert dealer.receive(0.1) is None
    assert time.monotonic() - began < 10


def test_answers_that_come_together_are_taken_one_by_one(router, dealer):
    """Several messages in one read."""
    dealer.send(b"question", 20)
    peer, _ = router.recv_multipart()
    for at in range(50):
        router.send_multipart([peer, b"%d" % at])
    assert [dealer.receive(20) for _ in range(50)] == [b"%d" % at for at in range(50)]


def test_an_answer_of_two_frames_is_none(router, dealer):
    """The protocol has one."""
    dealer.send(b"question", 20)
    peer, _ = router.recv_multipart()
    router.send_multipart([peer, b"one", b"two"])
    with pytest.raises(ProtocolError, match="2 frames"):
        dealer.receive(20)


def test_heartbeats_are_answered(tmp_path):
    """A peer that sends PING and would hang up without PONG does not."""
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.LINGER, 0)
    router.setsockopt(zmq.HEARTBEAT_IVL, 50)
    router.setsockopt(zmq.HEARTBEAT_TIMEOUT, 1500)
    router.setsockopt(zmq.RCVTIMEO, 20_000)
    router.bind(f"ipc://{tmp_path}/sock")
    dealer = Dealer(connect_plain(f"{tmp_path}/sock", 5), 20)
    assert dealer.receive(3) is None
    dealer.send(b"question", 20)
    peer, body = router.recv_multipart()
    assert body == b"question"
    router.send_multipart([peer, b"answer"])
    assert dealer.receive(20) == b"answer"
    dealer.close()
    router.close()
    context.term()


def test_a_peer_that_goes_is_noticed(router, dealer):
    """The end of the stream is a ConnectionError, before and in an answer."""
    dealer.send(b"question", 20)
    router.recv_multipart()
    router.close()
    with pytest.raises(ConnectionError):
        dealer.receive(20)


class Peer:
    """The other end of a socket pair, by hand."""

    def __init__(self, *data):
        self.ours, self.theirs = socket.socketpair()
        for piece in data:
            self.theirs.sendall(piece)

    def close(self):
        """Close both."""
        self.ours.close()
        self.theirs.close()


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n" + bytes(64), ProtocolError),
        (zmtp.GREETING + b"\x00\x05hello", ProtocolError),
        (zmtp.GREETING + b"\xf0\x05hello", ProtocolError),
        (zmtp.GREETING + zmtp.ready(b"PUB"), ProtocolError),
        (zmtp.GREETING[:20], TimeoutError),
        (zmtp.GREETING, TimeoutError),
    ],
)
def test_what_is_no_router_is_refused(said, error):
    """Another protocol, no READY, another kind of socket, silence."""
    peer = Peer(said)
    with pytest.raises(error):
        Dealer(peer.ours, 0.3)
    peer.close()


def test_a_peer_that_does_not_read_holds_nobody():
    """A message that does not fit is given up in time."""
    peer = Peer(zmtp.GREETING, zmtp.ready(b"ROUTER"))
    dealer = Dealer(peer.ours, 5)
    with pytest.raises(TimeoutError):
        dealer.send(bytes(50_000_000), 0.3)
    peer.close()

"""Who sent a message: the uid that libzmq read from the socket (SO_PEERCRED).

libzmq puts it into the metadata of every frame as ``Peer-Address``,
``host:uid:gid:pid``. A peer's own metadata never replaces it. But libzmq
leaves it out when getnameinfo() does not know AF_UNIX (musl), and then a peer
could bring its own; so the server first asks itself who it is.
"""

from __future__ import annotations

import os

import zmq

from opd.query.endpoint import Peer

_FIELDS = 4
_PROBE_MS = 2000


def peer_of_frame(frame: zmq.Frame) -> Peer | None:
    """The peer that a received frame came from; None when libzmq did not say."""
    try:
        address = frame.get("Peer-Address")
    except zmq.ZMQError:
        return None
    return parse_peer(address) if isinstance(address, str) else None


def parse_peer(address: str) -> Peer | None:
    """Read ``host:uid:gid:pid``; the host may hold colons itself."""
    fields = address.rsplit(":", _FIELDS - 1)
    if len(fields) != _FIELDS or not all(
        field.isascii() and field.isdigit() for field in fields[1:]
    ):
        return None
    uid, gid, pid = map(int, fields[1:])
    return Peer(uid=uid, gid=gid, pid=pid)


def peer_uids_are_genuine(context: zmq.Context[zmq.Socket[bytes]]) -> bool:
    """Whether this libzmq tells a peer's true uid: asked of a socket pair of our own."""
    word = os.urandom(16).hex()
    address = f"ipc://@opd-{word}"  # an abstract name leaves no file
    with context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
        for one in (router, dealer):
            one.setsockopt(zmq.LINGER, 0)
        router.bind(address)
        dealer.connect(address)
        dealer.send(word.encode())
        while router.poll(_PROBE_MS):
            _, body, *_ = router.recv_multipart(copy=False)
            if body.bytes == word.encode():
                mine = Peer(uid=os.geteuid(), gid=os.getegid(), pid=os.getpid())
                return peer_of_frame(body) == mine
    return False


def may_change(peer: Peer | None, owner_uid: int) -> bool:
    """Whether ``peer`` may start, stop and the like: uid 0 or the daemon's own."""
    return peer is not None and peer.uid in (0, owner_uid)

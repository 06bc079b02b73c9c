"""ZMTP 3.0 with the NULL mechanism (rfc.zeromq.org/spec/23), as far as PUB and DEALER need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from opd.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

GREETING_BYTES = 64
# READY with a routing id of 255 bytes and properties of a peer's own fits; nothing else is long.
FRAME_LIMIT_BYTES = 4096

_MORE, _LONG, _COMMAND = 1, 2, 4
_MECHANISM = b"NULL".ljust(20, b"\0")
_SOCKET_TYPE = b"socket-type"
_PING_CONTEXT_BYTES = 16

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + _MECHANISM + bytes(32)


class Frame(NamedTuple):
    """One frame of a peer; ``command``: for the connection, not for the socket.

    ``more``: the message goes on.
    """

    command: bool
    body: bytes
    more: bool = False


def check_greeting(start: bytes | bytearray) -> None:
    """Raise ProtocolError when what has arrived begins no greeting of ZMTP 3 with NULL."""
    good = (
        start[:1] in (b"", b"\xff")
        and (len(start) < 10 or start[9] & 1)
        and (len(start) < 11 or start[10] >= 3)
        and (len(start) < 32 or start[12:32] == _MECHANISM)
    )
    if not good:
        raise ProtocolError("no greeting of ZMTP 3 without security")


def take_frames(buffer: bytearray) -> Iterator[Frame]:
    """Take the whole frames off the front. Raises ProtocolError for a long or malformed one."""
    at = 0
    try:
        while (found := _frame_at(buffer, at, FRAME_LIMIT_BYTES)) is not None:
            frame, at = found
            yield frame
    finally:
        del buffer[:at]


def take_frame(buffer: bytearray) -> Frame | None:
    """Take one whole frame of any length off the front. Raises ProtocolError for what is none."""
    found = _frame_at(buffer, 0, None)
    if found is None:
        return None
    del buffer[: found[1]]
    return found[0]


def _frame_at(buffer: bytearray, at: int, limit: int | None) -> tuple[Frame, int] | None:
    """The frame that begins there and where it ends; None while it is not whole."""
    if len(buffer) - at < 2:
        return None
    flags = buffer[at]
    head = 9 if flags & _LONG else 2
    if flags & ~(_MORE | _LONG | _COMMAND):
        raise ProtocolError(f"a frame's flags are {flags:#x}")
    if len(buffer) - at < head:
        return None
    size = int.from_bytes(buffer[at + 1 : at + head])
    if limit is not None and size > limit:
        raise ProtocolError(f"a frame of {size} bytes")
    start = at + head
    if len(buffer) - start < size:
        return None
    body = bytes(buffer[start : start + size])
    return Frame(bool(flags & _COMMAND), body, bool(flags & _MORE)), start + size


def message(parts: tuple[bytes, ...]) -> bytes:
    """The bytes of a message with these frames."""
    last = len(parts) - 1
    return b"".join(_frame(_MORE if at < last else 0, part) for at, part in enumerate(parts))


def command(name: bytes, data: bytes = b"") -> bytes:
    """The bytes of a command."""
    return _frame(_COMMAND, _named(name) + data)


def ready(socket_type: bytes) -> bytes:
    """READY, which ends the handshake."""
    return command(b"READY", _named(b"Socket-Type") + len(socket_type).to_bytes(4) + socket_type)


def split_command(body: bytes) -> tuple[bytes, bytes]:
    """A command's name and data. Raises ProtocolError."""
    end = 1 + body[0] if body else 0
    if not body or end > len(body):
        raise ProtocolError("a command without a name")
    return body[1:end], body[end:]


def socket_type(frame: Frame) -> bytes:
    """The type of the peer's socket, from its READY. Raises ProtocolError."""
    name, data = split_command(frame.body) if frame.command else (b"", b"")
    if name != b"READY":
        raise ProtocolError("READY did not follow the greeting")
    while data:
        key, data = split_command(data)
        size, data = int.from_bytes(data[:4]), data[4:]
        if size > len(data):
            raise ProtocolError("a property of READY is cut off")
        if key.lower() == _SOCKET_TYPE:
            return data[:size]
        data = data[size:]
    raise ProtocolError("READY names no socket type")


def subscription(frame: Frame) -> tuple[bool, bytes] | None:
    """``(wanted, prefix)`` of a subscription, in the way of 3.0 or of 3.1; None for all else."""
    if not frame.command:
        wanted = {0: False, 1: True}.get(frame.body[0]) if frame.body else None
        return None if wanted is None else (wanted, frame.body[1:])
    name, data = split_command(frame.body)
    named = {b"SUBSCRIBE": True, b"CANCEL": False}.get(name)
    return None if named is None else (named, data)


def pong(frame: Frame) -> bytes | None:
    """The answer to a PING; None for what is none."""
    if not frame.command:
        return None
    name, data = split_command(frame.body)
    return command(b"PONG", data[2 : 2 + _PING_CONTEXT_BYTES]) if name == b"PING" else None


def _named(name: bytes) -> bytes:
    return bytes([len(name)]) + name


def _frame(flags: int, body: bytes) -> bytes:
    if len(body) < 256:
        return bytes([flags, len(body)]) + body
    return bytes([flags | _LONG]) + len(body).to_bytes(8) + body

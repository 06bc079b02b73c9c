"""What the SQL child and whoever started it say to each other.

A Unix stream socket; each message is a u32 length (little-endian) and msgpack.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Self

import msgspec

from opd import errors
from opd.errors import OpdError, OperationFailedError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

_LENGTH = struct.Struct("<I")
_LARGEST = 128 << 20
_READ_BYTES = 1 << 18


class Ask(msgspec.Struct, tag="ask"):
    """A query, and what its answer may be. Times in ns since 1970 bound the windows."""

    id: int
    query: str
    rows: int
    seconds: float
    bytes: int
    since_ns: int | None = None
    until_ns: int | None = None


class Cancel(msgspec.Struct, tag="cancel"):
    """Nobody waits for the answer any more."""


class Failure(msgspec.Struct):
    """An OpdError on its way."""

    code: str
    message: str
    hint: str | None

    @classmethod
    def of(cls, error: OpdError) -> Self:
        """Pack one."""
        return cls(error.code, error.message, error.hint)

    def error(self) -> OpdError:
        """Unpack it."""
        kinds = {
            kind.code: kind
            for kind in vars(errors).values()
            if isinstance(kind, type) and issubclass(kind, OpdError)
        }
        return kinds.get(self.code, OperationFailedError)(self.message, hint=self.hint)


class Answer(msgspec.Struct, tag="answer"):
    """The answer to ``id``; and what the child has used so far."""

    id: int
    result: dict[str, Any]
    error: Failure | None
    cpu_seconds: float
    pss_bytes: int


ToChild = Ask | Cancel


def send(connection: socket.socket, message: Ask | Cancel | Answer) -> None:
    """Send one message whole. Raises OSError."""
    buffer = bytearray(_LENGTH.size)
    msgspec.msgpack.Encoder().encode_into(message, buffer, _LENGTH.size)
    _LENGTH.pack_into(buffer, 0, len(buffer) - _LENGTH.size)
    connection.sendall(buffer)


class Reader:
    """Puts messages together from what has arrived."""

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kind)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """The messages that are whole. ValueError for what is none."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > _LARGEST:
                raise ValueError(f"a message of {length} bytes")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield self._decoder.decode(body)


def messages(connection: socket.socket, kind: Any) -> Iterator[Any]:
    """Messages until the other end closes. Raises OSError, ValueError (also of msgspec)."""
    reader = Reader(kind)
    while data := connection.recv(_READ_BYTES):
        yield from reader.feed(data)

"""What a probe's process tells its parent: a u32 length (little-endian) and msgpack each."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

LENGTH = struct.Struct("<I")
LARGEST = 32 << 20


class Planned(msgspec.Struct, tag="planned"):
    """The measurements that a text of options asks for.

    ``parameters`` are complete, one map each; ``needs`` what each takes.
    ``metrics``: (name, unit, better). ``prepares``: it runs code of the asker,
    and has to be made ready first.
    """

    probe: str
    parameters: list[dict[str, Any]]
    memory_bytes: list[int]
    metrics: list[tuple[str, str, str]]
    notes: list[str] = []
    prepares: bool = False


class Began(msgspec.Struct, tag="began"):
    """It measures from now on: the machine's state before."""

    machine: dict[str, Any]


class Samples(msgspec.Struct, tag="samples"):
    """Raw samples of a metric: ``values`` are f64, little-endian. ``worker`` -1: the whole."""

    arm: int
    metric: str
    repeat: int
    worker: int
    values: bytes


class Progress(msgspec.Struct, tag="progress"):
    """How far it is, and in words what it does."""

    arm: int
    done: float
    of: float
    words: str = ""


class Note(msgspec.Struct, tag="note"):
    """What a reader of the result must know."""

    arm: int
    text: str


class Detail(msgspec.Struct, tag="detail"):
    """More than numbers: JSON by name."""

    arm: int
    name: str
    json: str


class Judged(msgspec.Struct, tag="judged"):
    """The probe's own verdict: a map as opd.probes.results.verdict_map makes it, in JSON."""

    arm: int
    json: str


class Wrong(msgspec.Struct, tag="wrong"):
    """It ends with an error: the code of an OpdError, its message and hint."""

    code: str
    message: str
    hint: str | None = None


class Ended(msgspec.Struct, tag="ended"):
    """It has measured: the machine's state over the run."""

    machine: dict[str, Any]


FromChild = Planned | Began | Samples | Progress | Note | Detail | Judged | Wrong | Ended


def frame(message: FromChild) -> bytes:
    """The message as it goes through the pipe."""
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body


class Splitter:
    """Cuts received bytes into messages."""

    def __init__(self) -> None:
        self._decoder: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[FromChild]:
        """The messages that are whole now. ValueError: not a message."""
        self._buffer += data
        messages = []
        at = 0
        while len(self._buffer) - at >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer, at)
            if length > LARGEST:
                raise ValueError(f"a message of {length} bytes")
            end = at + LENGTH.size + length
            if len(self._buffer) < end:
                break
            messages.append(self._decoder.decode(bytes(self._buffer[at + LENGTH.size : end])))
            at = end
        del self._buffer[:at]
        return messages

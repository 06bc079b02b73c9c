"""What the daemon and its worker say to each other.

A Unix stream socket; each message is a u32 length (little-endian) and msgpack.
Open files of images travel as SCM_RIGHTS with the message that announces
them, in its order. To the worker: Run, Images, Cgroups, Append, Request, Keep,
Shed, Tell, Close. Back: Ready or Failed once, then Stored or Refused for each
window and Reply for each request, in order; Held, Report, Line.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from typing import Any, Generic, TypeVar

import msgspec

from opd.errors import ProtocolError
from opd.sampling.window import CgroupInfo, ImageInfo, RunInfo, Window
from opd.store.database import printable

LENGTH = struct.Struct("<I")
# A window of a million rows is about 50 MB.
LARGEST_MESSAGE = 256 << 20
# The kernel's limit on files in one message is 253.
FILES_A_MESSAGE = 64
_READ_BYTES = 256 << 10

Message = TypeVar("Message")


class Run(msgspec.Struct, tag="run"):
    """Windows from now on belong to this run."""

    run: RunInfo


class WireImage(msgspec.Struct):
    """An image; its path as bytes, which need not be UTF-8."""

    info: ImageInfo
    path: bytes
    file: bool


class Images(msgspec.Struct, tag="images"):
    """Images; ``file`` says which of them have their file with the message."""

    images: list[WireImage]


class WireCgroup(msgspec.Struct):
    """A cgroup; its path as bytes, which need not be UTF-8."""

    uid: int
    path: bytes
    gone: bool


class Cgroups(msgspec.Struct, tag="cgroups"):
    """Cgroups that windows from now on mention, or mention no more."""

    cgroups: list[WireCgroup]


class Append(msgspec.Struct, tag="window"):
    """A window of the run told last."""

    window: Window


class Shed(msgspec.Struct, tag="shed"):
    """Forget what only saves work: memory is short."""


class Request(msgspec.Struct, tag="request"):
    """Something to do in the store between two windows, once (opd.store.requests)."""

    id: str
    what: str
    params: dict[str, Any]


class Tell(msgspec.Struct, tag="tell"):
    """Report now."""


class Keep(msgspec.Struct, frozen=True, tag="keep"):
    """How much the store keeps (opd.store.retention); 0 is no limit.

    ``free_bytes`` of the file system are left to others, or a tenth of it when
    that is less.
    """

    bytes: int = 0
    days: float = 0.0
    free_bytes: int = 0


class Close(msgspec.Struct, tag="close"):
    """Finish and exit."""


class Ready(msgspec.Struct, tag="ready"):
    """The store is open."""

    pid: int


class Failed(msgspec.Struct, tag="failed"):
    """The store cannot be opened; the worker exits."""

    message: str
    hint: str | None = None


class Stored(msgspec.Struct, tag="stored"):
    """The window is in the store; ``new`` is False when it was there already."""

    run: str
    sequence: int
    new: bool
    samples: int
    bytes: int


class Refused(msgspec.Struct, tag="refused"):
    """The window is not in the store and is not tried again. ``reason`` is one word."""

    run: str
    sequence: int
    reason: str
    detail: str


class Held(msgspec.Struct, tag="held"):
    """The store takes no window now, for ``reason`` (one word); empty: again it does."""

    reason: str


class Reply(msgspec.Struct, tag="reply"):
    """What became of a request: ``code`` is empty, or an OpdError's with its message and hint."""

    id: str
    result: dict[str, Any] = {}
    code: str = ""
    message: str = ""
    hint: str | None = None


class Report(msgspec.Struct, tag="report"):
    """The worker about itself: CPU, memory, what went wrong by reason."""

    pid: int
    cpu_seconds: float
    pss_bytes: int
    errors: dict[str, int]
    # CPU seconds by what they were for; what is left of them is start-up and talk.
    stages: dict[str, float] = {}
    children_cpu_seconds: float = 0.0
    # Of the session directory: bytes, and what was deleted to keep its limits.
    store: dict[str, int] = {}


class Line(msgspec.Struct, tag="line"):
    """A line for the daemon's log."""

    level: str
    text: str


ToWorker = Run | Images | Cgroups | Append | Request | Keep | Shed | Tell | Close
ToDaemon = Ready | Failed | Stored | Refused | Held | Reply | Report | Line


def frame(message: ToWorker | ToDaemon) -> bytes:
    """The message as it goes through the socket."""
    buffer = bytearray(LENGTH.size)
    msgspec.msgpack.Encoder().encode_into(message, buffer, LENGTH.size)
    LENGTH.pack_into(buffer, 0, len(buffer) - LENGTH.size)
    return bytes(buffer)


def wire_image(info: ImageInfo, *, file: bool) -> WireImage:
    """The image without text that msgpack cannot carry."""
    shown = msgspec.structs.replace(info, path="", symbol=printable(info.symbol))
    return WireImage(shown, os.fsencode(info.path), file)


def image_of(wire: WireImage) -> ImageInfo:
    """The image as it was given to wire_image."""
    return msgspec.structs.replace(wire.info, path=os.fsdecode(wire.path))


def wire_cgroup(info: CgroupInfo) -> WireCgroup:
    """The cgroup without text that msgpack cannot carry."""
    return WireCgroup(info.uid, os.fsencode(info.path), info.gone)


def cgroup_of(wire: WireCgroup) -> CgroupInfo:
    """The cgroup as it was given to wire_cgroup."""
    return CgroupInfo(uid=wire.uid, path=os.fsdecode(wire.path), gone=wire.gone)


def wire_run(run: RunInfo) -> RunInfo:
    """The run without text that msgpack cannot carry."""
    return msgspec.structs.replace(
        run,
        session=printable(run.session),
        origin=printable(run.origin),
        host=printable(run.host),
        events=[
            msgspec.structs.replace(
                event, name=printable(event.name), source=printable(event.source)
            )
            for event in run.events
        ],
    )


class Splitter(Generic[Message]):
    """Cuts received bytes into messages."""

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(kind)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are whole now. ProtocolError: not a message."""
        self._buffer += data
        messages = []
        at = 0
        while len(self._buffer) - at >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer, at)
            if length > LARGEST_MESSAGE:
                raise ProtocolError(f"a message of {length} bytes")
            end = at + LENGTH.size + length
            if len(self._buffer) < end:
                break
            try:
                messages.append(self._decoder.decode(bytes(self._buffer[at + LENGTH.size : end])))
            except msgspec.MsgspecError as error:
                raise ProtocolError(f"not a message: {error}") from error
            at = end
        del self._buffer[:at]
        return messages


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """What has arrived, and the open files with it; no bytes at the end."""
    space = socket.CMSG_SPACE(FILES_A_MESSAGE * array.array("i").itemsize)
    data, ancillary, _flags, _address = connection.recvmsg(
        _READ_BYTES, space, socket.MSG_CMSG_CLOEXEC
    )
    files = array.array("i")
    for level, kind, value in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(value[: len(value) - len(value) % files.itemsize])
    return data, list(files)

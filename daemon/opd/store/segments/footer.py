"""What a segment tells of itself, read from its end without a Parquet library.

Parquet keeps texts by name in its footer: KeyValue structs in Thrift's compact
form, whose bytes around a name that we chose are always the same.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import msgspec

from opd.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SCHEMA = 1

ABOUT = "opd.segment"
WINDOWS = "opd.windows"
IMAGES = "opd.images"

_MAGIC = b"PAR1"
_TAIL = struct.Struct("<I4s")
_LARGEST = 64 << 20
_STRING = b"\x18"  # field id one more than the last, type binary


class About(msgspec.Struct, frozen=True, kw_only=True):
    """``opd.segment``: which windows of which run these are, and of what quality.

    ``windows``: the sequence numbers in it, as ``0-358,360``. ``quality``: sums
    over the windows, as in their columns. ``damaged``: windows that could not
    be read and have no rows, ``missing_stacks``: rows' stacks likewise.
    ``session_started_ns`` with ``run`` tells the session, which may be renamed.
    """

    schema: int
    opd: str
    store_schema: int
    hour: int
    run: str
    session: str
    session_started_ns: int
    boot: str
    kind: str
    origin: str
    host: str
    kernel_release: str
    kernel_build_id: str
    cpus: int
    started_ns: int
    events: list[dict[str, Any]]
    windows: str
    samples: int
    weight: int
    rows: int
    stacks: int
    damaged: int
    missing_stacks: int
    quality: dict[str, int]


def read_texts(path: Path, *names: str) -> dict[str, str]:
    """The named texts of a Parquet file. StoreError: not whole, or without one of them."""
    try:
        footer = _footer(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot read it: {error.strerror}") from error
    return {name: _find(footer, name, path) for name in names}


def read_about(path: Path) -> About:
    """``opd.segment`` of a file. StoreError: no segment, cut short, or a newer schema."""
    text = read_texts(path, ABOUT)[ABOUT]
    try:
        about = msgspec.json.decode(text, type=About)
    except msgspec.MsgspecError as error:
        raise StoreError(f"{path}: its {ABOUT} is not what it should be: {error}") from error
    if about.schema > SCHEMA:
        raise StoreError(
            f"{path}: written by a newer opd (segment {about.schema}, this one reads {SCHEMA})"
        )
    return about


def read_columns(path: Path, name: str) -> dict[str, list[Any]]:
    """A table kept as text: lists by column. StoreError."""
    text = read_texts(path, name)[name]
    try:
        columns = json.loads(text)
        if len({len(column) for column in columns.values()}) > 1:
            raise StoreError(f"{path}: {name} has columns of different lengths")
    except (ValueError, AttributeError, TypeError) as error:
        raise StoreError(f"{path}: its {name} is not what it should be: {error}") from error
    else:
        return dict(columns)


def ranges_of(numbers: Iterable[int]) -> str:
    """Ascending numbers as text.

    >>> ranges_of([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in spans)


def numbers_of(ranges: str) -> list[int]:
    """What ranges_of made a text of. StoreError when it is none.

    >>> numbers_of("0-2,5")
    [0, 1, 2, 5]
    """
    numbers: list[int] = []
    try:
        for span in filter(None, ranges.split(",")):
            first, _, last = span.partition("-")
            numbers.extend(range(int(first), int(last or first) + 1))
    except (ValueError, MemoryError, OverflowError) as error:
        raise StoreError(f"not ranges of windows: {ranges[:40]!r}") from error
    return numbers


def _footer(path: Path) -> bytes:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < len(_MAGIC) + _TAIL.size:
            raise StoreError(f"{path}: not a whole Parquet file")
        file.seek(size - _TAIL.size)
        length, magic = _TAIL.unpack(file.read(_TAIL.size))
        if magic != _MAGIC or length > min(_LARGEST, size - _TAIL.size):
            raise StoreError(f"{path}: not a whole Parquet file")
        file.seek(size - _TAIL.size - length)
        return file.read(length)


def _find(footer: bytes, name: str, path: Path) -> str:
    word = _STRING + bytes([len(name)]) + name.encode() + _STRING
    at = footer.rfind(word)
    if at >= 0:
        at += len(word)
        length = shift = 0
        while at < len(footer):
            byte = footer[at]
            length |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                if at + length <= len(footer):
                    return footer[at : at + length].decode("utf-8", "replace")
                break
    raise StoreError(f"{path}: it has no {name}, so no opd wrote it")

"""The compressed blocks of the store: columns of unsigned numbers.

A block is a zlib stream (its checksum finds damage) over: u8 number of
columns; for each column u8 width in bytes (1, 2, 4, 8) and u32 count; then for
each column its bytes in planes, lowest byte of every number first. Planes put
the mostly-zero high bytes together, which is what makes it small.

A window has two blocks. ``groups``: its sample files (event, mode, tgid + 1,
tid + 1, cpu + 1, image, comm, unit, cgroup; the last is missing in blocks of
schema 1 and read as 0, unknown) and, for each (sample file, symbol) with
hits, those two, hits and excess; weight = hits * unit + excess. ``rows``: for
each row, in order of its stack's number, sample file, that number less the one
before, hits and excess; its symbol is the name of the stack's leaf.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from itertools import accumulate
from typing import TYPE_CHECKING

from opd.errors import StoreError
from opd_native.condense import Column, pack_planes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_COLUMN = struct.Struct("<BI")
_WIDTHS = {1: "B", 2: "H", 4: "I", 8: "Q"}
# 4 against 6: half the time for blocks 2 % larger; 1 would be 8 % larger.
_LEVEL = 4
# What a block may claim before it is believed to be damaged.
_LARGEST = 256 << 20

SFILE_COLUMNS = 9
UNIT, CGROUP = 7, 8
GROUP_COLUMNS = 4
ROW_COLUMNS = 4


def pack(columns: Sequence[Column | Sequence[int]]) -> bytes:
    """The block of the columns; every number is 0..2**64-1."""
    arrays = [
        column if isinstance(column, (Column, array)) else array("Q", column) for column in columns
    ]
    return zlib.compress(pack_planes(arrays), _LEVEL)


def inflate(block: bytes) -> tuple[bytes, bytes]:
    """What a block is the zlib stream of, at least a byte, and what stands behind the stream.

    StoreError when it is damaged.
    """
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(block, _LARGEST)
    except zlib.error as error:
        raise StoreError(f"damaged block: {error}") from error
    if not stream.eof or not data:
        raise StoreError("damaged block: cut short")
    return data, stream.unused_data


def unpack(block: bytes, *columns: int) -> list[array[int]]:
    """The columns of a block, as many as one of ``columns``. StoreError when it is damaged."""
    return unpack_planes(inflate(block)[0], *columns)


def unpack_planes(data: bytes, *columns: int) -> list[array[int]]:
    """The columns of a block that is inflated."""
    if data[0] not in columns:
        raise StoreError("damaged block: of another kind")
    count_of_columns = data[0]
    at = 1 + count_of_columns * _COLUMN.size
    if len(data) < at:
        raise StoreError("damaged block: no room for its header")
    result: list[array[int]] = []
    for index in range(count_of_columns):
        width, count = _COLUMN.unpack_from(data, 1 + index * _COLUMN.size)
        end = at + width * count
        if width not in _WIDTHS or end > len(data):
            raise StoreError("damaged block: a column reaches past its end")
        column = array(_WIDTHS[width])
        if width == 1:
            column.frombytes(data[at:end])
        else:
            whole = bytearray(width * count)
            for plane in range(width):
                whole[plane::width] = data[at + plane * count : at + (plane + 1) * count]
            column.frombytes(bytes(whole))
        result.append(column)
        at = end
    return result


def unpack_groups(block: bytes) -> list[array[int]]:
    """The thirteen columns of a ``groups`` block, checked to fit together."""
    columns = unpack_sample_files(block, GROUP_COLUMNS)
    check_groups(columns)
    return columns


def unpack_sample_files(block: bytes, more: int) -> list[array[int]]:
    """The columns of sample files and ``more`` behind them; ``cgroup`` 0 where it is missing."""
    return sample_file_planes(inflate(block)[0], more)


def sample_file_planes(data: bytes, more: int) -> list[array[int]]:
    """``unpack_sample_files`` of a block that is inflated."""
    columns = unpack_planes(data, SFILE_COLUMNS + more, SFILE_COLUMNS - 1 + more)
    if len(columns) < SFILE_COLUMNS + more:
        columns.insert(CGROUP, array("B", bytes(len(columns[0]))))
    return columns


def check_groups(columns: Sequence[array[int]]) -> None:
    """Whether the columns fit together; else StoreError."""
    sfiles = len(columns[0])
    _same_length(columns[:SFILE_COLUMNS])
    _same_length(columns[SFILE_COLUMNS:])
    if max(columns[SFILE_COLUMNS], default=-1) >= sfiles:
        raise StoreError("damaged block: a group names a sample file that is not there")


def unpack_rows(block: bytes) -> list[array[int]]:
    """The four columns of a ``rows`` block: sample file, stack, hits, excess."""
    columns = unpack(block, ROW_COLUMNS)
    _same_length(columns)
    columns[1] = array("Q", accumulate(columns[1]))
    return columns


def _same_length(columns: Iterable[array[int]]) -> None:
    if len({len(column) for column in columns}) > 1:
        raise StoreError("damaged block: columns of different lengths")

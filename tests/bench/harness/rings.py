"""Recorded rings: the raw records of every CPU as the kernel wrote them.

A file (``tests/data/rings/NAME.rings``) is the zlib stream of what
``record_rings.c`` writes, all numbers little-endian:

    "OPDRINGS", u32 CPUs, u32 0, u64 sample type of the samples,
    for each CPU: u64 id of the side-band event, u64 id of the sampling one,
    records: u32 index of the CPU, u32 bytes, and the record itself

Times are those of CLOCK_MONOTONIC when it was recorded. Only records of the load's
own processes are kept: of others no record tells what they had mapped before.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"OPDRINGS"
FOLDER = Path(__file__).parents[2] / "data/rings"
LARGEST = 64 << 20  # bytes, unpacked
_HEAD = struct.Struct("<8sIIQ")
_RECORD = struct.Struct("<IIIHH")  # index of the CPU, bytes; type, misc, bytes
_U32 = struct.Struct("<I")
_PAIR = struct.Struct("<II")
FORK, SAMPLE = 7, 9  # PERF_RECORD_*
# Where a record has its pid: in a sample from the start, else from the end.
_SAMPLE_PID, _TRAILER = 24, 32


def pack(data: bytes) -> bytes:
    """Give the file of what the recorder wrote."""
    return zlib.compress(data, 9)


def unpack(data: bytes, name: str = "") -> bytes:
    """Give what the recorder wrote; ValueError says what is wrong."""
    inflate = zlib.decompressobj()
    try:
        plain = inflate.decompress(data, LARGEST)
    except zlib.error as error:
        raise ValueError(f"{name}: {error}") from error
    if not inflate.eof:
        raise ValueError(f"{name}: cut off, or larger than {LARGEST} bytes")
    if not plain.startswith(MAGIC):
        raise ValueError(f"{name}: no recorded rings, which begin with {MAGIC.decode()}")
    return plain


def of_family(data: bytes, roots: set[int]) -> bytes:
    """Keep of what the recorder wrote the records of ``roots`` and of all that they made."""
    records = list(_records(data))
    family, before = set(roots), 0
    while len(family) > before:  # a CPU's records may tell of a child before those of its parent
        before = len(family)
        for kind, _, record in records:
            if kind == FORK:
                child, parent = _PAIR.unpack_from(record, 16)
                if parent in family:
                    family.add(child)
    kept = (record for _, pid, record in records if pid in family)
    return data[: _head_size(data)] + b"".join(kept)


def _head_size(data: bytes) -> int:
    cpus: int = _HEAD.unpack_from(data)[1]
    return _HEAD.size + 16 * cpus


def _records(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Give type, pid and bytes of every record, its index and size in front."""
    at = _head_size(data)
    while at < len(data):
        _, size, kind, _, _ = _RECORD.unpack_from(data, at)
        record = data[at : at + 8 + size]
        if kind == FORK:
            (pid,) = _U32.unpack_from(record, 16)  # the child
        else:
            place = _SAMPLE_PID if kind == SAMPLE else size - _TRAILER
            (pid,) = _U32.unpack_from(record, 8 + place)
        yield kind, pid, record
        at += 8 + size

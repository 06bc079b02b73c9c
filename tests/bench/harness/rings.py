"""Recorded rings: the raw records of every CPU as the kernel wrote them.

A file (``tests/data/rings/NAME.rings``) is the zlib stream of what
``record_rings.c`` writes, all numbers little-endian:

    "OPDRINGS", u32 CPUs, u32 0, u64 sample type of the samples,
    for each CPU: u64 id of the side-band event, u64 id of the sampling one,
    records: u32 index of the CPU, u32 bytes, and the record itself

Times are those of CLOCK_MONOTONIC when it was recorded.
"""

from __future__ import annotations

import zlib
from pathlib import Path

MAGIC = b"OPDRINGS"
FOLDER = Path(__file__).parents[2] / "data/rings"
LARGEST = 64 << 20  # bytes, unpacked


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

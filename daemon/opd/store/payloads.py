"""What windows keep of precise samples beside their rows, as the store has it.

A row of ``payloads`` is one kind (opd.sampling.payload) of one window: a block
(opd.store.blocks) of the columns in STORED, sorted by sample file. ``sfile``
names a sample file of the window's ``groups`` block, ``symbol`` the name of the
stack's leaf, ``stack`` a stack by its number. Of raw records the bytes stand
behind the block, a zlib stream of their own.
"""

from __future__ import annotations

import zlib
from array import array
from typing import TYPE_CHECKING

from opd.errors import StoreError
from opd.sampling.payload import Payload, cells_of
from opd.store.blocks import inflate, pack, unpack_planes
from opd_native.columns import gather

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from opd.sampling.window import Window

    # Numbers and leafs' names of the window's stacks.
    Stacks = tuple[array[int], array[int]]

# The columns of a block by kind: of the payload, or made of its stacks.
STORED = {
    "latency": ("sfile", "symbol", "bucket", "count"),
    "access": (
        *("sfile", "symbol", "stack", "address", "physical"),
        *("tid", "cpu", "latency", "what"),
    ),
    "total": ("what", "count", "timed", "latency"),
    "branch": (
        *("sfile", "symbol", "stack", "to_symbol", "to_stack"),
        *("count", "taken", "mispredicted", "return"),
    ),
    "record": ("sfile", "symbol", "stack", "weight", "length"),
}
_MADE = {
    "symbol": ("stack", 1),
    "stack": ("stack", 0),
    "to_symbol": ("to", 1),
    "to_stack": ("to", 0),
}
_CODES = {4: "I", 8: "Q"}
_LEVEL = 4
# Raw records of a window; what claims more is damaged.
_LARGEST = 64 << 20


def check_payloads(window: Window) -> None:
    """Whether the payloads' columns fit together and the window. StoreError says what does not."""
    seen = set()
    for payload in window.payloads:
        kind = payload.kind
        where = f"invalid window: payload {kind[:40]!r}"
        try:
            cells = cells_of(kind)
        except KeyError:
            raise StoreError(f"{where} is not known") from None
        if kind in seen:
            raise StoreError(f"{where} comes twice")
        seen.add(kind)
        for name, size in cells.items():
            have, expected = len(payload.columns.get(name, b"")), size * payload.rows
            if have != expected:
                raise StoreError(f"{where}: {name} has {have} bytes, not {expected}")
        limits = {"sfile": window.sfiles, **dict.fromkeys(("stack", "from", "to"), window.stacks)}
        for name in limits.keys() & cells.keys():
            if max(array("I", payload.columns[name]), default=-1) >= limits[name]:
                raise StoreError(f"{where}: {name} names what is not there")
        if "length" in cells:
            lengths, data = array("I", payload.columns["length"]), payload.columns.get("bytes", b"")
            if sum(lengths) != len(data):
                raise StoreError(f"{where}: {len(data)} bytes of records, not {sum(lengths)}")


def write_payloads(
    connection: sqlite3.Connection, window: Window, number: int, stacks: Callable[[], Stacks]
) -> int:
    """Store the payloads of window ``number``, once checked; the bytes of their blocks.

    ``stacks`` gives the numbers of the window's stacks and of their leafs'
    names; it is asked only when there are payloads.
    """
    if not window.payloads:
        return 0
    numbered = stacks()
    size = 0
    for payload in window.payloads:
        block = _block(payload, numbered)
        size += len(block)
        connection.execute(
            "INSERT INTO payloads (window, kind, rows, offered, lost, block)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (number, payload.kind, payload.rows, payload.offered, payload.lost, block),
        )
    return size


def _block(payload: Payload, stacks: Stacks) -> bytes:
    kind = payload.kind.partition(".")[0]
    cells = cells_of(payload.kind)
    columns = []
    for name in STORED[kind]:
        source, made = _MADE.get(name, (name, None))
        if source == "stack" and source not in cells:
            source = "from"
        column = array(_CODES[cells[source]], payload.columns[source])
        columns.append(column if made is None else gather(stacks[made], column))
    block = pack(columns)
    if kind == "record":
        block += zlib.compress(payload.columns["bytes"], _LEVEL)
    return block


def read_payload(kind: str, block: bytes) -> tuple[dict[str, array[int]], bytes]:
    """The columns of a block by name, and the raw records' bytes. StoreError: damaged."""
    names = STORED[kind.partition(".")[0]]
    data, behind = inflate(block)
    columns = dict(zip(names, unpack_planes(data, len(names)), strict=True))
    if len({len(column) for column in columns.values()}) > 1:
        raise StoreError("damaged block: columns of different lengths")
    records = b""
    if "length" in columns:
        stream = zlib.decompressobj()
        try:
            records = stream.decompress(behind, _LARGEST)
        except zlib.error as error:
            raise StoreError(f"damaged block: {error}") from error
        if not stream.eof or len(records) != sum(columns["length"]):
            raise StoreError("damaged block: not as many bytes of records as there should be")
    return columns, records


def has_payloads(connection: sqlite3.Connection) -> bool:
    """Whether the store's schema has any: 3 and later."""
    row = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'payloads'"
    ).fetchone()
    return row is not None


def split_records(lengths: Sequence[int], data: bytes) -> list[bytes]:
    """The raw records, one for each length."""
    records = []
    at = 0
    for length in lengths:
        records.append(data[at : at + length])
        at += length
    return records

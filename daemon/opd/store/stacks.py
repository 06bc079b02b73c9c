"""Stacks and frames by their numbers, with the identities that every host agrees on."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec

from opd.errors import StoreError
from opd.store.blocks import unpack
from opd.store.dictionary import FRAME_COLUMNS, STACK_COLUMNS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable


_WRAP = 1 << 64


class StoredFrame(msgspec.Struct, frozen=True):
    """A frame: ``name`` is shown, ``raw`` the symbol's own spelling.

    ``kind`` as in opd.store.names; ``caller``: the address is a return address.
    """

    image: str
    image_identity: bytes
    address: int
    name: str
    raw: str
    kind: int
    caller: bool


class StoredStack(msgspec.Struct, frozen=True):
    """A stack, leaf first, and its 16-byte identity."""

    identity: bytes
    flags: int
    frames: list[StoredFrame]


class StackReader:
    """Reads blocks of stacks and frames once each; for one answer, then dropped."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._stacks = _Numbered(connection, "stacks", STACK_COLUMNS)
        self._frames = _Numbered(connection, "frames", FRAME_COLUMNS)
        self._unshared: dict[int, list[tuple[int, ...]]] = {}
        self._addresses: dict[int, list[int]] = {}
        self._names: dict[int, str] = {}
        self._images: dict[int, tuple[bytes, str]] = {}

    def read(self, numbers: Iterable[int]) -> list[StoredStack]:
        """The stacks of these numbers. StoreError: no such stack, or damaged."""
        from opd_native.identity import stack_identities

        found = [self._stack(number) for number in numbers]
        slots: dict[bytes, int] = {}
        starts, images, addresses = array("I", [0]), array("I"), array("Q")
        for _flags, frames in found:
            images.extend([slots.setdefault(frame.image_identity, len(slots)) for frame in frames])
            addresses.extend([frame.address for frame in frames])
            starts.append(len(images))
        identities = stack_identities(
            bytes([flags for flags, _frames in found]),
            starts.tobytes(),
            images.tobytes(),
            addresses.tobytes(),
            list(slots),
        )
        return [
            StoredStack(identities[16 * at : 16 * at + 16], flags, frames)
            for at, (flags, frames) in enumerate(found)
        ]

    def _stack(self, number: int) -> tuple[int, list[StoredFrame]]:
        first, columns = self._stacks.find(number)
        flags, lengths, shared, rest = columns
        frames = self._unshared.get(first)
        if frames is None:
            frames = []
            at = 0
            before: tuple[int, ...] = ()
            for length, same in zip(lengths, shared, strict=True):
                if same > min(length, len(before)) or at + length - same > len(rest):
                    raise StoreError("damaged block: a stack shares more than there is")
                before = (*before[:same], *rest[at : at + length - same])
                at += length - same
                frames.append(before)
            self._unshared[first] = frames
        index = number - first
        return flags[index], [self._frame(frame) for frame in reversed(frames[index])]

    def _frame(self, number: int) -> StoredFrame:
        first, columns = self._frames.find(number)
        images, steps, callers, names, raws, kinds = columns
        addresses = self._addresses.get(first)
        if addresses is None:
            addresses = []
            for at, (image, step) in enumerate(zip(images, steps, strict=True)):
                same = at > 0 and images[at - 1] == image
                addresses.append((step + addresses[-1]) % _WRAP if same else step)
            self._addresses[first] = addresses
        index = number - first
        identity, path = self._image(images[index])
        name = self._name(names[index])
        return StoredFrame(
            image=path,
            image_identity=identity,
            address=addresses[index],
            name=name,
            raw=self._name(raws[index]) if raws[index] else name,
            kind=kinds[index],
            caller=bool(callers[index]),
        )

    def _name(self, number: int) -> str:
        text = self._names.get(number)
        if text is None:
            row = self._connection.execute(
                "SELECT text FROM names WHERE id = ?", (number,)
            ).fetchone()
            text = self._names[number] = "[unknown]" if row is None else row[0]
        return text

    def _image(self, number: int) -> tuple[bytes, str]:
        image = self._images.get(number)
        if image is None:
            row = self._connection.execute(
                "SELECT identity, path FROM images WHERE id = ?", (number,)
            ).fetchone()
            if row is None:
                raise StoreError(f"damaged store: no image {number}")
            image = self._images[number] = (row[0], self._name(row[1]))
        return image


class _Numbered:
    """A table of blocks whose entries are numbered through."""

    def __init__(self, connection: sqlite3.Connection, table: str, columns: int) -> None:
        self._connection = connection
        self._table = table
        self._columns = columns
        self._blocks: dict[int, list[array[int]]] = {}
        rows = connection.execute(f"SELECT first, count FROM {table} ORDER BY first").fetchall()  # noqa: S608
        self._firsts = [first for first, _count in rows]
        self._ends = list(accumulate((first + count for first, count in rows), max))

    def find(self, number: int) -> tuple[int, list[array[int]]]:
        """The first number of its block and the block's columns."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0 or number >= self._ends[at]:
            raise StoreError(f"damaged store: no {self._table} entry {number}")
        first = self._firsts[at]
        block = self._blocks.get(first)
        if block is None:
            (data,) = self._connection.execute(
                f"SELECT block FROM {self._table} WHERE first = ?",  # noqa: S608
                (first,),
            ).fetchone()
            block = unpack(data, self._columns)
            if len(block[0]) != self._ends[at] - first:
                raise StoreError(f"damaged block: not as many {self._table} as it should have")
            self._blocks[first] = block
        return first, block

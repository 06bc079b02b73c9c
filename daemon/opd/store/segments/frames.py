"""Stacks of the window log as numpy columns: the images and names of their frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opd.errors import StoreError
from opd.store.blocks import unpack
from opd.store.dictionary import FRAME_COLUMNS, STACK_COLUMNS
from opd.store.segments.distinct import distinct
from opd.store.segments.windowlog import numbers

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

# Deeper than any stack that a kernel hands out (1024 by sysctl, and our own limit below it).
_DEEPEST = 1 << 12


class Stacks(NamedTuple):
    """Stacks by ascending ``number``, and their frames one after the other, leaf first.

    ``start`` has one entry more than there are stacks. ``image`` is the number
    of an image, ``name`` of a name. ``missing``: asked for, and not to be
    read: they have no frames.
    """

    number: Numbers
    flags: Numbers
    start: Numbers
    image: Numbers
    name: Numbers
    missing: int

    def leaf_names(self, unknown: int) -> Numbers:
        """The name of each stack's leaf; ``unknown`` for one without frames."""
        leaves = np.full(len(self.number), unknown)
        have = self.start[1:] > self.start[:-1]
        leaves[have] = self.name[self.start[:-1][have]]
        return leaves


def read_stacks(connection: sqlite3.Connection, wanted: Numbers) -> Stacks:
    """The stacks of these distinct ascending numbers. Raises sqlite3.Error."""
    known, flags, lengths, flat = _stack_frames(connection, wanted)
    at = np.searchsorted(known, wanted)
    found = np.zeros(len(wanted), bool)
    inside = at < len(known)
    found[inside] = known[at[inside]] == wanted[inside]
    at[~found] = 0
    length = np.where(found, lengths[at] if len(lengths) else 0, 0)
    start = np.concatenate(([0], np.cumsum(length)))
    first = np.cumsum(lengths) - lengths
    # Stored root first; we want the leaf first.
    steps = np.arange(start[-1]) - np.repeat(start[:-1], length)
    if start[-1]:
        frames = flat[np.repeat(first[at] + length - 1, length) - steps]
    else:
        frames = np.empty(0, np.int64)
    image, name = _frames(connection, frames)
    shown = np.where(found, flags[at] if len(flags) else 0, 0)
    return Stacks(
        number=wanted,
        flags=shown,
        start=start,
        image=image,
        name=name,
        missing=int(len(wanted) - found.sum()),
    )


def _stack_frames(
    connection: sqlite3.Connection, wanted: Numbers
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Number, flags and length of all stacks of the blocks, and their frames root first.

    A stack is kept as what it does not share with the one before it. For each
    depth the frame there is that of the last stack that did not share it.
    """
    known, flags, lengths, shares, rests = [], [], [], [], []
    for first, columns in _blocks(connection, "stacks", STACK_COLUMNS, wanted):
        flag, length, shared, rest = columns
        before = np.concatenate(([0], length[:-1]))
        if (shared > np.minimum(length, before)).any() or (length - shared).sum() != len(rest):
            continue  # damaged: its stacks are missing
        if len(length) and length.max() > _DEEPEST:
            continue
        known.append(first + np.arange(len(length)))
        flags.append(flag)
        lengths.append(length)
        shares.append(shared)
        rests.append(rest)
    length, shared, rest = _joined(lengths), _joined(shares), _joined(rests)
    own = length - shared
    own_start = np.cumsum(own) - own
    out_start = np.cumsum(length) - length
    flat = np.empty(int(length.sum()), np.int64)
    number = np.arange(len(length))
    for depth in range(int(length.max(initial=0))):
        source = np.maximum.accumulate(np.where(shared <= depth, number, 0))
        deep = np.flatnonzero(length > depth)
        source = source[deep]
        flat[out_start[deep] + depth] = rest[own_start[source] + depth - shared[source]]
    return _joined(known), _joined(flags), length, flat


def _frames(connection: sqlite3.Connection, wanted: Numbers) -> tuple[Numbers, Numbers]:
    """Image and name of each of the frames; 0 for one that is missing."""
    used, which = distinct(wanted)
    known, images, names = [], [], []
    for first, columns in _blocks(connection, "frames", FRAME_COLUMNS, used):
        image, _step, _caller, name, _raw, _kind = columns
        known.append(first + np.arange(len(image)))
        images.append(image)
        names.append(name)
    number, image, name = _joined(known), _joined(images), _joined(names)
    if not len(number):
        nothing = np.zeros(len(wanted), np.int64)
        return nothing, nothing
    at = np.minimum(np.searchsorted(number, used), len(number) - 1)
    found = number[at] == used
    return np.where(found, image[at], 0)[which], np.where(found, name[at], 0)[which]


def _blocks(
    connection: sqlite3.Connection, table: str, columns: int, wanted: Numbers
) -> Iterable[tuple[int, list[Numbers]]]:
    """The blocks that hold some of the numbers, unpacked; not those that are damaged."""
    if not len(wanted):
        return
    blocks = connection.execute(
        f"SELECT first, count FROM {table} WHERE first <= ? ORDER BY first",  # noqa: S608
        (int(wanted[-1]),),
    ).fetchall()
    for first, count in blocks:
        at = int(np.searchsorted(wanted, first))
        if at == len(wanted) or wanted[at] >= first + count:
            continue
        (block,) = connection.execute(
            f"SELECT block FROM {table} WHERE first = ?",  # noqa: S608
            (first,),
        ).fetchone()
        try:
            unpacked = [numbers(column) for column in unpack(block, columns)]
        except StoreError:
            continue
        if len(unpacked[0]) == count:
            yield first, unpacked


def _joined(parts: list[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)

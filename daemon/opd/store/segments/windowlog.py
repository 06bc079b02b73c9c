"""Rows of the window log as numpy columns: one row a sample file and stack of a window.

Runs in the children that write segments and answer SQL; nobody else imports
numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opd.errors import StoreError
from opd.store.blocks import (
    CGROUP,
    GROUP_COLUMNS,
    ROW_COLUMNS,
    SFILE_COLUMNS,
    UNIT,
    unpack,
    unpack_sample_files,
)

if TYPE_CHECKING:
    import sqlite3
    from array import array
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

_ASKED_AT_ONCE = 500


class Rows(NamedTuple):
    """All columns have one entry a row.

    ``window``: the window's number in the store. ``event`` and ``mode`` as in
    a window; ``image`` and ``comm`` are numbers of names, ``cgroup`` of
    cgroups (0: unknown), ``stack`` of stacks; ``pid``, ``tid`` and ``cpu`` are
    -1 where not separated.
    """

    window: Numbers
    event: Numbers
    mode: Numbers
    pid: Numbers
    tid: Numbers
    cpu: Numbers
    image: Numbers
    comm: Numbers
    cgroup: Numbers
    stack: Numbers
    samples: Numbers
    weight: Numbers


class Log(NamedTuple):
    """What was read: rows, and how many windows were damaged and are not in them."""

    rows: Rows
    damaged: int


def read_log(connection: sqlite3.Connection, windows: Sequence[int]) -> Log:
    """The rows of these windows, in the windows' order. Raises sqlite3.Error."""
    parts: list[list[Numbers]] = [[] for _ in Rows._fields]
    damaged = 0
    for at in range(0, len(windows), _ASKED_AT_ONCE):
        some = windows[at : at + _ASKED_AT_ONCE]
        marks = ",".join("?" * len(some))
        blocks = connection.execute(
            f"SELECT window, groups, rows FROM blocks WHERE window IN ({marks}) ORDER BY window",  # noqa: S608
            some,
        )
        for window, groups, rows in blocks:
            try:
                columns = _columns(window, groups, rows)
            except StoreError:
                damaged += 1
                continue
            for part, column in zip(parts, columns, strict=True):
                part.append(column)
    return Log(Rows(*map(_joined, parts)), damaged)


def _columns(window: int, groups: bytes, rows: bytes) -> Rows:
    sfiles = unpack_sample_files(groups, GROUP_COLUMNS)[:SFILE_COLUMNS]
    row_sfile, steps, hits, excess = map(numbers, unpack(rows, ROW_COLUMNS))
    count = len(sfiles[0])
    if not len(row_sfile) == len(steps) == len(hits) == len(excess):
        raise StoreError("damaged block: columns of different lengths")
    if any(len(column) != count for column in sfiles) or (row_sfile >= count).any():
        raise StoreError("damaged block: a row names a sample file that is not there")
    event, mode, tgid, tid, cpu, image, comm = (numbers(column) for column in sfiles[:UNIT])
    unit, cgroup = numbers(sfiles[UNIT]), numbers(sfiles[CGROUP])
    return Rows(
        window=np.full(len(row_sfile), window),
        event=event[row_sfile],
        mode=mode[row_sfile],
        # Kept as one more, in 32 bits, since -1 means not separated.
        pid=tgid[row_sfile] - 1,
        tid=tid[row_sfile] - 1,
        cpu=cpu[row_sfile] - 1,
        image=image[row_sfile],
        comm=comm[row_sfile],
        cgroup=cgroup[row_sfile],
        stack=np.cumsum(steps),
        samples=hits,
        weight=hits * unit[row_sfile] + excess,
    )


def numbers(column: array[int]) -> Numbers:
    """An unpacked column as 64-bit numbers."""
    return np.frombuffer(column, dtype=f"u{column.itemsize}").astype(np.int64)


def _joined(parts: list[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)

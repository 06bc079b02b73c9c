"""The flat roll-ups: minutes as they end, hours out of minutes.

The minute that is still filling is kept in memory and written once, when a
window of a later minute comes; a new writer of the same run reads it back from
the window log. Windows of minutes already written (a clock set back, a resend
after a long stop) are added to them at once. All inside the caller's
transaction; after a rollback the object is of no use.

A roll-up is a ``groups`` block (see opd.store.blocks) of one sample file for
each (event, comm, image, mode, cgroup), with no process, thread or CPU, and
behind it a block of one column: ``squares``, the bits of a 32-bit float, or 0
where there was one window only and it is weight**2. In schema 1 that column is
the last one of the block itself.
"""

from __future__ import annotations

import contextlib
from array import array
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from opd.errors import StoreError
from opd.store.blocks import (
    GROUP_COLUMNS,
    SFILE_COLUMNS,
    check_groups,
    inflate,
    pack,
    sample_file_planes,
    unpack,
    unpack_groups,
)
from opd.store.schema import MINUTE_NS
from opd_native.condense import RollupSums

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from opd_native.condense import Column


def pack_rollup(sums: RollupSums) -> bytes:
    """The block of a minute or hour; ``sums`` is empty afterwards."""
    event, mode, image, comm, unit, cgroup, sfile, symbol, hits, excess, squares = sums.take()
    nothing = array("B", bytes(event.length))
    about = (event, mode, nothing, nothing, nothing, image, comm, unit, cgroup)
    # A stream of their own: most of the bytes, and a report does without.
    return pack([*about, sfile, symbol, hits, excess]) + pack([squares])


def unpack_rollup(block: bytes) -> tuple[list[array[int]], array[int]]:
    """The columns of a roll-up as of a window's groups, and the squares' bits."""
    data, rest = inflate(block)
    if rest:
        columns = sample_file_planes(data, GROUP_COLUMNS)
        (squares,) = unpack(rest, 1)
    else:
        columns = sample_file_planes(data, GROUP_COLUMNS + 1)
        squares = columns.pop()
    check_groups(columns)
    if len(squares) != len(columns[-1]):
        raise StoreError("damaged block: columns of different lengths")
    return columns, squares


def add_block(sums: RollupSums, block: bytes) -> None:
    """Add what pack_rollup was given. StoreError when the block is damaged."""
    columns, bits = unpack_rollup(block)
    squares = array("f")
    squares.frombytes(array("I", bits).tobytes())
    add_columns(sums, columns, squares)


def add_columns(
    sums: RollupSums, columns: Sequence[array[int]], squares: array[float] | None = None
) -> None:
    """Add the unpacked columns of a ``groups`` block."""
    event, mode, _tgid, _tid, _cpu, image, comm, unit, cgroup = columns[:SFILE_COLUMNS]
    sfile, symbol, hits, excess = columns[SFILE_COLUMNS:]
    try:
        about = [array("I", column) for column in (event, comm, image, mode, cgroup)]
        groups = [array("I", sfile), array("I", symbol), array("Q", hits), array("Q", excess)]
        sums.add([*about, array("Q", unit)], groups, squares)
    except (OverflowError, ValueError) as error:
        raise StoreError(f"damaged block: {error}") from error


class RollUp:
    """The roll-ups of one row of ``runs``."""

    def __init__(self, connection: sqlite3.Connection, run: int) -> None:
        """Read how far they go, and the windows that are not in them yet."""
        self._connection = connection
        self._run = run
        self._minutes_until, self._hours_until = connection.execute(
            "SELECT minutes_until, hours_until FROM runs WHERE id = ?", (run,)
        ).fetchone()
        self._minute = self._minutes_until
        self._filling = RollupSums()
        waiting = connection.execute(
            "SELECT start_ns, groups FROM windows JOIN blocks ON blocks.window = windows.id"
            " WHERE run = ? AND start_ns >= ? ORDER BY start_ns",
            (run, self._minutes_until * MINUTE_NS),
        ).fetchall()
        for start_ns, groups in waiting:
            # What is damaged is lost, here as in the window itself.
            with contextlib.suppress(StoreError):
                columns = unpack_groups(groups)
                with self._place(start_ns) as sums:
                    add_columns(sums, columns)

    def add(
        self,
        start_ns: int,
        about: Sequence[array[int]],
        groups: Sequence[Column | array[int]],
    ) -> None:
        """One window's groups, which begin at ``start_ns`` (see RollupSums.add)."""
        with self._place(start_ns) as sums:
            sums.add(about, groups)

    @contextlib.contextmanager
    def _place(self, start_ns: int) -> Iterator[RollupSums]:
        """Where a window that begins then is added."""
        minute = start_ns // MINUTE_NS
        if self._minutes_until <= minute < self._minute:
            # Behind the one that fills: that one is written, then this is late.
            self.finish()
        if minute < self._minutes_until:
            late = RollupSums()
            yield late
            self._add_late(minute, late)
            return
        if minute > self._minute:
            self._write(minute)
            self._minute = minute
        yield self._filling

    def finish(self) -> None:
        """Write the minute that is filling, and the whole hours before it."""
        if self._filling:
            self._write(self._minute + 1)
            self._minute += 1

    def _write(self, until: int) -> None:
        """Write what fills; minutes below ``until`` are complete then."""
        if self._filling:
            self._put("minutes", self._minute, pack_rollup(self._filling))
        # Complete are the hours before the one that `until` lies in.
        hours_until = max(until // 60, self._hours_until)
        if hours_until > self._hours_until:
            self._write_hours(hours_until)
        self._minutes_until = until
        self._hours_until = hours_until
        self._connection.execute(
            "UPDATE runs SET minutes_until = ?, hours_until = ? WHERE id = ?",
            (until, hours_until, self._run),
        )

    def _write_hours(self, until: int) -> None:
        minutes = self._connection.execute(
            "SELECT bucket / 60, block FROM minutes WHERE run = ? AND bucket >= ? AND bucket < ?"
            " ORDER BY bucket",
            (self._run, self._hours_until * 60, until * 60),
        ).fetchall()
        for hour, blocks in groupby(minutes, key=itemgetter(0)):
            sums = RollupSums()
            for _hour, block in blocks:
                with contextlib.suppress(StoreError):
                    add_block(sums, block)
            self._put("hours", hour, pack_rollup(sums))

    def _add_late(self, minute: int, late: RollupSums) -> None:
        """A window of a minute that is written already."""
        block = pack_rollup(late)
        self._add_to("minutes", minute, block)
        if minute // 60 < self._hours_until:
            self._add_to("hours", minute // 60, block)

    def _add_to(self, table: str, bucket: int, block: bytes) -> None:
        row = self._connection.execute(
            f"SELECT block FROM {table} WHERE run = ? AND bucket = ?",  # noqa: S608
            (self._run, bucket),
        ).fetchone()
        whole = RollupSums()
        if row is not None:
            with contextlib.suppress(StoreError):
                add_block(whole, row[0])
        add_block(whole, block)
        self._put(table, bucket, pack_rollup(whole))

    def _put(self, table: str, bucket: int, block: bytes) -> None:
        self._connection.execute(
            f"INSERT INTO {table} (run, bucket, block) VALUES (?, ?, ?)"  # noqa: S608
            " ON CONFLICT DO UPDATE SET block = excluded.block",
            (self._run, bucket, block),
        )

"""Deletes names, images and cgroups that nothing in the store mentions any more.

What is mentioned is found by reading the frames that are left, the roll-ups,
and the windows that are in none; then every name not found goes. In small
steps, between which windows are stored: each step that deletes first reads
what has been added since the last one, in the same transaction. Other writers
notice by ``seen.swept`` that a name they remember may be gone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from opd.errors import StoreError
from opd.store.blocks import CGROUP, SFILE_COLUMNS, unpack, unpack_groups
from opd.store.database import transaction
from opd.store.dictionary import FRAME_COLUMNS
from opd.store.rollup import unpack_rollup
from opd.store.schema import MINUTE_NS, SWEPT

if TYPE_CHECKING:
    import sqlite3
    from array import array
    from collections.abc import Iterator, Sequence

_BLOCKS_A_STEP = 20
_ROWS_A_STEP = 500
_IMAGE, _COMM = 5, 6


class _Marked:
    """The numbers found, of those below the first that came after the sweep began."""

    def __init__(self, connection: sqlite3.Connection, table: str) -> None:
        self.table = table
        (self.end,) = connection.execute(f"SELECT ifnull(max(id), 0) + 1 FROM {table}").fetchone()  # noqa: S608
        self._bits = bytearray(self.end)
        self.at = 0

    def add(self, numbers: Sequence[int] | set[int]) -> None:
        """Found these."""
        bits, end = self._bits, self.end
        for number in set(numbers):
            if number < end:
                bits[number] = 1

    def __contains__(self, number: int) -> bool:
        return number >= self.end or bool(self._bits[number])


class Sweep:
    """One sweep, step by step."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._names = _Marked(connection, "names")
        self._images = _Marked(connection, "images")
        self._cgroups = _Marked(connection, "cgroups")
        self.deleted = 0
        self._last_window = self._last("windows", "id")
        self._last_frame = self._last("frames", "first")
        self._last_image = self._last("images", "id")
        self._work = self._steps()

    def step(self, seconds: float) -> bool:
        """Go on for about so long; False when it is done, or given up over a damaged block."""
        until = time.monotonic() + seconds
        try:
            for _ in self._work:
                if time.monotonic() > until:
                    return True
        except StoreError:
            pass  # what it mentions cannot be known, so nothing goes
        return False

    def _steps(self) -> Iterator[None]:
        # Windows become minutes and minutes hours meanwhile: in this order none is missed.
        yield from self._mark_young()
        yield from self._mark_rolled()
        yield from self._mark_frames()
        for marked in (self._images, self._cgroups, self._names):
            yield from self._delete(marked)

    # ---- finding

    def _last(self, table: str, key: str) -> int:
        row = self._connection.execute(f"SELECT ifnull(max({key}), 0) FROM {table}").fetchone()  # noqa: S608
        return int(row[0])

    def _mark_frames(self) -> Iterator[None]:
        at = -1
        while rows := self._connection.execute(
            "SELECT first, block FROM frames WHERE first > ? AND first <= ? ORDER BY first LIMIT ?",
            (at, self._last_frame, _BLOCKS_A_STEP),
        ).fetchall():
            for at, block in rows:  # noqa: B007 - the last one is where the next step begins
                self._add_frames(block)
            yield

    def _add_frames(self, block: bytes) -> None:
        images, _steps, _callers, names, raws, _kinds = unpack(block, FRAME_COLUMNS)
        self._images.add(images)
        self._names.add(names)
        self._names.add(raws)

    def _mark_rolled(self) -> Iterator[None]:
        """Hours, and minutes that are in no hour."""
        for table, where in (
            ("minutes", "(bucket < runs.hours_from * 60 OR bucket >= runs.hours_until * 60)"),
            ("hours", "bucket >= runs.hours_from"),
        ):
            at = -1
            while rows := self._connection.execute(
                f"SELECT {table}.id, block FROM {table} JOIN runs ON runs.id = {table}.run"  # noqa: S608
                f" WHERE {table}.id > ? AND {where} ORDER BY {table}.id LIMIT ?",
                (at, _BLOCKS_A_STEP),
            ).fetchall():
                for at, block in rows:  # noqa: B007
                    self._add_groups(unpack_rollup(block)[0])
                yield

    def _add_groups(self, columns: Sequence[array[int]]) -> None:
        self._names.add(columns[_IMAGE])
        self._names.add(columns[_COMM])
        self._names.add(columns[SFILE_COLUMNS + 1])
        self._cgroups.add(columns[CGROUP])

    def _mark_young(self) -> Iterator[None]:
        """Windows that are in no roll-up yet."""
        for (block,) in self._connection.execute(
            "SELECT groups FROM runs JOIN windows ON windows.run = runs.id"
            " JOIN blocks ON blocks.window = windows.id WHERE start_ns >= minutes_until * ?",
            (MINUTE_NS,),
        ).fetchall():
            self._add_groups(unpack_groups(block))
            yield

    def _catch_up(self) -> None:
        """Read what was added since the last time."""
        for number, block in self._connection.execute(
            "SELECT window, groups FROM blocks WHERE window > ? ORDER BY window",
            (self._last_window,),
        ):
            self._add_groups(unpack_groups(block))
            self._last_window = number
        for number, block in self._connection.execute(
            "SELECT first, block FROM frames WHERE first > ? ORDER BY first", (self._last_frame,)
        ):
            self._add_frames(block)
            self._last_frame = number
        for number, path in self._connection.execute(
            "SELECT id, path FROM images WHERE id > ? ORDER BY id", (self._last_image,)
        ):
            self._names.add((path,))
            self._last_image = number

    # ---- deleting

    def _delete(self, marked: _Marked) -> Iterator[None]:
        while marked.at < marked.end:
            with transaction(self._connection):
                self._catch_up()
                rows = self._connection.execute(
                    f"SELECT id FROM {marked.table} WHERE id > ? AND id < ? ORDER BY id LIMIT ?",  # noqa: S608
                    (marked.at, marked.end, _ROWS_A_STEP),
                ).fetchall()
                gone = [(id_,) for (id_,) in rows if id_ not in marked]
                if gone:
                    self._connection.executemany(
                        f"DELETE FROM {marked.table} WHERE id = ?",  # noqa: S608
                        gone,
                    )
                    self._connection.execute(
                        "INSERT INTO seen VALUES (?, 1)"
                        " ON CONFLICT DO UPDATE SET value = value + 1",
                        (SWEPT,),
                    )
            if not rows:
                break
            marked.at = rows[-1][0]
            self.deleted += len(gone)
            yield
        if marked is self._images:
            # The paths of images are names; those of images that are gone no longer.
            paths = self._connection.execute("SELECT path FROM images").fetchall()
            self._names.add({path for (path,) in paths})

"""The flat roll-ups: minutes as they end, hours out of minutes.

The minute that is still filling is kept in memory and written once, when a
window of a later minute comes; a new writer of the same run reads it back from
the window log. Windows of minutes already written (a clock set back, a resend
after a long stop) are added to them at once. All inside the caller's
transaction; after a rollback the object is of no use.

A roll-up is a ``groups`` block (see opd.store.blocks) of one sample file for
each (event, comm, image, mode), with no process, thread or CPU, and one more
column: ``squares``, the bits of a 32-bit float, or 0 where there was one
window only and it is weight**2.
"""

from __future__ import annotations

import contextlib
from array import array
from itertools import groupby
from operator import floordiv, itemgetter
from typing import TYPE_CHECKING

from opd.errors import StoreError
from opd.store.blocks import GROUP_COLUMNS, SFILE_COLUMNS, check_groups, pack, unpack, unpack_groups
from opd.store.schema import MINUTE_NS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

# (event, comm, image, mode) and symbol: what a flat row is about.
About = tuple[int, int, int, int]
Key = tuple[About, int]
# samples, weight
Flat = dict[Key, list[int]]
# samples, weight, squares
Sums = dict[Key, list[float]]

_COLUMNS = SFILE_COLUMNS + GROUP_COLUMNS + 1


def flatten(columns: Sequence[Sequence[int]]) -> Flat:
    """A window's groups (see opd.store.blocks) summed over processes and threads."""
    event, mode, _tgid, _tid, _cpu, image, comm, unit = columns[:SFILE_COLUMNS]
    abouts = list(zip(event, comm, image, mode, strict=True))
    flat: Flat = {}
    for sfile, symbol, hits, excess in zip(*columns[SFILE_COLUMNS:], strict=True):
        key = (abouts[sfile], symbol)
        weight = hits * unit[sfile] + excess
        entry = flat.get(key)
        if entry is None:
            flat[key] = [hits, weight]
        else:
            entry[0] += hits
            entry[1] += weight
    return flat


def pack_rollup(sums: Sums) -> bytes:
    """The block of a minute or hour."""
    ordered = sorted(sums.items())
    abouts = sorted({about for (about, _symbol) in sums})
    number = {about: index for index, about in enumerate(abouts)}
    samples = [int(entry[0]) for _key, entry in ordered]
    weights = [int(entry[1]) for _key, entry in ordered]
    units: dict[int, int] = {}
    for ((about, _symbol), _entry), unit in zip(
        ordered, map(floordiv, weights, samples), strict=True
    ):
        units[about[0]] = min(unit, units.get(about[0], unit))
    nothing = [0] * len(abouts)
    return pack(
        [
            [event for event, _comm, _image, _mode in abouts],
            [mode for _event, _comm, _image, mode in abouts],
            *(nothing, nothing, nothing),
            [image for _event, _comm, image, _mode in abouts],
            [comm for _event, comm, _image, _mode in abouts],
            [units[about[0]] for about in abouts],
            [number[about] for (about, _symbol), _entry in ordered],
            [symbol for (_about, symbol), _entry in ordered],
            samples,
            [
                weight - hits * units[about[0]]
                for ((about, _symbol), _entry), hits, weight in zip(
                    ordered, samples, weights, strict=True
                )
            ],
            _float_bits(
                [
                    0.0 if squares == float(weight) * weight else squares
                    for _key, (_hits, weight, squares) in ordered
                ]
            ),
        ]
    )


def unpack_rollup(block: bytes) -> tuple[list[array[int]], array[int]]:
    """The columns of a roll-up as of a window's groups, and the squares' bits."""
    columns = unpack(block, _COLUMNS)
    squares = columns.pop()
    check_groups(columns)
    if len(squares) != len(columns[-1]):
        raise StoreError("damaged block: columns of different lengths")
    return columns, squares


def _sums(block: bytes) -> Sums:
    """What pack_rollup was given."""
    columns, bits = unpack_rollup(block)
    squares = array("f")
    squares.frombytes(array("I", bits).tobytes())
    flat = flatten(columns)
    return {
        key: [hits, weight, square or float(weight) * weight]
        for (key, (hits, weight)), square in zip(flat.items(), squares, strict=True)
    }


def _float_bits(numbers: list[float]) -> array[int]:
    bits = array("I")
    bits.frombytes(array("f", numbers).tobytes())
    return bits


def _merge(into: Sums, more: Sums) -> None:
    for key, (hits, weight, squares) in more.items():
        entry = into.get(key)
        if entry is None:
            into[key] = [hits, weight, squares]
        else:
            entry[0] += hits
            entry[1] += weight
            entry[2] += squares


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
        self._filling: Sums = {}
        waiting = connection.execute(
            "SELECT start_ns, groups FROM windows JOIN blocks ON blocks.window = windows.id"
            " WHERE run = ? AND start_ns >= ? ORDER BY start_ns",
            (run, self._minutes_until * MINUTE_NS),
        ).fetchall()
        for start_ns, groups in waiting:
            # What is damaged is lost, here as in the window itself.
            with contextlib.suppress(StoreError):
                self.add(start_ns, flatten(unpack_groups(groups)))

    def add(self, start_ns: int, flat: Flat) -> None:
        """One window's flat sums, which begin at ``start_ns``."""
        sums: Sums = {
            key: [hits, weight, float(weight) * weight] for key, (hits, weight) in flat.items()
        }
        minute = start_ns // MINUTE_NS
        if minute < self._minutes_until:
            self._add_late(minute, sums)
            return
        if minute < self._minute:
            # Behind the one that fills: that one is written, then this is late.
            self.finish()
            self._add_late(minute, sums)
            return
        if minute > self._minute:
            self._write(minute)
            self._minute = minute
        _merge(self._filling, sums)

    def finish(self) -> None:
        """Write the minute that is filling, and the whole hours before it."""
        if self._filling:
            self._write(self._minute + 1)
            self._minute += 1

    def _write(self, until: int) -> None:
        """Write what fills; minutes below ``until`` are complete then."""
        if self._filling:
            self._put("minutes", self._minute, self._filling)
            self._filling = {}
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
            sums: Sums = {}
            for _hour, block in blocks:
                with contextlib.suppress(StoreError):
                    _merge(sums, _sums(block))
            self._put("hours", hour, sums)

    def _add_late(self, minute: int, sums: Sums) -> None:
        """A window of a minute that is written already."""
        self._add_to("minutes", minute, sums)
        if minute // 60 < self._hours_until:
            self._add_to("hours", minute // 60, sums)

    def _add_to(self, table: str, bucket: int, sums: Sums) -> None:
        row = self._connection.execute(
            f"SELECT block FROM {table} WHERE run = ? AND bucket = ?",  # noqa: S608
            (self._run, bucket),
        ).fetchone()
        whole: Sums = {}
        if row is not None:
            with contextlib.suppress(StoreError):
                whole = _sums(row[0])
        _merge(whole, sums)
        self._put(table, bucket, whole)

    def _put(self, table: str, bucket: int, sums: Sums) -> None:
        self._connection.execute(
            f"INSERT INTO {table} (run, bucket, block) VALUES (?, ?, ?)"  # noqa: S608
            " ON CONFLICT DO UPDATE SET block = excluded.block",
            (self._run, bucket, pack_rollup(sums)),
        )

"""The flat roll-ups: minutes as they end, hours out of minutes.

The minute that is still filling is kept in memory and written once, when a
window of a later minute comes; a new writer of the same run reads it back from
the window log. Windows of minutes already written (a clock set back, a resend
after a long stop) are added to them at once. All inside the caller's
transaction; after a rollback the object is of no use.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from opd.errors import StoreError
from opd.store.blocks import SFILE_COLUMNS, unpack_groups
from opd.store.schema import MINUTE_NS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

# (event, comm, image, mode) and symbol: what a flat row is about.
Key = tuple[tuple[int, int, int, int], int]
# samples, weight
Flat = dict[Key, list[int]]

_COLUMNS = "event, comm, image, symbol, mode, samples, weight, squares"
_ADD = """
INSERT INTO {table} (run, {bucket}, event, comm, image, symbol, mode, samples, weight, squares)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET samples = samples + excluded.samples,
  weight = weight + excluded.weight, squares = squares + excluded.squares
"""
_ADD_MINUTE = _ADD.format(table="minutes", bucket="minute")
_ADD_HOUR = _ADD.format(table="hours", bucket="hour")
_SUM_HOURS = """
INSERT INTO hours
SELECT run, minute / 60, event, comm, image, symbol, mode,
       sum(samples), sum(weight), sum(squares)
FROM minutes WHERE run = ? AND minute >= ? AND minute < ?
GROUP BY run, minute / 60, event, comm, image, symbol, mode
"""


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
        self._filling: dict[Key, list[float]] = {}
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
        minute = start_ns // MINUTE_NS
        if minute < self._minutes_until:
            self._add_late(minute, flat)
            return
        if minute < self._minute:
            # Behind the one that fills: that one is written, then this is late.
            self.finish()
            self._add_late(minute, flat)
            return
        if minute > self._minute:
            self._write(minute)
            self._minute = minute
        filling = self._filling
        for key, (hits, weight) in flat.items():
            entry = filling.get(key)
            if entry is None:
                filling[key] = [hits, weight, float(weight) * weight]
            else:
                entry[0] += hits
                entry[1] += weight
                entry[2] += float(weight) * weight

    def finish(self) -> None:
        """Write the minute that is filling, and the whole hours before it."""
        if self._filling:
            self._write(self._minute + 1)
            self._minute += 1

    def _write(self, until: int) -> None:
        """Write what fills; minutes below ``until`` are complete then."""
        if self._filling:
            self._connection.executemany(
                _ADD_MINUTE, sorted(self._rows(self._minute, self._filling))
            )
            self._filling = {}
        # Complete are the hours before the one that `until` lies in.
        hours_until = max(until // 60, self._hours_until)
        if hours_until > self._hours_until:
            self._connection.execute(
                _SUM_HOURS, (self._run, self._hours_until * 60, hours_until * 60)
            )
        self._minutes_until = until
        self._hours_until = hours_until
        self._connection.execute(
            "UPDATE runs SET minutes_until = ?, hours_until = ? WHERE id = ?",
            (until, hours_until, self._run),
        )

    def _add_late(self, minute: int, flat: Flat) -> None:
        """A window of a minute that is written already."""
        entries = {
            key: [hits, weight, float(weight) * weight] for key, (hits, weight) in flat.items()
        }
        self._connection.executemany(_ADD_MINUTE, sorted(self._rows(minute, entries)))
        if minute // 60 < self._hours_until:
            self._connection.executemany(_ADD_HOUR, sorted(self._rows(minute // 60, entries)))

    def _rows(self, bucket: int, entries: dict[Key, list[float]]) -> list[tuple[float, ...]]:
        return [
            (self._run, bucket, event, comm, image, symbol, mode, *sums)
            for ((event, comm, image, mode), symbol), sums in entries.items()
        ]

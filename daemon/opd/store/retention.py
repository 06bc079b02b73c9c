"""Deletes what is too old, or too much, in steps of a few milliseconds.

The unit is a minute of a run: its windows and its roll-up, oldest first; its
hour's roll-up goes with the first of its minutes, and readers take the minutes
that are left. Saved sessions and imports stay, whatever the limits say. Stacks,
frames and names that only deleted windows used follow (:mod:`opd.store.epochs`,
:mod:`opd.store.sweep`), and the file shrinks by the pages that are free.

The limit of bytes counts every file of the session directory. A file system
with less left than ``free_bytes`` is a limit too: the store then grows no more,
and each new window costs the oldest ones. What others fill is not made up for.
"""

from __future__ import annotations

import os
import sqlite3
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from opd.store import epochs
from opd.store.damage import list_aside
from opd.store.database import WAL_BYTES, transaction
from opd.store.messages import Keep
from opd.store.schema import FILE_NAME, MINUTE_NS
from opd.store.segments.files import HOUR_NS, list_segments, short_run
from opd.store.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from opd.store.segments.files import Segment

_DAY_NS = 86_400 * 1_000_000_000
_STEP_SECONDS = 0.02
_MINUTES_A_TRANSACTION = 8
_ROWS_A_STEP = 100
_PAGES_A_STEP = 64
# Free pages kept for what comes: a file that shrinks and grows all the time gains nothing.
_SPARE_PAGES = 256
_SPARE_SHARE = 50
# The wall clock is believed when it has gone along with CLOCK_BOOTTIME for so long.
_STEADY_SECONDS = 600.0
_STEP_NS = 60 * 1_000_000_000
# Windows dated this far ahead were taken while the clock was wrong.
_AHEAD_NS = _DAY_NS
_LOOK_SECONDS = 5.0
# The log beside the file needs room of its own.
_LEAST_FREE = 4 * WAL_BYTES
_LOOK_BYTES = 128 << 10
_OWN_FILES = frozenset((FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm"))
_SWEEP_SECONDS = 600.0
_EPOCHS_A_SWEEP = 8
_TELL_SECONDS = 600.0
_COMPLAIN_SECONDS = 3600.0


class Usage(NamedTuple):
    """Bytes of the session directory: what is used, and what its files take."""

    used: int
    files: int


class Gone(msgspec.Struct):
    """What retention deleted since the store was opened."""

    windows: int = 0
    samples: int = 0
    segments: int = 0
    names: int = 0
    last_ns: int = 0
    reason: str = ""


class Retention:
    """Keeps one store within its limits. ``own`` tells the writer's run row and epoch."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        directory: Path,
        own: Callable[[], tuple[int, int]],
    ) -> None:
        self._connection = connection
        self._directory = directory
        self._own = own
        self.keep = Keep()
        self.gone = Gone()
        self.removed: list[str] = []  # damaged stores that were deleted for room
        self.stuck = ""  # why a limit cannot be kept
        self.usage = Usage(0, 0)
        self._looked = -_LOOK_SECONDS
        self._passed = ""  # the limit that is passed
        self.added = 0  # bytes of windows since it looked
        self._frozen = 0
        self._clock = _clock_offset_ns()
        self._steady_since = time.monotonic()
        self._stale = False  # windows went since numbers were last looked at
        self._dead = 0  # epochs that went since names were last swept
        self._sweep: Sweep | None = None
        self._swept = time.monotonic()
        self._vacuum = False
        self._told = Gone()
        self._tell_at = self._complain_at = 0.0

    # ---- the calls

    def step(self) -> bool:
        """Do a little; True when there is more to do now."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS or self.added >= _LOOK_BYTES:
            self._looked, self.added = now, 0
            self._look()
        # What windows leave behind goes first: it may be all that is too much.
        if self._stale:
            self._stale = self._drop_numbers()
            if not self._stale:
                self.usage = self._measure()
                self._passed = self._reason()
            return True
        if self._sweep is not None:
            before = self._sweep.deleted
            more = self._sweep.step(_STEP_SECONDS)
            self.gone.names += self._sweep.deleted - before
            if not more:
                self._sweep = None
                self._vacuum = True
                self.usage = self._measure()
                self._passed = self._reason()
            return True
        if self._passed and self._delete(self._passed):
            return True
        self._passed = ""
        if self._vacuum:
            self._vacuum = self._shrink()
            return self._vacuum
        return False

    def counts(self) -> dict[str, int]:
        """Bytes of the directory's files, and what was deleted since the store was opened."""
        gone = self.gone
        return {
            "bytes": self.usage.files,
            "keep_bytes": self.keep.bytes,
            "deleted_windows": gone.windows,
            "deleted_samples": gone.samples,
            "deleted_segments": gone.segments,
            "deleted_names": gone.names,
        }

    def news(self) -> tuple[str, str] | None:
        """Level and text of a line for the log, at most one in a while."""
        now = time.monotonic()
        if self.removed:
            return "warning", f"store: deleted {self.removed.pop()} to make room"
        if self.stuck and now >= self._complain_at:
            self._complain_at = now + _COMPLAIN_SECONDS
            return "warning", (
                f"store: {self.usage.files >> 20} MiB: {self.stuck}, and nothing that may go:"
                " what is left is imported, saved, or of this minute"
            )
        gone, told = self.gone, self._told
        if (gone.windows, gone.segments) == (told.windows, told.segments) or now < self._tell_at:
            return None
        self._tell_at = now + _TELL_SECONDS
        self._told = msgspec.structs.replace(gone)
        text = (
            f"store: deleted {gone.windows - told.windows} windows"
            f" ({gone.samples - told.samples} samples)"
            f" and {gone.segments - told.segments} segments, up to {_moment(gone.last_ns)}:"
            f" {gone.reason}"
        )
        return "info", text

    def give_up(self) -> None:
        """A step failed: what it was about begins anew later."""
        self._sweep = None
        self._looked = time.monotonic()
        self._passed = ""

    # ---- limits

    def _look(self) -> None:
        """Measure, look at the clock, and see whether a limit is passed."""
        self.usage = self._measure()
        clock = _clock_offset_ns()
        if abs(clock - self._clock) > _STEP_NS:
            self._steady_since = time.monotonic()
        self._clock = clock
        self.stuck = ""
        self._passed = self._reason()

    def _measure(self) -> Usage:
        files = own = 0
        for folder, _folders, names in os.walk(self._directory):
            for name in names:
                try:
                    size = os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118
                except FileNotFoundError:
                    continue
                files += size
                own += size if name in _OWN_FILES else 0
        pages = self._pragma("page_count") - self._free_pages()
        # The log beside the file grows with what is deleted too: it counts as it is at most.
        return Usage(files - own + WAL_BYTES + pages * self._pragma("page_size"), files)

    def _reason(self) -> str:
        """Which limit is passed, by the last measure; empty when none is."""
        return self._size_passed() or self._age_passed()

    def _size_passed(self) -> str:
        keep, used = self.keep, self.usage.used
        if keep.bytes and used > keep.bytes:
            return f"more than {keep.bytes >> 20} MiB"
        if keep.free_bytes:
            status = os.statvfs(self._directory)
            size = status.f_blocks * status.f_frsize
            least = max(min(keep.free_bytes, size // 10), min(_LEAST_FREE, size // 4))
            if status.f_bavail * status.f_frsize >= least:
                self._frozen = 0
            elif not self._frozen:
                self._frozen = used
            elif used > self._frozen:
                return f"less than {least >> 20} MiB free"
        return ""

    def _age_passed(self) -> str:
        days = self.keep.days
        if days and time.monotonic() - self._steady_since >= _STEADY_SECONDS:
            oldest = self._oldest_ns(time.time_ns())
            if oldest is not None and oldest < time.time_ns() - int(days * _DAY_NS):
                return f"older than {days:g} days"
        return ""

    def _oldest_ns(self, now: int) -> int | None:
        """When the oldest of what may go began.

        Taken from the first window, in order of storing, that is not dated
        ahead: what was stored before it is not younger.
        """
        ages = [segment.end_ns for segment in self._segments()[:1]]
        for run in self._runs():
            row = self._connection.execute(
                "SELECT start_ns FROM windows WHERE run = ? AND start_ns < ?"
                " ORDER BY sequence LIMIT 1",
                (run, now + _AHEAD_NS),
            ).fetchone()
            if row is not None:
                ages.append(row[0])
                break
        return min(ages, default=None)

    # ---- deleting

    def _runs(self) -> list[int]:
        """Rows of runs whose windows may go, oldest first."""
        return [
            row
            for (row,) in self._connection.execute(
                "SELECT runs.id FROM runs JOIN sessions ON sessions.id = runs.session"
                " WHERE kind = 'live' AND NOT saved ORDER BY runs.id"
            )
        ]

    def _delete(self, reason: str) -> bool:
        """Delete the oldest minutes or the oldest segment; False when nothing may go."""
        began = time.monotonic()
        if self._size_passed() and (aside := list_aside(self._directory)):
            self._remove_aside(aside[0])
            return True
        segment = next(iter(self._segments()), None)
        oldest = self._oldest_minute()
        if oldest is None and segment is None:
            self.stuck = reason
            return False
        if segment is not None and (oldest is None or segment.start_ns <= oldest[1] * MINUTE_NS):
            self._remove(segment)
        elif oldest is not None:
            before = msgspec.structs.replace(self.gone)
            try:
                self._delete_minutes(oldest, began)
            except sqlite3.Error:
                # Undone, on a full disk for one: then nothing went.
                self.gone = before
                raise
        self.gone.reason = reason
        self.usage = self._measure()
        self._stale = self._vacuum = True
        return True

    def _delete_minutes(self, oldest: tuple[int, int] | None, began: float) -> None:
        """Some of the oldest minutes, all or none."""
        with transaction(self._connection):
            for _ in range(_MINUTES_A_TRANSACTION):
                if oldest is None:
                    return
                self._delete_minute(*oldest)
                oldest = self._oldest_minute()
                late = time.monotonic() - began > _STEP_SECONDS
                if late or not (self._size_passed() or self._age_passed()):
                    return

    def _oldest_minute(self) -> tuple[int, int] | None:
        """The run and minute that go next; never the one that the writer still fills."""
        own, _epoch = self._own()
        for run in self._runs():
            row = self._connection.execute(
                "SELECT start_ns FROM windows JOIN runs ON runs.id = windows.run"
                " WHERE windows.run = ? AND (runs.id != ? OR start_ns < minutes_until * ?)"
                " ORDER BY sequence LIMIT 1",
                (run, own, MINUTE_NS),
            ).fetchone()
            if row is not None:
                return run, row[0] // MINUTE_NS
        return None

    def _delete_minute(self, run: int, minute: int) -> None:
        span = (run, minute * MINUTE_NS, (minute + 1) * MINUTE_NS)
        where = "run = ? AND start_ns >= ? AND start_ns < ?"
        windows, samples, last = self._connection.execute(
            "SELECT count(*), total(samples), max(end_ns)"  # noqa: S608
            f" FROM windows WHERE {where}",
            span,
        ).fetchone()
        for table in ("blocks", "payloads"):
            self._connection.execute(
                f"DELETE FROM {table} WHERE window IN (SELECT id FROM windows WHERE {where})",  # noqa: S608
                span,
            )
        self._connection.execute(f"DELETE FROM windows WHERE {where}", span)  # noqa: S608
        self._connection.execute("DELETE FROM minutes WHERE run = ? AND bucket = ?", (run, minute))
        hour = minute // 60
        self._connection.execute("DELETE FROM hours WHERE run = ? AND bucket = ?", (run, hour))
        self._connection.execute(
            "UPDATE runs SET deleted = deleted + ?, hours_from = max(hours_from, ?) WHERE id = ?",
            (windows, hour + 1, run),
        )
        self.gone.windows += windows
        self.gone.samples += int(samples)
        self.gone.last_ns = last

    # ---- segments

    def _segments(self) -> list[Segment]:
        """The segments that may go, oldest first."""
        found = list_segments(self._directory)
        if not found:
            return []
        kept = self._connection.execute(
            "SELECT runs.id, run FROM runs JOIN sessions ON sessions.id = runs.session"
            " WHERE kind != 'live' OR saved"
        ).fetchall()
        by_run: dict[str, list[int]] = {}
        for id_, run in kept:
            by_run.setdefault(short_run(run), []).append(id_)
        return [
            segment
            for segment in found
            if not any(self._has_windows(id_, segment) for id_ in by_run.get(segment.run8, ()))
        ]

    def _has_windows(self, run: int, segment: Segment) -> bool:
        """Whether windows of the segment's hour are of a run that is kept."""
        row = self._connection.execute(
            "SELECT 1 FROM windows WHERE run = ? AND start_ns >= ? AND start_ns < ? LIMIT 1",
            (run, segment.start_ns, segment.start_ns + HOUR_NS),
        ).fetchone()
        return row is not None

    def _remove(self, segment: Segment) -> None:
        segment.path.unlink(missing_ok=True)
        self.gone.segments += 1
        self.gone.last_ns = segment.end_ns

    def _remove_aside(self, path: Path) -> None:
        """Delete a damaged store, with its log: it is older than what came after it."""
        for part in (path, path.with_name(path.name + "-wal")):
            part.unlink(missing_ok=True)
        self.removed.append(path.name)
        self.usage = self._measure()
        self._passed = self._reason()

    # ---- what windows leave behind

    def _drop_numbers(self) -> bool:
        """Delete a few blocks of stacks or frames that no window names; True while there are more.

        Then rows of runs and sessions that are empty, and begin a sweep of names.
        """
        row, epoch = self._own()
        with transaction(self._connection):
            self._dead += epochs.drop_dead(self._connection, epoch)
            for table in ("stacks", "frames"):
                for first, end in epochs.gaps(self._connection, table):
                    deleted = self._connection.execute(
                        f"DELETE FROM {table} WHERE first IN (SELECT first FROM {table}"  # noqa: S608
                        " WHERE first >= ? AND first < ? LIMIT ?)",
                        (first, end, _ROWS_A_STEP),
                    ).rowcount
                    if deleted:
                        return True
            self._drop_empty(row)
        rested = time.monotonic() - self._swept > _SWEEP_SECONDS
        passed = bool(self._reason())
        if self._dead >= (_EPOCHS_A_SWEEP if passed else 1) or (rested and passed):
            self._dead = 0
            self._swept = time.monotonic()
            self._sweep = Sweep(self._connection)
        return False

    def _drop_empty(self, own: int) -> None:
        """Delete runs that retention emptied or that never had a window, and empty sessions."""
        for run, id_, deleted in self._connection.execute(
            "SELECT run, id, deleted FROM runs"
            " WHERE (deleted OR kind = 'live' AND started_ns < ?) AND id != ?"
            " AND NOT EXISTS (SELECT 1 FROM windows WHERE windows.run = runs.id)",
            (time.time_ns() - epochs.YOUNG_NS, own),
        ).fetchall():
            for table in ("minutes", "hours", "epochs"):
                self._connection.execute(f"DELETE FROM {table} WHERE run = ?", (id_,))  # noqa: S608
            self._connection.execute("DELETE FROM runs WHERE id = ?", (id_,))
            # What is left of the run under another session did not begin there.
            self._connection.execute(
                "UPDATE runs SET deleted = deleted + ? WHERE run = ?", (deleted, run)
            )
        self._connection.execute(
            "DELETE FROM sessions WHERE name != 'live' AND NOT saved"
            " AND NOT EXISTS (SELECT 1 FROM runs WHERE session = sessions.id)"
        )

    def _shrink(self) -> bool:
        """Give some free pages back to the file system; True while there are more to give."""
        free = self._free_pages()
        if free <= max(_SPARE_PAGES, self._pragma("page_count") // _SPARE_SHARE):
            return False
        self._connection.execute(f"PRAGMA incremental_vacuum({_PAGES_A_STEP})").fetchall()
        return self._free_pages() < free

    def _free_pages(self) -> int:
        return self._pragma("freelist_count")

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])


def _moment(at_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ns // 1_000_000_000))


def _clock_offset_ns() -> int:
    """Wall clock less the time since boot, suspends included: it changes when somebody sets it."""
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)

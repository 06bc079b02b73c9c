"""Writes windows: resolves their frames, numbers what is new, stores once.

Python's work is per row and per new stack or frame of a window, never per
sample. What a run has shown before is recognised by its raw bytes.
"""

from __future__ import annotations

import contextlib
import sqlite3
from array import array
from typing import TYPE_CHECKING, Any

import msgspec

from opd.errors import StoreError
from opd.redaction import redact_path
from opd.store.blocks import pack
from opd.store.columns import COMM_BYTES, SampleFiles, read_sample_files
from opd.store.database import (
    StoreGoneError,
    WriterLock,
    identity_of,
    open_writer,
    printable,
    transaction,
)
from opd.store.dictionary import Dictionary
from opd.store.epochs import FRAMES_KNOWN, STACKS_KNOWN, Epoch
from opd.store.messages import Keep
from opd.store.names import KIND_NAMED, KIND_RANGE, KIND_UNKNOWN, UNKNOWN
from opd.store.naming import Namer
from opd.store.payloads import check_payloads, write_payloads
from opd.store.requests import TURNS_OVER, Place, carry_out
from opd.store.rollup import RollUp
from opd.store.schema import EVENT_COLUMNS, EVENTS, FILE_NAME, QUALITY_COLUMNS, SWEPT
from opd_native.condense import BadWindowError, Condensed, Condenser

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

    from opd.redaction import Redact
    from opd.sampling.window import CgroupInfo, ImageInfo, RunInfo, Window
    from opd.store.names import Resolver
    from opd.store.retention import Retention

_U32 = (1 << 32) - 1

_COLUMNS = ("run", "sequence", "start_ns", "end_ns", *QUALITY_COLUMNS, "extra", "bytes")
_ADD_WINDOW = (
    f"INSERT INTO windows ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
)


class WindowReceipt(msgspec.Struct, frozen=True):
    """What became of a window. ``new`` is False when it was there already."""

    run: str
    sequence: int
    new: bool
    samples: int
    bytes: int


class StoreWriter:
    """The one that writes into a session directory.

    ``resolver`` is a NameSource, or makes one from a RunInfo. ``exclusive``
    takes the directory's worker lock; an import beside a worker does not.
    ``redact`` says what of the paths is kept.
    Not thread-safe. Raises StoreError from every method when the store cannot
    be written; a window that raised is not stored, and the next one is tried
    afresh.
    """

    def __init__(
        self,
        directory: Path,
        resolver: Resolver,
        *,
        exclusive: bool = False,
        redact: Redact = "none",
    ) -> None:
        self._lock = WriterLock(directory) if exclusive else None
        self._directory = directory
        self._resolver = resolver
        try:
            self._connection = open_writer(directory)
        except StoreError:
            if self._lock:
                self._lock.release()
            raise
        self._file = identity_of(directory / FILE_NAME)
        self._dictionary = Dictionary(self._connection)
        self._run: RunInfo | None = None
        self._row = 0
        self._rollup: RollUp | None = None
        self._separated = (0, 0)
        self._longest_ns = 0
        self._redact: Redact = redact
        self._namer = Namer(redact)
        # The epoch ends before the condenser's own limits are reached.
        self._condenser = Condenser(FRAMES_KNOWN, STACKS_KNOWN)
        self._epoch = Epoch(self._connection)
        self._swept: tuple[str] | None = None
        self._limits = Keep()
        self.retention: Retention | None = None
        self._forget_run()

    def _forget_run(self) -> None:
        """Image uids begin anew."""
        self._cgroups: dict[int, CgroupInfo] = {}
        self._forget()

    def _forget(self) -> None:
        """Numbers that were made in a transaction that failed do not exist."""
        self._dictionary = Dictionary(self._connection)
        self._rollup = None
        self._row = 0
        self._namer.forget()
        self._forget_numbers()

    def _forget_numbers(self) -> None:
        """Frames and stacks get new numbers."""
        self._condenser.forget()
        self._epoch.forget()

    # ---- the three calls

    def open_run(self, run: RunInfo) -> None:
        """Windows from now on belong to ``run``; one that is known goes on.

        The same run with another session is that run after a ``reset``: its
        images and names stay.
        """
        # Left unfinished, the last minute is read from its windows.
        with contextlib.suppress(StoreError):
            self.finish()
        self._rollup = None
        self._row = 0
        if self._run is None or self._run.run != run.run:
            self._forget_run()
            self._namer.begin(self._resolver(run) if callable(self._resolver) else self._resolver)
        self._run = run
        with self._writing():
            self._open_row(run)

    def _open_row(self, run: RunInfo) -> None:
        """Find or make the run's row; a window tries again what open_run could not."""
        session = printable(run.session)
        origin = redact_path(run.origin, self._redact)
        self._connection.execute(
            "INSERT INTO sessions (name, started_ns) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (session, run.started_ns),
        )
        self._connection.execute(
            "INSERT INTO runs (session, run, boot, kind, origin, kernel_release,"
            " kernel_build_id, host, cpus, started_ns, events, cpuid)"
            " VALUES ((SELECT id FROM sessions WHERE name = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            (
                *(session, run.run, run.boot, run.kind, printable(origin)),
                *(printable(run.kernel_release), run.kernel_build_id, printable(run.host)),
                *(run.cpus, run.started_ns, msgspec.msgpack.encode(run.events)),
                printable(run.cpuid),
            ),
        )
        self._row, threads, processors, self._longest_ns = self._connection.execute(
            "SELECT runs.id, threads, processors, longest_ns FROM runs"
            " JOIN sessions ON sessions.id = runs.session WHERE run = ? AND name = ?",
            (run.run, session),
        ).fetchone()
        self._separated = (threads, processors)

    def trouble(self) -> dict[str, int]:
        """What names cost: errors of the resolver, and what it counted, by reason."""
        return self._namer.counters()

    def add_images(self, images: Iterable[tuple[ImageInfo, int | None]]) -> None:
        """Announce images of the run, with an open file where there is one.

        The resolver gets the files and closes them. An image that it cannot
        take stays without names.
        """
        if self._run is None:
            raise StoreError(f"{self._directory}: images before a run was opened")
        for info, fd in images:
            self._namer.add(info, fd)

    def add_cgroups(self, cgroups: Iterable[CgroupInfo]) -> None:
        """Announce cgroups of the run; a window's ``sfile_cgroup`` names them by uid."""
        for info in cgroups:
            if info.gone:
                self._cgroups.pop(info.uid, None)
            else:
                self._cgroups[info.uid] = info

    def append(self, window: Window) -> WindowReceipt:
        """Store a window, once: committed when this returns."""
        if self._run is None:
            raise StoreError(f"{self._directory}: a window before a run was opened")
        path = self._directory / FILE_NAME
        if identity_of(path) != self._file:
            # What is written now, nobody would ever read.
            raise StoreGoneError(f"{path}: the store was removed or replaced")
        if window.end_ns < window.start_ns:
            raise StoreError("invalid window: it ends before it starts")
        sfiles = read_sample_files(window)
        check_payloads(window)
        with self._writing():
            self._notice_sweeps()
            if not self._row:
                self._open_row(self._run)
            if self._is_stored(self._run, window.sequence):
                samples = sum(array("Q", window.row_hits))
                return WindowReceipt(self._run.run, window.sequence, False, samples, 0)  # noqa: FBT003
            samples, size = self._store(window, sfiles)
        if self.retention is not None:
            self.retention.added += size
        return WindowReceipt(self._run.run, window.sequence, True, samples, size)  # noqa: FBT003

    def carry_out(self, request: str, what: str, params: dict[str, Any]) -> dict[str, Any]:
        """Do what opd.store.requests knows, once for each ``request``: its result.

        Raises what it raises, and then nothing was done.
        """
        if what in TURNS_OVER:
            # The minute that fills is of the session that ends.
            self.finish()
        with self._writing():
            result = carry_out(Place(self._connection, self._row), request, what, params)
        if what in TURNS_OVER:
            self._row = 0
            self._rollup = None
        return result

    def keep(self, limits: Keep) -> None:
        """Keep so much from now on; ``tidy`` does it."""
        self._limits = limits

    def tidy(self) -> bool:
        """A few milliseconds of retention; True while there is more to do."""
        if self.retention is None:
            if self._limits == Keep():
                return False
            from opd.store.retention import Retention  # start-up has a budget

            self.retention = Retention(
                self._connection, self._directory, lambda: (self._row, self._epoch.id)
            )
        self.retention.keep = self._limits
        try:
            return self.retention.step()
        except sqlite3.Error as error:
            self.retention.give_up()
            path = self._directory / FILE_NAME
            raise StoreError(f"{path}: cannot delete what is old: {error}") from error

    def finish(self) -> None:
        """Bring the roll-ups up to the last window."""
        if self._rollup is not None:
            with self._writing():
                self._rollup.finish()

    def shed(self) -> None:
        """Forget what only saves work; frames and stacks get new numbers."""
        self._dictionary = Dictionary(self._connection)
        self._namer.forget()
        self._forget_numbers()

    def close(self) -> None:
        """Finish, fold the write-ahead log into the file, let the next writer in."""
        try:
            self.finish()
        finally:
            self._connection.close()
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    # ---- one window

    def _notice_sweeps(self) -> None:
        """Forget the numbers of names when some were deleted since the last time."""
        row = self._connection.execute("SELECT value FROM seen WHERE what = ?", (SWEPT,)).fetchone()
        if row != self._swept:
            self._swept = row
            self._dictionary = Dictionary(self._connection)

    def _writing(self) -> _Writing:
        return _Writing(self)

    def _is_stored(self, run: RunInfo, sequence: int) -> bool:
        return (
            # Under all sessions of the run: it may come again after a reset.
            self._connection.execute(
                "SELECT 1 FROM runs JOIN windows ON windows.run = runs.id"
                " WHERE runs.run = ? AND sequence = ?",
                (run.run, sequence),
            ).fetchone()
            is not None
        )

    def _store(self, window: Window, sfiles: SampleFiles) -> tuple[int, int]:
        """Samples and bytes of the window."""
        if self._rollup is None:
            self._rollup = RollUp(self._connection, self._row)
        condensed = self._condense(window)
        paths, comms = self._paths(sfiles), self._comms(window)
        cgroups = self._cgroup_numbers(sfiles)
        groups = condensed.group_columns
        group_block = pack(
            [
                *(sfiles.event, sfiles.mode, _plus_one(sfiles.tgid), _plus_one(sfiles.tid)),
                *(_plus_one(sfiles.cpu), paths, comms, condensed.sfile_unit, cgroups, *groups),
            ]
        )
        row_block = pack(condensed.row_columns)
        size = len(group_block) + len(row_block)
        number = self._add_window(window, condensed, size)
        self._connection.execute(
            "INSERT INTO blocks VALUES (?, ?, ?)", (number, group_block, row_block)
        )
        beside = write_payloads(
            self._connection,
            window,
            number,
            lambda: self._condenser.stacks(window.stacks, self._dictionary.name(UNKNOWN)),
        )
        if beside:
            size += beside
            self._connection.execute("UPDATE windows SET bytes = ? WHERE id = ?", (size, number))
        self._note(window, sfiles)
        units = array("Q", condensed.sfile_unit.to_bytes())
        about = [array("I", sfiles.event), comms, paths, array("I", sfiles.mode), cgroups, units]
        self._rollup.add(window.start_ns, about, groups)
        return condensed.hits, size

    def _condense(self, window: Window) -> Condensed:
        """Number what is new in the window and store it; the rows by number."""
        if self._epoch.is_over:
            self._forget_numbers()
        try:
            new = self._condenser.begin(window)
        except BadWindowError as error:
            raise StoreError(f"invalid window: {error}") from error
        self._epoch.enter(self._dictionary, self._row, window.sequence)
        first = self._dictionary.next_stack()
        names = self._namer.name(self._dictionary, new)
        condensed = self._condenser.end(names, first, self._dictionary.name(UNKNOWN))
        self._dictionary.add_stacks(first, condensed.new_stacks, condensed.stack_columns)
        self._epoch.leave(self._dictionary, frames=len(new), stacks=condensed.new_stacks)
        return condensed

    def _paths(self, sfiles: SampleFiles) -> array[int]:
        """The number of each sample file's image path."""
        numbers = {uid: self._dictionary.name(self._namer.path(uid)) for uid in set(sfiles.image)}
        return array("I", map(numbers.__getitem__, sfiles.image))

    def _cgroup_numbers(self, sfiles: SampleFiles) -> array[int]:
        """The number of each sample file's cgroup, 0 where it is not known."""
        numbers = {
            uid: self._dictionary.cgroup(self._cgroups[uid].path) if uid in self._cgroups else 0
            for uid in set(sfiles.cgroup)
        }
        return array("I", map(numbers.__getitem__, sfiles.cgroup))

    def _comms(self, window: Window) -> array[int]:
        """The number of each sample file's comm."""
        comms = [
            window.sfile_comm[at : at + COMM_BYTES]
            for at in range(0, len(window.sfile_comm), COMM_BYTES)
        ]
        numbers = {
            comm: self._dictionary.name(comm.partition(b"\0")[0].decode("utf-8", "surrogateescape"))
            for comm in set(comms)
        }
        return array("I", map(numbers.__getitem__, comms))

    def _add_window(self, window: Window, condensed: Condensed, size: int) -> int:
        quality = {"samples": condensed.hits, **window.quality, **_kinds(condensed.kind_hits)}
        known = [int(quality.pop(name, 0)) for name in QUALITY_COLUMNS]
        extra: dict[str, object] = {name: value for name, value in quality.items() if value}
        if len(window.event_quality) > 1:
            extra[EVENTS] = _event_quality(window, condensed)
        number = self._connection.execute(
            _ADD_WINDOW,
            (
                *(self._row, window.sequence, window.start_ns, window.end_ns, *known),
                msgspec.msgpack.encode(extra) if extra else None,
                size,
            ),
        ).lastrowid
        return 0 if number is None else number

    def _note(self, window: Window, sfiles: SampleFiles) -> None:
        """Keep with the run what a query wants to know before it reads windows."""
        separated = (
            int(self._separated[0] or max(sfiles.tid, default=-1) >= 0),
            int(self._separated[1] or max(sfiles.cpu, default=-1) >= 0),
        )
        longest_ns = max(self._longest_ns, window.end_ns - window.start_ns)
        if separated != self._separated or longest_ns != self._longest_ns:
            self._connection.execute(
                "UPDATE runs SET threads = ?, processors = ?, longest_ns = ? WHERE id = ?",
                (*separated, longest_ns, self._row),
            )
            self._separated = separated
            self._longest_ns = longest_ns


def _plus_one(column: array[int]) -> array[int]:
    """-1 (not separated) as 0: blocks hold unsigned numbers."""
    return array("Q", [number + 1 & _U32 for number in column])


def _kinds(hits: tuple[int, int, int]) -> dict[str, int]:
    """Samples by the kind of their leaf's name."""
    return {
        "frames_named": hits[KIND_NAMED],
        "frames_ranges": hits[KIND_RANGE],
        "frames_unknown": hits[KIND_UNKNOWN],
        "unnamed": hits[KIND_UNKNOWN],
    }


def _event_quality(window: Window, condensed: Condensed) -> list[list[int]]:
    """EVENT_COLUMNS of each event."""
    rows = []
    for index, counts in enumerate(window.event_quality):
        kinds = condensed.event_kinds[index : index + 1]
        values = {**counts, **_kinds(kinds[0] if kinds else (0, 0, 0))}
        rows.append([values.get(name, 0) for name in EVENT_COLUMNS])
    return rows


class _Writing:
    """A write transaction; on failure what was cached in it is forgotten."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._transaction = transaction(writer._connection)  # noqa: SLF001

    def __enter__(self) -> None:
        try:
            self._transaction.__enter__()
        except sqlite3.Error as failure:
            path = self._writer._directory / FILE_NAME  # noqa: SLF001
            raise StoreError(f"{path}: cannot write: {failure}") from failure

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._transaction.__exit__(kind, error, traceback)
        except sqlite3.Error as failure:  # the commit
            error = failure
        if error is not None:
            self._writer._forget()  # noqa: SLF001
        if isinstance(error, sqlite3.Error):
            path = self._writer._directory / FILE_NAME  # noqa: SLF001
            raise StoreError(f"{path}: cannot write: {error}") from error

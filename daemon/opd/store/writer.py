"""Writes windows: resolves their frames, numbers what is new, stores once.

Python's work is per row and per new stack or frame of a window, never per
sample. What a run has shown before is recognised by its raw bytes.
"""

from __future__ import annotations

import contextlib
import sqlite3
from array import array
from collections import defaultdict
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from opd.errors import StoreError
from opd.sampling.window import ImageInfo
from opd.store.blocks import pack
from opd.store.columns import COMM_BYTES, Columns, group_rows, read_columns
from opd.store.database import WriterLock, open_writer, printable, transaction
from opd.store.dictionary import Cache, Dictionary, Frame
from opd.store.names import KIND_NAMED, KIND_RANGE, KIND_UNKNOWN, UNKNOWN, kind_of
from opd.store.rollup import RollUp, flatten
from opd.store.schema import FILE_NAME, QUALITY_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

    from opd.sampling.window import RunInfo, Window
    from opd.store.names import NameSource, Resolver

# Twice these are kept: see opd.store.dictionary.Cache.
_STACKS_CACHED = 12288
_FRAMES_CACHED = 16384

_ADD_WINDOW = (
    f"INSERT INTO windows (run, sequence, start_ns, end_ns, {', '.join(QUALITY_COLUMNS)}, extra)"  # noqa: S608
    f" VALUES ({', '.join('?' * (5 + len(QUALITY_COLUMNS)))})"
)


class WindowReceipt(msgspec.Struct, frozen=True):
    """What became of a window. ``new`` is False when it was there already."""

    run: str
    sequence: int
    new: bool
    samples: int
    bytes: int


class _Stack(NamedTuple):
    """A stack of this run: its number, its leaf's name and that name's kind."""

    number: int
    symbol: int
    kind: int


# A frame as the sampler gives it: image uid and address.
_RawFrame = tuple[int, int]
# What is known of one: number, number of its name, kind of the name.
_Known = tuple[int, int, int]
# The leaf of a stack without frames. The sampler sends none; it is no harm.
_NO_FRAME = (-1, -1)


class StoreWriter:
    """The one that writes into a session directory.

    ``resolver`` is a NameSource, or makes one from a RunInfo. ``exclusive``
    takes the directory's worker lock; an import beside a worker does not.
    Not thread-safe. Raises StoreError from every method when the store cannot
    be written; a window that raised is not stored, and the next one is tried
    afresh.
    """

    def __init__(self, directory: Path, resolver: Resolver, *, exclusive: bool = False) -> None:
        self._lock = WriterLock(directory) if exclusive else None
        self._directory = directory
        self._resolver = resolver
        try:
            self._connection = open_writer(directory)
        except StoreError:
            if self._lock:
                self._lock.release()
            raise
        self._dictionary = Dictionary(self._connection)
        self._run: RunInfo | None = None
        self._row = 0
        self._rollup: RollUp | None = None
        self._separated = (0, 0)
        self._longest_ns = 0
        self.resolver_errors: dict[str, int] = {}
        self._forget_run()

    def _forget_run(self) -> None:
        """Image uids begin anew."""
        self._images: dict[int, ImageInfo] = {}
        self._forget()

    def _forget(self) -> None:
        """Numbers that were made in a transaction that failed do not exist."""
        self._dictionary = Dictionary(self._connection)
        self._rollup = None
        self._row = 0
        self._identities: dict[int, bytes] = {}
        self._stacks: Cache[bytes, _Stack] = Cache(_STACKS_CACHED)
        self._leaves: Cache[_RawFrame, _Known] = Cache(_FRAMES_CACHED)
        self._callers: Cache[_RawFrame, _Known] = Cache(_FRAMES_CACHED)

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
            self._names: NameSource = (
                self._resolver(run) if callable(self._resolver) else self._resolver
            )
        self._run = run
        with self._writing():
            self._open_row(run)

    def _open_row(self, run: RunInfo) -> None:
        """Find or make the run's row; a window tries again what open_run could not."""
        session = printable(run.session)
        self._connection.execute(
            "INSERT INTO sessions (name, started_ns) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (session, run.started_ns),
        )
        self._connection.execute(
            "INSERT INTO runs (session, run, boot, kind, origin, kernel_release,"
            " kernel_build_id, host, cpus, started_ns, events)"
            " VALUES ((SELECT id FROM sessions WHERE name = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            (
                *(session, run.run, run.boot, run.kind, printable(run.origin)),
                *(run.kernel_release, run.kernel_build_id, printable(run.host)),
                *(run.cpus, run.started_ns, msgspec.msgpack.encode(run.events)),
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
        counted = getattr(self._names, "counters", {}) if self._run is not None else {}
        return {**{f"resolver_{kind}": n for kind, n in self.resolver_errors.items()}, **counted}

    def add_images(self, images: Iterable[tuple[ImageInfo, int | None]]) -> None:
        """Announce images of the run, with an open file where there is one.

        The resolver gets the files and closes them. An image that it cannot
        take stays without names.
        """
        if self._run is None:
            raise StoreError(f"{self._directory}: images before a run was opened")
        for info, fd in images:
            self._images[info.uid] = info
            try:
                self._names.add_image(info, fd)
            except Exception as error:  # noqa: BLE001 - it read a file that anybody wrote
                self._blame(error)

    def append(self, window: Window) -> WindowReceipt:
        """Store a window, once: committed when this returns."""
        if self._run is None:
            raise StoreError(f"{self._directory}: a window before a run was opened")
        columns = read_columns(window)
        samples = sum(columns.row_hits)
        with self._writing():
            if not self._row:
                self._open_row(self._run)
            if self._is_stored(window.sequence):
                return WindowReceipt(self._run.run, window.sequence, False, samples, 0)  # noqa: FBT003
            size = self._store(window, columns, samples)
        return WindowReceipt(self._run.run, window.sequence, True, samples, size)  # noqa: FBT003

    def finish(self) -> None:
        """Bring the roll-ups up to the last window."""
        if self._rollup is not None:
            with self._writing():
                self._rollup.finish()

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

    def _writing(self) -> _Writing:
        return _Writing(self)

    def _is_stored(self, sequence: int) -> bool:
        return (
            self._connection.execute(
                "SELECT 1 FROM windows WHERE run = ? AND sequence = ?", (self._row, sequence)
            ).fetchone()
            is not None
        )

    def _store(self, window: Window, columns: Columns, samples: int) -> int:
        if self._rollup is None:
            self._rollup = RollUp(self._connection, self._row)
        stacks = self._stacks_of(window, columns)
        groups = group_rows(
            columns, [stack.symbol for stack in stacks], [stack.number for stack in stacks]
        )
        about = self._sfile_columns(window, columns, groups.units)
        group_columns = [*about, groups.sfile, groups.symbol, groups.hits, groups.excess]
        group_block = pack(group_columns)
        row_block = pack([groups.row_sfile, groups.row_step, groups.row_hits, groups.row_excess])
        number = self._add_window(window, samples, self._kinds(columns, stacks))
        self._connection.execute(
            "INSERT INTO blocks VALUES (?, ?, ?)", (number, group_block, row_block)
        )
        self._note(window, columns)
        self._rollup.add(window.start_ns, flatten(group_columns))
        return len(group_block) + len(row_block)

    def _sfile_columns(
        self, window: Window, columns: Columns, units: dict[int, int]
    ) -> list[list[int]]:
        """The columns of the sample files as the block keeps them."""
        comms = [
            window.sfile_comm[at : at + COMM_BYTES].partition(b"\0")[0]
            for at in range(0, len(window.sfile_comm), COMM_BYTES)
        ]
        name = self._dictionary.name
        paths = {
            uid: name(self._images[uid].path if uid in self._images else UNKNOWN)
            for uid in set(columns.sfile_image)
        }
        return [
            list(columns.sfile_event),
            list(columns.sfile_mode),
            [tgid + 1 for tgid in columns.sfile_tgid],
            [tid + 1 for tid in columns.sfile_tid],
            [cpu + 1 for cpu in columns.sfile_cpu],
            [paths[uid] for uid in columns.sfile_image],
            [name(comm.decode("utf-8", "surrogateescape")) for comm in comms],
            [units.get(event, 0) for event in columns.sfile_event],
        ]

    @staticmethod
    def _kinds(columns: Columns, stacks: list[_Stack]) -> dict[str, int]:
        """Samples by the kind of their leaf's name."""
        sums = [0, 0, 0]
        kinds = [stack.kind for stack in stacks]
        for stack, hits in zip(columns.row_stack, columns.row_hits, strict=True):
            sums[kinds[stack]] += hits
        return {
            "frames_named": sums[KIND_NAMED],
            "frames_ranges": sums[KIND_RANGE],
            "frames_unknown": sums[KIND_UNKNOWN],
            "unnamed": sums[KIND_UNKNOWN],
        }

    def _add_window(self, window: Window, samples: int, kinds: dict[str, int]) -> int:
        quality = {"samples": samples, **window.quality, **kinds}
        known = [int(quality.pop(name, 0)) for name in QUALITY_COLUMNS]
        extra = {name: value for name, value in quality.items() if value}
        number = self._connection.execute(
            _ADD_WINDOW,
            (
                *(self._row, window.sequence, window.start_ns, window.end_ns, *known),
                msgspec.msgpack.encode(extra) if extra else None,
            ),
        ).lastrowid
        return 0 if number is None else number

    def _note(self, window: Window, columns: Columns) -> None:
        """Keep with the run what a query wants to know before it reads windows."""
        separated = (
            int(self._separated[0] or max(columns.sfile_tid, default=-1) >= 0),
            int(self._separated[1] or max(columns.sfile_cpu, default=-1) >= 0),
        )
        longest_ns = max(self._longest_ns, window.end_ns - window.start_ns)
        if separated != self._separated or longest_ns != self._longest_ns:
            self._connection.execute(
                "UPDATE runs SET threads = ?, processors = ?, longest_ns = ? WHERE id = ?",
                (*separated, longest_ns, self._row),
            )
            self._separated = separated
            self._longest_ns = longest_ns

    # ---- stacks and frames

    def _stacks_of(self, window: Window, columns: Columns) -> list[_Stack]:
        """Every stack of the window, new ones stored."""
        flags, images, addresses = window.stack_flags, window.frame_image, window.frame_address
        start = columns.stack_start
        known = self._stacks
        stacks: list[_Stack | None] = []
        new: dict[bytes, list[int]] = defaultdict(list)
        for index in range(window.stacks):
            a, b = start[index], start[index + 1]
            key = flags[index : index + 1] + images[4 * a : 4 * b] + addresses[8 * a : 8 * b]
            stack = known.get(key)
            stacks.append(stack)
            if stack is None:
                new[key].append(index)
        if new:
            firsts = [indices[0] for indices in new.values()]
            made = self._make_stacks(window, columns, firsts)
            for (key, indices), stack in zip(new.items(), made, strict=True):
                known[key] = stack
                for index in indices:
                    stacks[index] = stack
        return stacks  # type: ignore[return-value]  # the loop above filled it

    def _make_stacks(self, window: Window, columns: Columns, new: list[int]) -> list[_Stack]:
        """Name and store the stacks at the indices ``new``."""
        images, addresses = columns.frame_image, columns.frame_address
        start = columns.stack_start
        leaves: list[_RawFrame] = []
        callers: list[_RawFrame] = []
        ends = [0]
        for index in new:
            a, b = start[index], start[index + 1]
            leaves.append((images[a], addresses[a]) if a < b else _NO_FRAME)
            callers += zip(images[a + 1 : b], addresses[a + 1 : b], strict=True)
            ends.append(len(callers))
        leaf_of = self._frames_of(leaves, self._leaves, caller=False)
        caller_of = [known[0] for known in self._frames_of(callers, self._callers, caller=True)]
        stacks = []
        for index, (number, _name, _kind), a, b in zip(new, leaf_of, ends, ends[1:], strict=False):
            frames = caller_of[a:b]
            frames.reverse()
            if number:
                frames.append(number)
            frames.append(-1 - window.stack_flags[index])
            stacks.append(tuple(frames))
        stored = self._dictionary.add_stacks(stacks)
        return [
            _Stack(stored[stack], name, kind)
            for stack, (_number, name, kind) in zip(stacks, leaf_of, strict=True)
        ]

    def _frames_of(
        self, raw: list[_RawFrame], cache: Cache[_RawFrame, _Known], *, caller: bool
    ) -> list[_Known]:
        """What is known of each frame; new ones are named and stored."""
        found = cache.get_all(raw)
        missing = {key for key, known in zip(raw, found, strict=True) if known is None}
        made: dict[_RawFrame, _Known] = {}
        if _NO_FRAME in missing:
            missing.remove(_NO_FRAME)
            made[_NO_FRAME] = (0, self._dictionary.name(UNKNOWN), KIND_UNKNOWN)
        by_image: dict[int, list[int]] = defaultdict(list)
        for uid, offset in missing:
            by_image[uid].append(offset)
        frames: dict[_RawFrame, Frame] = {}
        for uid, offsets in by_image.items():
            self._name_frames(uid, array("Q", sorted(offsets)), frames, caller=caller)
        numbers = self._dictionary.add_frames(list(frames.values()))
        for key, frame in frames.items():
            made[key] = (numbers[frame], frame[3], frame[5])
        cache.update(made)
        return [known or made[key] for key, known in zip(raw, found, strict=True)]

    def _name_frames(
        self, uid: int, offsets: array[int], frames: dict[_RawFrame, Frame], *, caller: bool
    ) -> None:
        """Add the frames of one image with address and name, as the resolver says."""
        info = self._images.get(uid) or ImageInfo(uid=uid, kind="unknown", path=UNKNOWN)
        image = self._dictionary.image(info, self._identity(uid))
        try:
            addresses, names, raws, kinds = self._ask(uid, offsets, caller=caller)
        except Exception as error:  # noqa: BLE001 - it read a file that anybody wrote
            self._blame(error)
            count = len(offsets)
            addresses = offsets
            names = [self._dictionary.name(UNKNOWN)] * count
            raws, kinds = [0] * count, [KIND_UNKNOWN] * count
        about = zip(repeat(image), addresses, repeat(int(caller)), names, raws, kinds, strict=False)
        frames.update(zip(zip(repeat(uid), offsets, strict=False), about, strict=True))

    def _ask(
        self, uid: int, offsets: array[int], *, caller: bool
    ) -> tuple[array[int], list[int], list[int], list[int]]:
        """ELF addresses, numbers of names and raw names, kinds."""
        if uid not in self._images:
            raise StoreError(f"image {uid} was never announced")
        addresses = self._names.elf_addresses(uid, offsets)
        answers = self._names.names(uid, addresses, caller=caller)
        if not len(answers) == len(addresses) == len(offsets):
            raise StoreError(f"image {uid}: the resolver answered another number of frames")
        names = self._dictionary.names([answer.text for answer in answers])
        raws = self._dictionary.names([answer.raw for answer in answers])
        return (
            addresses,
            names,
            [0 if raw == name else raw for raw, name in zip(raws, names, strict=True)],
            [kind_of(answer.kind) for answer in answers],
        )

    def _identity(self, uid: int) -> bytes:
        identity = self._identities.get(uid)
        if identity is None:
            try:
                identity = bytes(self._names.image_identity(uid))
            except Exception as error:  # noqa: BLE001 - it read a file that anybody wrote
                self._blame(error)
                identity = bytes(16)
            self._identities[uid] = identity
        return identity

    def _blame(self, error: Exception) -> None:
        """Count what the resolver could not do, by kind of error."""
        kind = type(error).__name__
        self.resolver_errors[kind] = self.resolver_errors.get(kind, 0) + 1


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

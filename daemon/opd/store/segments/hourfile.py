"""One segment file: filled, written, read back, put in its place."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from opd import __version__
from opd.errors import OperationFailedError, StoreError
from opd.store.database import snapshot
from opd.store.schema import QUALITY_COLUMNS, VERSION
from opd.store.segments import duck
from opd.store.segments.files import SPILL_NAME, segment_name, unfinished_name
from opd.store.segments.footer import (
    ABOUT,
    IMAGES,
    SCHEMA,
    WINDOWS,
    About,
    ranges_of,
    read_about,
    read_columns,
)
from opd.store.segments.plan import quality_columns
from opd.store.segments.samples import StackNumbers, Words, read_chunk

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from opd.store.segments.plan import Hour
    from opd.store.segments.samples import Window

# What DuckDB may use of the limit: numpy's columns need the rest.
_SHARE = 0.25
_SPILL_MIB = 2048
# Windows read at once, by the bytes of their blocks: three or four make a row, and a
# row takes some 300 bytes on its way.
_CHUNK_BYTES = 1 << 17
_ROW_GROUP = 1 << 17
# 9 against 3: a tenth smaller for a tenth of a second an hour.
_LEVEL = 9
_ASKED_AT_ONCE = 500

# Version 1 of Parquet's encodings: every engine reads them.
_COPY = """
COPY ({rows}) TO '{path}' (
  FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL {level}, PARQUET_VERSION v1,
  ROW_GROUP_SIZE {size}, KV_METADATA {{{texts}}}
)
"""

_IMAGE_COLUMNS = ("path", "build_id")
_WINDOW_COLUMNS = ("sequence", "start_ns", "end_ns", *QUALITY_COLUMNS)

# Fields of About that are sums over chunks.
_COUNTED = ("rows", "samples", "weight", "stacks", "damaged", "missing_stacks")

Columns = dict[str, list[Any]]


class HourFile:
    """The windows of an hour that are in no file, and what its file had before."""

    def __init__(
        self, store: sqlite3.Connection, folder: Path, hour: Hour, *, memory_mib: int
    ) -> None:
        self._store = store
        self._folder = folder
        self._hour = hour
        self._path = self._place()
        self._part = folder / unfinished_name(self._path.name)
        self._duck = duck.open_memory(
            folder / SPILL_NAME, memory_mib=int(memory_mib * _SHARE), disk_mib=_SPILL_MIB
        )

    def _place(self) -> Path:
        """The file's path: that of before, or one that nobody has.

        Names of sessions are made safe, and sessions renamed, so two may meet.
        """
        hour = self._hour
        if hour.before is not None:
            return hour.before.segment.path
        session, turn = hour.run.session, 1
        while True:
            path = self._folder / segment_name(session, hour.run.run, hour.hour)
            if not path.exists() or not _holds_another(path, hour):
                return path
            turn += 1
            session = f"{hour.run.session[:80]}~{turn}"

    def write(self) -> dict[str, Any]:
        """Write it; what it is now. OperationFailedError says why it could not be."""
        try:
            with snapshot(self._store):
                texts, words = self._fill()
            with duck.registered(self._duck, words.tables()):
                self._duck.execute(self._copy(texts))
            about = self._check(texts[ABOUT])
            _sync(self._part)
            self._part.replace(self._path)
            _sync(self._folder)
        except duck.load().Error as error:
            raise OperationFailedError(f"{self._path}: cannot be written: {error}") from error
        finally:
            self._duck.close()
            self._part.unlink(missing_ok=True)
        return {
            "segment": self._path.name,
            "windows": len(self._hour.windows),
            "rows": about.rows,
            "samples": about.samples,
            "bytes": self._path.stat().st_size,
            "rewritten": self._hour.before is not None,
        }

    def _copy(self, texts: dict[str, str]) -> str:
        """The statement that writes what was there before and what is new."""
        run, before = self._hour.run, self._hour.before
        rows = duck.named_rows("coded", _quoted(run.session), _quoted(run.run))
        if before is not None:
            path = _quoted(str(before.segment.path))
            rows = f"SELECT * FROM read_parquet({path}) UNION ALL BY NAME {rows}"  # noqa: S608
        return _COPY.format(
            rows=rows,
            path=str(self._part).replace("'", "''"),
            level=_LEVEL,
            size=_ROW_GROUP,
            texts=", ".join(f"'{name}': {_quoted(text)}" for name, text in texts.items()),
        )

    # ---- filling

    def _fill(self) -> tuple[dict[str, str], Words]:
        """All that is new into the table ``coded``; the file's texts, and what the rows' are."""
        duck.create_coded(self._duck)
        windows: Columns = {name: [] for name in _WINDOW_COLUMNS}
        images: Columns = {name: [] for name in _IMAGE_COLUMNS}
        counts = Counter[str]()
        stack_numbers, words = StackNumbers(), Words(self._hour.run)
        before = self._hour.before
        if before is not None:
            stack_numbers = StackNumbers(before.about.stacks)
            for name in _COUNTED:
                counts[name] = getattr(before.about, name)
            windows = read_columns(before.segment.path, WINDOWS)
            images = read_columns(before.segment.path, IMAGES)
        used: set[int] = set()
        for some in self._chunks():
            chunk = read_chunk(self._store, self._hour.run, some, stack_numbers, words)
            duck.insert_coded(self._duck, chunk)
            counts["rows"] += len(chunk.rows["stack"])
            counts["samples"] += chunk.samples
            counts["weight"] += chunk.weight
            counts["damaged"] += chunk.damaged
            counts["missing_stacks"] += chunk.missing
            used.update(chunk.images.tolist())
        counts["stacks"] = stack_numbers.next
        self._add_windows(windows)
        self._add_images(images, used)
        about = self._about(windows, {name: counts[name] for name in _COUNTED})
        texts = {
            ABOUT: msgspec.json.encode(about).decode(),
            WINDOWS: json.dumps(_shortened(windows), separators=(",", ":")),
            IMAGES: json.dumps(images, separators=(",", ":")),
        }
        return texts, words

    def _chunks(self) -> Iterator[list[Window]]:
        """The new windows, a bounded number of bytes at a time."""
        by_id = {window.id: window for window in self._hour.windows}
        some: list[Window] = []
        size = 0
        for number, length in self._sizes(list(by_id)):
            if some and size + length > _CHUNK_BYTES:
                yield some
                some, size = [], 0
            some.append(by_id[number])
            size += length
        if some:
            yield some

    def _sizes(self, numbers: Sequence[int]) -> Iterable[tuple[int, int]]:
        for some, marks in _asked(numbers):
            yield from self._store.execute(
                "SELECT window, length(groups) + length(rows) FROM blocks"  # noqa: S608
                f" WHERE window IN ({marks}) ORDER BY window",
                some,
            ).fetchall()

    def _add_windows(self, columns: Columns) -> None:
        for name in _WINDOW_COLUMNS:
            columns.setdefault(name, [0] * len(columns["sequence"]))
        for some, marks in _asked([window.id for window in self._hour.windows]):
            rows = self._store.execute(
                f"SELECT sequence, start_ns, end_ns, {quality_columns(self._store)}"  # noqa: S608
                f" FROM windows WHERE id IN ({marks})"
                " ORDER BY id",
                some,
            )
            for row in rows:
                for name, value in zip(_WINDOW_COLUMNS, row, strict=True):
                    columns[name].append(value)

    def _add_images(self, columns: Columns, used: set[int]) -> None:
        """Those that have a build-id: by it a file's names can be found anywhere."""
        have = set(zip(columns["path"], columns["build_id"], strict=True))
        for some, marks in _asked(sorted(used)):
            rows = self._store.execute(
                "SELECT text, lower(hex(build_id)) FROM images JOIN names"  # noqa: S608
                f" ON names.id = images.path WHERE build_id <> x'' AND images.id IN ({marks})",
                some,
            )
            for path, build_id in rows:
                if (path, build_id) not in have:
                    columns["path"].append(path)
                    columns["build_id"].append(build_id)

    def _about(self, windows: Columns, counts: dict[str, int]) -> About:
        run = self._hour.run
        boot, kind, origin, release, build_id, host, cpus, started, events = self._store.execute(
            "SELECT boot, kind, origin, kernel_release, kernel_build_id, host, cpus, started_ns,"
            " events FROM runs WHERE id = ?",
            (run.id,),
        ).fetchone()
        return About(
            schema=SCHEMA,
            opd=__version__,
            store_schema=VERSION,
            hour=self._hour.hour,
            run=run.run,
            session=run.session,
            session_started_ns=self._hour.session_started_ns,
            boot=boot,
            kind=kind,
            origin=origin,
            host=host,
            kernel_release=release,
            kernel_build_id=build_id,
            cpus=cpus,
            started_ns=started,
            events=msgspec.msgpack.decode(events),
            windows=ranges_of(sorted(windows["sequence"])),
            quality={name: sum(windows[name]) for name in QUALITY_COLUMNS},
            **counts,
        )

    # ---- checking

    def _check(self, text: str) -> About:
        """Read back what was written; OperationFailedError when it is something else."""
        about = read_about(self._part)
        read = self._duck.execute(
            "SELECT count(*), coalesce(sum(samples), 0), coalesce(sum(weight), 0), count(frames),"
            " count_if(len(frames) > 0 AND frames[1].symbol <> symbol) FROM read_parquet(?)",
            [str(self._part)],
        ).fetchone()
        wanted = (about.rows, about.samples, about.weight)
        # A stack that could not be read has no frames.
        if read is None or (
            msgspec.json.encode(about).decode() != text
            or tuple(map(int, read[:3])) != wanted
            or not about.stacks - about.missing_stacks <= read[3] <= about.stacks
            or read[4]
        ):
            raise OperationFailedError(
                f"{self._path}: what was written reads otherwise: {read}, not {wanted}"
            )
        return about


def _holds_another(path: Path, hour: Hour) -> bool:
    """Whether the file is a good segment of another run or session."""
    try:
        about = read_about(path)
    except StoreError:
        return False  # damaged: it is replaced
    mine = (hour.run.run, hour.session_started_ns, hour.hour)
    return (about.run, about.session_started_ns, about.hour) != mine


def _shortened(windows: Columns) -> Columns:
    """Without the counters that are 0 in every window."""
    return {name: column for name, column in windows.items() if any(column) or name == "sequence"}


def _asked(numbers: Sequence[int]) -> Iterator[tuple[Sequence[int], str]]:
    """The numbers a few hundred at a time, and as many question marks."""
    for at in range(0, len(numbers), _ASKED_AT_ONCE):
        some = numbers[at : at + _ASKED_AT_ONCE]
        yield some, ",".join("?" * len(some))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _sync(path: Path) -> None:
    """Have the disk hold what a file or folder is now."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

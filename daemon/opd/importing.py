"""Import of a perf.data file into a store: the same pipeline as live, nothing dropped.

Runs in the client (``opctl --session-dir DIR import FILE``) or in a child of
the daemon (``python -m opd.importing``), never in the daemon itself.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from msgspec import structs

from opd.errors import OpdError, RecordFileError, UsageError
from opd.importing_events import IbsTotals, bare_notes, event_infos, ibs_pmus
from opd.process import die_with, name_process
from opd.sampling.ibs import ibs_quality
from opd.sampling.live import cgroup_infos, image_info, make_window
from opd.sampling.window import LABELS, MODE_KERNEL, RunInfo
from opd.store.requests import LIVE_SESSION
from opd.store.writer import StoreWriter
from opd.symbols.resolver import Resolver
from opd_native.importer import FOREVER, Importer
from opd_native.perfdata import PerfDataError, PerfDataFile

if TYPE_CHECKING:
    from opd.redaction import Redact
    from opd.sampling.window import EventInfo

WINDOW_NS = 10_000_000_000
_HASH_CHUNK = 1 << 20
_CPUS_MOST = 8192  # what Linux can be built for; a file may say anything
_LAST_NS = 1 << 62

Progress = Callable[[int, int], None]


def import_perf_data(
    fd: int,
    directory: str | os.PathLike[str],
    *,
    name: str = "",
    origin: str = "",
    progress: Progress | None = None,
    redact: Redact = "none",
) -> dict[str, Any]:
    """Import the recording in the regular file ``fd`` as a session of its own.

    ``name`` is the session's (default: the file's name from ``origin``).
    Returns ``{"session", "run", "events", "samples", "lost", "windows",
    "complete", "already", "detail"}``; ``complete`` is False when the file
    ends early or is corrupt, and ``detail`` then says how far it got. The
    same bytes under the same name are imported once. ``progress`` is told
    (bytes done, bytes in all). Raises RecordFileError when nothing can be
    read as a recording, StoreError.
    """
    session = name or Path(origin).name or "import"
    if session == LIVE_SESSION:
        raise UsageError(
            f"{LIVE_SESSION!r} is the name of the running session", hint="import it as --name NAME"
        )
    what = origin or "the file"
    try:
        data = PerfDataFile(fd)
    except PerfDataError as error:
        raise RecordFileError(
            f"{what}: {error.reason}", hint="expected a perf.data file as written by perf record"
        ) from error
    with data, Importer(data) as importer:
        known = _Known.of(fd, data, importer)
        for build_id_path, build_id in known.build_ids:
            importer.add_build_id(build_id_path, build_id)
        resolver = Resolver(known.run)
        writer = StoreWriter(Path(directory), resolver, redact=redact)
        try:
            return _Import(data, importer, writer, resolver, known, progress=progress).run(
                session=session, run=_identity_of(fd, session), origin=origin
            )
        except (OSError, OverflowError, ValueError) as error:
            raise RecordFileError(f"{what}: cannot be imported: {error}") from error
        finally:
            writer.close()


class _Known(NamedTuple):
    """What must be known of a recording before its first record is attributed."""

    run: RunInfo
    build_ids: list[tuple[str, str]]
    last_time: int  # of a sample, ns of the records' clock, 0 when there are none
    mtime_ns: int
    size: int

    @classmethod
    def of(cls, fd: int, data: PerfDataFile, importer: Importer) -> Self:
        """Read it from the header, or where that does not say, in a pass ahead.

        In the pipe layout facts stand between and behind the records; with
        build-ids in the mappings, the kernel's is in a record.
        """
        status = os.fstat(fd)
        facts, kernel, last = data, _kernel_build_id(data), 0
        if data.sample_time and not data.pipe and kernel:
            last = data.sample_time[1]
            return cls(_run_of(facts, kernel, []), [], last, status.st_mtime_ns, status.st_size)
        with PerfDataFile(fd) as ahead, Importer(ahead) as reader:
            reader.feed()
            importer.learn(ahead)
            last = reader.take().counts["last_time"]
            kernel = _kernel_build_id(ahead) or reader.kernel_build_id()
            build_ids = [(entry.path, entry.build_id) for entry in ahead.build_ids]
            run = _run_of(ahead, kernel, event_infos(ahead.attrs, importer))
        return cls(run, build_ids, last, status.st_mtime_ns, status.st_size)


def _run_of(data: PerfDataFile, kernel_build_id: str, events: list[EventInfo]) -> RunInfo:
    return RunInfo(
        run="",
        boot="",
        kind="import",
        session="",
        origin="",
        kernel_release=data.os_release,
        kernel_build_id=kernel_build_id,
        host=data.hostname,
        cpus=data.cpus_online,
        started_ns=0,
        cpuid=data.cpuid,
        events=events,
    )


def _identity_of(fd: int, session: str) -> str:
    """Give the run's id: the same bytes under the same name are the same run."""
    digest = hashlib.sha256(session.encode(errors="surrogateescape") + b"\0")
    at = 0
    while chunk := os.pread(fd, _HASH_CHUNK, at):
        digest.update(chunk)
        at += len(chunk)
    return digest.hexdigest()[:32]


def _kernel_build_id(data: PerfDataFile) -> str:
    for entry in data.build_ids:
        if entry.path.startswith("[kernel.kallsyms]"):
            return entry.build_id
    return ""


def _in_range(time_ns: int) -> int:
    """Give a time that a store can hold: corrupt ones are kept at the nearest."""
    return min(max(time_ns, 0), _LAST_NS)


class _Import:
    """One import: feeds windows until the recording ends."""

    def __init__(
        self,
        data: PerfDataFile,
        importer: Importer,
        writer: StoreWriter,
        resolver: Resolver,
        known: _Known,
        *,
        progress: Progress | None,
    ) -> None:
        self._data = data
        self._importer = importer
        self._writer = writer
        self._resolver = resolver
        self._progress = progress
        self._known = known
        self._size = known.size
        self._stats = data.stats()  # as of the last window
        self._saw_kernel = False
        self._sequence = 0
        self._samples = 0
        self._ibs = IbsTotals()

    def run(self, *, session: str, run: str, origin: str) -> dict[str, Any]:
        # Attrs of the pipe layout come with the first records.
        first = self._importer.feed(0)
        offset = self._offset()
        began = _in_range(offset + (first or 0))
        info = structs.replace(
            self._known.run,
            run=run,
            session=session,
            origin=origin,
            started_ns=began,
            events=self._known.run.events or event_infos(self._data.attrs, self._importer),
        )
        self._writer.open_run(info)
        already = False
        start = first
        while start is not None:
            end = min((start // WINDOW_NS + 1) * WINDOW_NS, FOREVER)
            following = self._importer.feed(end)
            already = not self._store(offset + start, offset + end) or already
            start = following
        if self._sequence == 0:
            self._store(began, began)
        self._writer.finish()
        return self._summary(session, run, info, already=already)

    def _offset(self) -> int:
        """Give wall clock minus the records' clock, in ns."""
        clock = self._data.clock_data
        if clock is not None:
            return clock.wall_ns - clock.clock_ns
        # The file was last written when its last sample had been taken.
        return self._known.mtime_ns - self._known.last_time

    def _store(self, start_ns: int, end_ns: int) -> bool:
        native = self._importer.take()
        if text := self._importer.kernel_text():
            self._resolver.set_kernel_text(text)
        images = self._importer.take_images()
        while images:
            self._writer.add_images([(image_info(image), None) for image in images])
            images = self._importer.take_images()
        while cgroups := self._importer.take_cgroups():
            self._writer.add_cgroups(cgroup_infos(cgroups))
        stats, before = self._data.stats(), self._stats
        self._stats = stats
        lost = stats.lost + stats.lost_samples - before.lost - before.lost_samples
        self._saw_kernel = self._saw_kernel or MODE_KERNEL in native.columns["sfile_mode"]
        counts = native.counts
        names = (
            "samples",
            "idle",
            "hash_full",
            "no_mapping",
            "stack_truncated",
            "unwind_failed",
            "inexact_ip",
            *LABELS,
        )
        quality = {
            **{key: counts[key] for key in names},
            "ring_full": lost,
            "late": stats.late - before.late,
            "bad_records": stats.skipped_records - before.skipped_records,
            # Late samples and corrupt times lie outside: a window is no longer than that.
            "elapsed_ns": min(max(counts["last_time"] - counts["first_time"], 0), WINDOW_NS)
            * min(max(self._data.cpus_online, 1), _CPUS_MOST),
        }
        quality |= ibs_quality(native.ibs_counts, ibs_pmus(self._importer))
        self._ibs.update(native.ibs_counts)
        # What is derived of a sample is no further sample.
        self._samples += sum(
            one["samples"]
            for one, event in zip(native.event_counts, self._importer.events(), strict=True)
            if event.derived is None
        )
        window = make_window(
            native, self._sequence, _in_range(start_ns), _in_range(end_ns), quality
        )
        # Whose samples a LOST record counts is not told apart here.
        window.event_quality = [{**one, "ring_full": lost} for one in native.event_counts]
        self._sequence += 1
        if self._progress is not None:
            self._progress(min(stats.bytes, self._size), self._size)
        return self._writer.append(window).new

    def _summary(self, session: str, run: str, info: RunInfo, *, already: bool) -> dict[str, Any]:
        stats = self._data.stats()
        detail = ""
        if stats.end_error:
            detail = (
                f"the recording ends at byte {stats.end_offset} of {self._size}: "
                f"{stats.end_reason}; kept {self._samples} samples before it"
            )
        elif self._data.interrupted:
            detail = "perf record was interrupted; everything up to there was kept"
        if stats.skipped_records:
            detail += f"{'; ' if detail else ''}{stats.skipped_records} corrupt records skipped"
        if self._saw_kernel and not info.kernel_build_id:
            detail += f"{'; ' if detail else ''}no build-id of the kernel: its names are left out"
        for note in (*self._ibs.notes(), *bare_notes(self._data.attrs, self._importer)):
            detail += f"{'; ' if detail else ''}{note}"
        if stats.unknown_id:
            detail += f"{'; ' if detail else ''}{stats.unknown_id} samples of no known event"
        return {
            "session": session,
            "run": run,
            "events": [event.name for event in info.events],
            "samples": self._samples,
            "lost": stats.lost + stats.lost_samples,
            "windows": self._sequence,
            "complete": not (stats.end_error or stats.skipped_records or stats.unknown_id),
            "already": already,
            "detail": detail,
        }


def main() -> int:
    """Import for the daemon: the file as an inherited fd, the result as JSON on stdout."""
    parser = argparse.ArgumentParser(prog="opd.importing")
    parser.add_argument("--directory", required=True)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--name", default="")
    parser.add_argument("--origin", default="")
    parser.add_argument("--parent", type=int, default=0)
    parser.add_argument("--redact", default="none")
    options = parser.parse_args()
    die_with(options.parent)
    name_process("opd-import")
    try:
        result: dict[str, Any] = import_perf_data(
            options.fd,
            options.directory,
            name=options.name,
            origin=options.origin,
            redact=options.redact,
        )
    except OpdError as error:
        result = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    json.dump(result, sys.stdout)
    return 1 if "error" in result else 0


if __name__ == "__main__":
    sys.exit(main())

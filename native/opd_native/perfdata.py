"""Recordings of ``perf record``: what they say about themselves, and how reading them went.

Records themselves never pass through Python: C code walks them by ``PerfDataFile.pointer`` and
``opd_perfdata_next()`` (opd/perfdata.h). Strings from the file may hold any bytes; they come as
``str`` with ``surrogateescape``.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from opd_native._core import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BuildId",
    "ClockData",
    "EventAttr",
    "PerfDataError",
    "PerfDataFile",
    "PerfDataFormatError",
    "ReadStats",
]

# Names of struct perf_event_header.type as `perf report --stats` prints them.
RECORD_NAMES: Mapping[int, str] = {
    1: "MMAP",
    2: "LOST",
    3: "COMM",
    4: "EXIT",
    5: "THROTTLE",
    6: "UNTHROTTLE",
    7: "FORK",
    8: "READ",
    9: "SAMPLE",
    10: "MMAP2",
    11: "AUX",
    12: "ITRACE_START",
    13: "LOST_SAMPLES",
    14: "SWITCH",
    15: "SWITCH_CPU_WIDE",
    16: "NAMESPACES",
    17: "KSYMBOL",
    18: "BPF_EVENT",
    19: "CGROUP",
    20: "TEXT_POKE",
    21: "AUX_OUTPUT_HW_ID",
    64: "ATTR",
    65: "EVENT_TYPE",
    66: "TRACING_DATA",
    67: "BUILD_ID",
    68: "FINISHED_ROUND",
    69: "ID_INDEX",
    70: "AUXTRACE_INFO",
    71: "AUXTRACE",
    72: "AUXTRACE_ERROR",
    73: "THREAD_MAP",
    74: "CPU_MAP",
    75: "STAT_CONFIG",
    76: "STAT",
    77: "STAT_ROUND",
    78: "EVENT_UPDATE",
    79: "TIME_CONV",
    80: "FEATURE",
    81: "COMPRESSED",
    82: "FINISHED_INIT",
    83: "COMPRESSED2",
}


# What -errno of opening says about the system rather than about the bytes.
_SYSTEM_ERRORS = frozenset({errno.EIO, errno.EBADF, errno.ENOMEM, errno.EACCES, errno.EPERM})


class PerfDataError(Exception):
    """A recording could not be opened; ``str()`` is the reason, ``errno`` the positive number."""

    def __init__(self, reason: str, number: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.errno = number


class PerfDataFormatError(PerfDataError):
    """The bytes are no recording that this reader reads (not an error of reading them)."""


@dataclass(frozen=True, slots=True)
class EventAttr:
    """One event of the recording; numbers are the kernel's ``perf_event_attr``.

    ``sample_period`` is a rate in Hz when ``frequency``, else a period in the event's unit.
    """

    name: str
    type: int
    config: int
    config1: int
    config2: int
    sample_period: int
    frequency: bool
    sample_type: int
    read_format: int
    flags: int
    sample_id_all: bool
    sample_stack_user: int
    clockid: int | None
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BuildId:
    """One image of the build-id table; ``build_id`` is hex, ``misc & 7`` 1 kernel, 2 user."""

    pid: int
    misc: int
    build_id: str
    path: str


@dataclass(frozen=True, slots=True)
class ClockData:
    """One moment on two clocks, in ns: ``CLOCK_REALTIME`` and the clock of the records."""

    clock_id: int
    wall_ns: int
    clock_ns: int


@dataclass(frozen=True, slots=True)
class ReadStats:
    """How reading went so far. ``end_*`` count once ``ended``; ``end_error`` 0 means whole."""

    records: Mapping[str, int]
    delivered: int
    samples: int
    lost: int
    lost_samples: int
    late: int
    unknown_id: int
    skipped_records: int
    skipped_bytes: int
    forced_flushes: int
    rounds: int
    bytes: int
    ended: bool
    end_error: int
    end_reason: str
    end_offset: int


def _text(pointer: Any) -> str:
    return os.fsdecode(ffi.string(pointer)) if pointer else ""


class PerfDataFile:
    """A recording open for reading, as a context manager.

    ``fd`` is a file, or for the pipe layout also a pipe or socket; it stays the caller's, and has
    to stay open as long as this object. ``from_bytes`` reads a recording held in memory. Raises
    PerfDataFormatError when the bytes cannot be read as a recording, PerfDataError when reading
    fails.

    In the pipe layout, facts and attrs can still arrive while records are read: the properties
    always give the present state.
    """

    def __init__(self, fd: int) -> None:
        self._keep: Any = None
        self._open(lambda out, reason: lib.opd_perfdata_open(fd, out, reason))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Self:
        """Open a recording in memory; the buffer is held and must not change."""
        self = cls.__new__(cls)
        self._keep = ffi.from_buffer(data)
        self._open(
            lambda out, reason: lib.opd_perfdata_open_memory(
                self._keep, len(self._keep), out, reason
            )
        )
        return self

    def _open(self, call: Any) -> None:
        self._pointer: Any = None
        out = ffi.new("struct opd_perfdata **")
        reason = ffi.new("const char **")
        status = call(out, reason)
        if status < 0:
            error = PerfDataError if -status in _SYSTEM_ERRORS else PerfDataFormatError
            raise error(_text(reason[0]) or os.strerror(-status), -status)
        self._pointer = out[0]

    def close(self) -> None:
        """Free the reader; calling it again does nothing."""
        if self._pointer is not None:
            lib.opd_perfdata_close(self._pointer)
            self._pointer = None
            self._keep = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None:
            self.close()

    @property
    def pointer(self) -> Any:
        """The ``struct opd_perfdata *`` for C code; raises ValueError when closed."""
        if self._pointer is None:
            raise ValueError("the recording is closed")
        return self._pointer

    @property
    def _facts(self) -> Any:
        return lib.opd_perfdata_facts(self.pointer)

    def limit_pending(self, size: int) -> None:
        """Limit the bytes of records that may wait to be sorted (256 MiB unless told)."""
        lib.opd_perfdata_limit_pending(self.pointer, size)

    @property
    def attrs(self) -> list[EventAttr]:
        """The events, in the order that ``opd_perfdata_event.event`` counts."""
        count = ffi.new("size_t *")
        attrs = lib.opd_perfdata_attrs(self.pointer, count)
        return [_attr(attrs[i]) for i in range(count[0])]

    @property
    def pipe(self) -> bool:
        """Whether it has the pipe layout."""
        return bool(self._facts.pipe)

    @property
    def compressed(self) -> bool:
        """Whether it says that records are compressed."""
        return bool(self._facts.compressed)

    @property
    def interrupted(self) -> bool:
        """Whether perf record did not finish the file, which then has no facts."""
        return bool(self._facts.interrupted)

    @property
    def hostname(self) -> str:
        """The host that recorded, or ""."""
        return _text(self._facts.hostname)

    @property
    def os_release(self) -> str:
        """The kernel's release, or ""."""
        return _text(self._facts.os_release)

    @property
    def version(self) -> str:
        """The version of perf, or ""."""
        return _text(self._facts.version)

    @property
    def arch(self) -> str:
        """The machine as in ``uname -m``, or ""."""
        return _text(self._facts.arch)

    @property
    def cpuid(self) -> str:
        """The vendor, family, model and stepping, such as ``AuthenticAMD,25,17,1``, or ""."""
        return _text(self._facts.cpuid)

    @property
    def cpu_description(self) -> str:
        """The CPU's name, or ""."""
        return _text(self._facts.cpu_description)

    @property
    def cpus_available(self) -> int:
        """How many CPUs the machine had, 0 when not known."""
        return int(self._facts.cpus_available)

    @property
    def cpus_online(self) -> int:
        """How many CPUs were online, 0 when not known."""
        return int(self._facts.cpus_online)

    @property
    def command_line(self) -> list[str]:
        """The words of the perf command."""
        facts = self._facts
        return [_text(facts.command_line[i]) for i in range(facts.command_line_count)]

    @property
    def build_ids(self) -> list[BuildId]:
        """The table of build-ids, in the file's order."""
        facts = self._facts
        return [_build_id(facts.build_ids[i]) for i in range(facts.build_id_count)]

    @property
    def pmus(self) -> dict[int, str]:
        """Names of the PMUs by ``perf_event_attr.type``."""
        facts = self._facts
        return {facts.pmus[i].type: _text(facts.pmus[i].name) for i in range(facts.pmu_count)}

    @property
    def pmu_caps(self) -> dict[str, dict[str, str]]:
        """Capabilities by PMU name ("cpu" for the core PMU)."""
        facts = self._facts
        caps: dict[str, dict[str, str]] = {}
        for i in range(facts.cap_count):
            cap = facts.caps[i]
            caps.setdefault(_text(cap.pmu), {})[_text(cap.name)] = _text(cap.value)
        return caps

    @property
    def clock_resolution_ns(self) -> int:
        """The resolution of the clock asked for with ``-k``, 0 when there was none."""
        return int(self._facts.clock_resolution_ns)

    @property
    def clock_data(self) -> ClockData | None:
        """Ties the records' clock to wall time; None when the file does not."""
        facts = self._facts
        if not facts.has_clock_data:
            return None
        return ClockData(facts.clock_id, facts.clock_wall_ns, facts.clock_time_ns)

    @property
    def sample_time(self) -> tuple[int, int] | None:
        """Times of the first and last sample, in ns of the records' clock, when the file says."""
        facts = self._facts
        if not facts.has_sample_time:
            return None
        return facts.first_sample_ns, facts.last_sample_ns

    @property
    def bad_features(self) -> int:
        """How many feature sections could not be understood."""
        return int(self._facts.bad_features)

    def stats(self) -> ReadStats:
        """Say how reading went so far."""
        stats = lib.opd_perfdata_stats(self.pointer)
        return ReadStats(
            records={
                RECORD_NAMES.get(kind, f"TYPE_{kind}"): stats.by_type[kind]
                for kind in range(len(stats.by_type))
                if stats.by_type[kind]
            },
            delivered=stats.delivered,
            samples=stats.samples,
            lost=stats.lost,
            lost_samples=stats.lost_samples,
            late=stats.late,
            unknown_id=stats.unknown_id,
            skipped_records=stats.skipped_records,
            skipped_bytes=stats.skipped_bytes,
            forced_flushes=stats.forced_flushes,
            rounds=stats.rounds,
            bytes=stats.bytes,
            ended=stats.ended,
            end_error=-stats.end_error,
            end_reason=_text(stats.end_reason),
            end_offset=stats.end_offset,
        )


def _attr(attr: Any) -> EventAttr:
    return EventAttr(
        name=_text(attr.name),
        type=attr.type,
        config=attr.config,
        config1=attr.config1,
        config2=attr.config2,
        sample_period=attr.sample_period,
        frequency=attr.frequency,
        sample_type=attr.layout.sample_type,
        read_format=attr.layout.read_format,
        flags=attr.flags,
        sample_id_all=attr.layout.sample_id_all,
        sample_stack_user=attr.sample_stack_user,
        clockid=attr.clockid if attr.use_clockid else None,
        ids=tuple(ffi.unpack(attr.ids, attr.id_count)) if attr.id_count else (),
    )


def _build_id(item: Any) -> BuildId:
    raw = bytes(ffi.buffer(item.build_id, 20))[: item.size]
    return BuildId(pid=item.pid, misc=item.misc, build_id=raw.hex(), path=_text(item.path))

"""The live sampler: rings over a list of CPUs, drained by a C thread."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from opd_native._core import ffi, lib
from opd_native.errors import check
from opd_native.ibs import derived_event
from opd_native.pipeline import (
    NativeCgroup,
    NativeImage,
    NativeWindow,
    struct_values,
    take_cgroups,
    take_images,
    unpack_window,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opd_native.ibs import Flavour, Machine
    from opd_native.pc_hash import Tap

_U64 = (1 << 64) - 1


class EventAttr(NamedTuple):
    """What perf_event_open is asked for; ``rate`` is in Hz with ``frequency``, else a period.

    With ``path`` (of a uprobe) config1 is the address of that text.
    """

    type: int
    config: int
    rate: int
    frequency: bool
    config1: int = 0
    config2: int = 0
    exclude_user: bool = False
    exclude_kernel: bool = False
    exclude_hv: bool = False
    exclude_idle: bool = False
    precise_ip: int = 0
    path: str = ""
    raw: int = 0


class Sampler:
    """Owns the C sampler. Any thread may call; takes are one at a time.

    Raises NativeError from every call that the kernel refuses, with the errno
    of perf_event_open or mmap.
    """

    def __init__(
        self,
        cpus: Sequence[int],
        *,
        callchain: bool = True,
        separate_thread: bool = False,
        separate_cpu: bool = False,
        keep_idle: bool = False,
        ring_bytes: int = 512 << 10,
        stack_depth: int = 127,
        wake_ms: int = 200,
        proc_root: str = "/proc",
        targeted: bool = False,
    ) -> None:
        options = ffi.new("struct opd_sampler_options *")
        lib.opd_sampler_defaults(options)
        root = ffi.new("char[]", os.fsencode(proc_root))
        options.ring_bytes = ring_bytes
        options.wake_ms = wake_ms
        options.targeted = targeted
        options.pipeline.proc_root = root
        options.pipeline.callchain = callchain
        options.pipeline.keep_idle = keep_idle
        options.pipeline.separate_thread = separate_thread
        options.pipeline.separate_cpu = separate_cpu
        options.pipeline.stack_depth = stack_depth
        failed = ffi.new("int32_t *", -1)
        self._take_lock = threading.Lock()
        self._paths: list[Any] = []
        # Features ask for statistics on threads of their own, whatever ends meanwhile.
        self._life = threading.Lock()
        self._last_stats: dict[str, Any] = {}
        self._last_lost: list[int] = []
        self._events = 0
        self._ibs_counts: dict[int, dict[str, int]] = {}
        self.ibs_pmus: dict[int, str] = {}  # of events with IBS records
        self._event_samples: list[int] = []
        self._pointer = lib.opd_sampler_create(options, list(cpus), len(cpus), failed)
        if self._pointer == ffi.NULL:
            check(-ffi.errno, f"perf_event_open and mmap of the ring of CPU {failed[0]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop and free everything; of the object only its statistics can be asked afterwards."""
        with self._life:
            pointer, self._pointer = self._pointer, ffi.NULL
            if pointer != ffi.NULL:
                self._last_stats = self._read_stats(pointer)
                self._last_lost = [
                    int(lib.opd_sampler_lost(pointer, event)) for event in range(self._events)
                ]
                lib.opd_sampler_destroy(pointer)

    @property
    def _pipeline(self) -> Any:
        return lib.opd_sampler_pipeline(self._pointer)

    def add_event(self, attr: EventAttr) -> int:
        """Open one event on every CPU; its number. Nothing is left open when it fails."""
        fields = attr._asdict()
        if path := fields.pop("path"):
            # The kernel reads it again for each CPU that comes later: it is kept.
            text = ffi.new("char[]", os.fsencode(path))
            self._paths.append(text)
            fields["config1"] = int(ffi.cast("uintptr_t", text))
        native = ffi.new("struct opd_event_attr *", fields)
        number = check(lib.opd_sampler_add_event(self._pointer, native), "perf_event_open")
        self._events = number + 1
        return number

    def add_process(self, pid: int) -> int:
        """Sample a process, and all it makes, on a ``targeted`` sampler; how many threads."""
        return check(lib.opd_sampler_add_process(self._pointer, pid), f"open process {pid}")

    def covers(self, pid: int) -> bool:
        """Whether a process is sampled, by itself or inherited, as of the last ``flush``."""
        return bool(lib.opd_sampler_covers(self._pointer, pid))

    def sweep_targets(self) -> int:
        """Close what belongs to threads that have ended; how many are left."""
        return check(lib.opd_sampler_sweep_targets(self._pointer), "sweep targets")

    def add_filter(self, comm_glob: str) -> None:
        """Count only samples of threads or processes of such names, and of other globs'."""
        glob = os.fsencode(comm_glob)
        check(lib.opd_pipeline_add_filter(self._pipeline, glob), f"filter {comm_glob}")

    def set_idle(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Tell the kernel address ranges in which the idle task does nothing."""
        ordered = sorted(ranges)
        starts, ends = [start for start, _ in ordered], [end for _, end in ordered]
        check(lib.opd_pipeline_set_idle(self._pipeline, starts, ends, len(ordered)), "idle ranges")

    def add_module(self, name: str, start: int, end: int) -> None:
        """Tell where a kernel module's text lies."""
        check(
            lib.opd_pipeline_add_module(self._pipeline, name.encode(), start, end), "kernel module"
        )

    def keep_payload(
        self, *, latencies: int = 0, accesses: int = 0, branches: int = 0, records: int = 0
    ) -> None:
        """Keep so much of a window beside its rows, or more if that was asked before.

        Before ``start`` only; see opd/payload.h.
        """
        limits = ffi.new("struct opd_payload_limits *", [latencies, accesses, branches, records])
        check(lib.opd_pipeline_keep(self._pipeline, limits), "keep payloads")

    def set_ibs(
        self,
        event: int,
        flavour: Flavour,
        machine: Machine,
        derived: Mapping[str, int],
        *,
        user: bool = True,
        kernel: bool = True,
    ) -> None:
        """Count an event's IBS records under derived events, by name their numbers.

        Numbers without an event become events of their own; so it is called
        after every ``add_event``. The event itself counts all records.
        """
        source = ffi.new("struct opd_pipeline_ibs *")
        source.flavour, source.plain, source.machine = flavour, True, machine
        wanted = 0
        for name, number in derived.items():
            one = derived_event(name)
            if one is None or one.flavour is not flavour:
                raise ValueError(f"{name} is no event of {flavour.pmu}")
            wanted |= 1 << one.bit
            source.events[one.bit] = number
        words = [wanted & _U64, wanted >> 64]
        source.user.words = words if user else [0, 0]
        source.kernel.words = words if kernel else [0, 0]
        plain = ffi.new("struct opd_pipeline_event *", {"period": 1, "precise": True})
        while self._events <= max(derived.values(), default=-1):
            check(lib.opd_pipeline_add_event(self._pipeline, plain), "add a derived event")
            self._events += 1
        check(lib.opd_pipeline_set_ibs(self._pipeline, event, source), "take IBS records")
        self.ibs_pmus[event] = flavour.pmu

    def ibs_counts(self, event: int) -> dict[str, int]:
        """What became of an event's IBS records in the windows taken; see opd/pipeline.h."""
        return dict(self._ibs_counts.get(event, {}))

    def event_samples(self) -> list[int]:
        """Samples in the windows taken, by number of the event."""
        return list(self._event_samples)

    def _note(self, window: NativeWindow) -> None:
        """Add a window up for the two above."""
        if not window.ibs_counts:
            return
        for event, counts in window.ibs_counts.items():
            known = self._ibs_counts.setdefault(event, {})
            for name, count in counts.items():
                known[name] = known.get(name, 0) + count
        samples = [counts["samples"] for counts in window.event_counts]
        before = self._event_samples + [0] * (len(samples) - len(self._event_samples))
        self._event_samples = [one + more for one, more in zip(before, samples, strict=True)]

    def start(self) -> None:
        """Enable the events and start the drain thread (which reads /proc first)."""
        check(lib.opd_sampler_start(self._pointer), "start sampling")

    def pause(self, *, paused: bool) -> None:
        """Switch sampling off or on; maps and names are followed all the while."""
        check(lib.opd_sampler_pause(self._pointer, paused), "pause sampling")

    def stop(self) -> None:
        """Disable the events and drain what is left; windows can still be taken."""
        check(lib.opd_sampler_stop(self._pointer), "stop sampling")

    def set_rate(self, event: int, rate: int) -> None:
        """Change an event's rate (Hz) or period on all CPUs; what was sampled keeps its weight."""
        check(lib.opd_sampler_set_rate(self._pointer, event, rate), "set the sampling rate")

    def limit_stacks(self, divisor: int) -> int:
        """Divide the limit on distinct stacks of a window; what it is now."""
        return check(lib.opd_sampler_limit_stacks(self._pointer, divisor), "limit stacks")

    def set_tap(self, tap: Tap | None) -> None:
        """Count program counters of samples there from now on; None: no more."""
        with self._life:
            if self._pointer != ffi.NULL:
                pointer = ffi.NULL if tap is None else tap.pointer
                lib.opd_sampler_set_tap(self._pointer, pointer)

    def set_cpus(self, cpus: Sequence[int]) -> int:
        """Follow CPU hotplug: rings for exactly these CPUs; how many have one."""
        return check(lib.opd_sampler_set_cpus(self._pointer, list(cpus), len(cpus)), "set CPUs")

    def flush(self, until_monotonic_ns: int, timeout_ms: int = 5000) -> None:
        """Wait until every record older than that has been attributed."""
        check(lib.opd_sampler_flush(self._pointer, until_monotonic_ns, timeout_ms), "flush")

    def take(self, timeout_ms: int = 2000) -> NativeWindow | None:
        """Swap the tables and take the finished window; None when the drain thread is late."""
        out = ffi.new("struct opd_window **")
        with self._take_lock:
            rc = lib.opd_sampler_take(self._pointer, timeout_ms, out)
        if rc == -errno.ETIMEDOUT:
            return None
        check(rc, "take a window")
        window = unpack_window(out[0])
        self._note(window)
        return window

    def take_images(self) -> list[NativeImage]:
        """Take the images first seen since the last call; their fds are the caller's."""
        return take_images(self._pipeline)

    def has_news(self) -> bool:
        """Whether there are images or cgroups to take."""
        return bool(lib.opd_pipeline_has_news(self._pipeline))

    def take_cgroups(self) -> list[NativeCgroup]:
        """Take the cgroups first seen, and those never mentioned again, since the last call."""
        return take_cgroups(self._pipeline)

    def stats(self) -> dict[str, Any]:
        """Give ``struct opd_sampler_stats`` by name; times in ns, memory in bytes."""
        with self._life:
            if self._pointer == ffi.NULL:
                return dict(self._last_stats)
            return self._read_stats(self._pointer)

    @staticmethod
    def _read_stats(pointer: Any) -> dict[str, Any]:
        stats = ffi.new("struct opd_sampler_stats *")
        lib.opd_sampler_stats(pointer, stats)
        return struct_values(stats[0])

    def progress(self) -> int:
        """Give CLOCK_MONOTONIC of the last finished drain, in ns; never waits for the thread."""
        return int(lib.opd_sampler_progress(self._pointer))

    def lost(self, event: int) -> int:
        """Give the samples of an event that the rings lost so far."""
        with self._life:
            if self._pointer == ffi.NULL:
                return self._last_lost[event] if event < len(self._last_lost) else 0
            return int(lib.opd_sampler_lost(self._pointer, event))

    def times(self, event: int) -> tuple[int, int]:
        """Give the enabled and the running time of an event, ns summed over CPUs."""
        enabled, running = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        check(lib.opd_sampler_times(self._pointer, event, enabled, running), "event times")
        return enabled[0], running[0]

"""What page faults cost (opd/pft.h): one call is one repeat of all workers.

The caller is worker 0. Call it in a process made for measuring: it pins the
calling thread, forks and may be killed for want of memory.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple

from opd_native._core import ffi, lib
from opd_native.errors import NativeError, check

if TYPE_CHECKING:
    from collections.abc import Sequence

NODES_MOST = 1024
WORKERS_MOST = 16384
_BINS = 1920  # OPD_TICKS_BINS
_FIELDS = [
    "start_ns",
    "end_ns",
    "cpu_ns",
    "user_us",
    "system_us",
    "minor",
    "major",
    "kernel_faults",
    "switches",
    "huge_bytes",
    "cpu",
    "task",
]


class Backing(enum.IntEnum):
    """What the memory is."""

    ANON = 0
    DEV_ZERO = 1
    SHM = 2
    MEMFD = 3
    FILE = 4


class Pages(enum.IntEnum):
    """Which pages back it."""

    BASE = 0
    SYSTEM = 1
    THP = 2
    FOLIO = 3
    HUGETLB_2M = 4
    HUGETLB_1G = 5


class Prepare(enum.IntEnum):
    """The state from which the measured loop starts."""

    NOTHING = 0
    READ_FIRST = 1
    WRITE_FIRST = 2
    DROPPED = 3
    FORKED = 4
    FORKED_GONE = 5
    FILLED = 6
    UNCACHED = 7
    PAGED_OUT = 8
    USERFAULTFD = 9
    USERFAULTFD_MINOR = 10
    USERFAULTFD_WP = 11
    LOCK_ON_FAULT = 12


class Touch(enum.IntEnum):
    """How pages are faulted in. From MLOCK on it is one call for a worker's slice."""

    WRITE = 0
    READ = 1
    CLEAR = 2
    MLOCK = 3
    MAP_POPULATE = 4
    POPULATE_READ = 5
    POPULATE_WRITE = 6
    COLLAPSE = 7
    DONTNEED = 8


class Policy(enum.IntEnum):
    """MPOL_* of mbind(2)."""

    DEFAULT = 0
    PREFERRED = 1
    BIND = 2
    INTERLEAVE = 3
    LOCAL = 4
    WEIGHTED_INTERLEAVE = 6


class Worker(NamedTuple):
    """One worker's row of struct opd_pft_worker; times are CLOCK_MONOTONIC_RAW."""

    start_ns: int
    end_ns: int
    cpu_ns: int
    user_us: int
    system_us: int
    minor: int
    major: int
    kernel_faults: int
    switches: int
    huge_bytes: int
    cpu: int
    task: int


class Repeat(NamedTuple):
    """All workers of one repeat; ``unmap_ns`` of the region, 0 when each maps its own."""

    workers: list[Worker]
    unmap_ns: int
    page_bytes: int


class FaultRunError(NativeError):
    """A repeat that failed; ``str()`` says what. ``killed``: a worker process died."""

    def __init__(self, errno: int, reason: str) -> None:
        super().__init__(errno, reason)
        self.reason = reason
        self.killed = errno == 130  # EOWNERDEAD

    def __str__(self) -> str:
        return self.reason


class FaultTest:
    """A test with fixed options, run once a call of ``repeat``.

    ``pages_each`` base pages a worker; ``fifo`` the workers' priority, 0 for
    none; ``cpus`` to pin worker j to ``cpus[j % len(cpus)]``; ``nodes`` only
    with ``policy``. Raises NativeError (EINVAL) when they do not fit together.
    """

    def __init__(
        self,
        *,
        pages_each: int,
        workers: int = 1,
        processes: bool = False,
        backing: Backing = Backing.ANON,
        pages: Pages = Pages.BASE,
        prepare: Prepare = Prepare.NOTHING,
        touch: Touch = Touch.WRITE,
        shared: bool = False,
        multimap: bool = False,
        packed: bool = False,
        lines: int = 1,
        line_bytes: int = 64,
        policy: Policy | None = None,
        nodes: Sequence[int] = (),
        shm_lock: bool = False,
        fifo: int = 0,
        whole_self: bool = False,
        cpus: Sequence[int] = (),
        delay: float = 0.0,
        pause: float = 0.0,
        directory: str | None = None,
    ) -> None:
        options = ffi.new("struct opd_pft_options *")
        options.backing, options.pages = backing, pages
        options.prepare, options.touch = prepare, touch
        options.shared, options.workers, options.processes = shared, workers, processes
        options.multimap, options.packed = multimap, packed
        options.lines, options.line_bytes = lines, line_bytes
        options.policy_set, options.policy = policy is not None, policy or 0
        options.shm_lock, options.fifo = shm_lock, fifo
        options.whole_self = whole_self
        options.pages_each, options.delay_ns = pages_each, int(delay * 1e9)
        options.pause_ns = int(pause * 1e9)
        for node in nodes:
            if not 0 <= node < NODES_MOST:
                raise NativeError(22, f"node {node}")
            options.nodes[node // 64] |= 1 << (node % 64)
        held: list[Any] = [ffi.new("int32_t[]", list(cpus))] if cpus else []
        if cpus:
            options.cpus, options.cpu_count = held[0], len(cpus)
        if directory is not None:
            held.append(ffi.new("char[]", directory.encode()))
            options.directory = held[-1]
        out = ffi.new("struct opd_pft **")
        check(lib.opd_pft_create(options, out), "options of the page-fault test")
        self._pointer = ffi.gc(out[0], lib.opd_pft_destroy)
        self._workers = workers

    def repeat(
        self,
        *,
        count: bool = False,
        latency: bool = False,
        place: bool = False,
        pause: bool = False,
    ) -> Repeat:
        """Map, prepare, measure and unmap once. Raises FaultRunError.

        ``count``: the kernel's page-faults event counts beside. ``latency``: each
        page's time goes into ``bins``. Both cost some per cent of a fault. ``place``:
        afterwards ``placement`` tells where pages lie. ``pause``: all memory stays
        mapped for the seconds of the options.
        """
        rows = ffi.new("struct opd_pft_worker[]", self._workers)
        out = ffi.new("struct opd_pft_repeat *")
        rc = lib.opd_pft_repeat(
            self._pointer, count | latency << 1 | place << 2 | pause << 3, rows, out
        )
        if rc < 0:
            reason = ffi.string(lib.opd_pft_reason(self._pointer)).decode(errors="replace")
            raise FaultRunError(-rc, reason)
        return Repeat(
            [Worker(*(getattr(row, name) for name in _FIELDS)) for row in rows],
            out.unmap_ns,
            out.page_bytes,
        )

    def placement(self) -> list[str]:
        """Lines of numa_maps after a repeat with ``place``, of the workers in order, once each."""
        lines = [
            ffi.string(lib.opd_pft_placement(self._pointer, worker)).decode(errors="replace")
            for worker in range(self._workers)
        ]
        return [line for line in dict.fromkeys(lines) if line]

    def bins(self) -> list[int]:
        """Pages by latency in ticks, of the last repeat; bins as ``bin_low`` tells."""
        bins = ffi.new("uint64_t[]", _BINS)
        lib.opd_pft_bins(self._pointer, bins)
        return list(bins)


def bin_low(index: int) -> float:
    """Where a bin begins, in ticks; it ends where the next begins (32 bins an octave)."""
    if index < 32:
        return float(index)
    return float((32 + index % 32) << (index // 32 - 1))

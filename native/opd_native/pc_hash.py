"""Program counters counted in tables of each CPU before a shared buffer (contract: opd/pc_hash.h).

A ``PcHash`` is the tables and the buffer, a ``Tap`` what samples are counted.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from opd_native._core import ffi, lib
from opd_native.errors import check

if TYPE_CHECKING:
    from collections.abc import Sequence

Policy = Literal["flush", "evict", "none"]
POLICIES: tuple[str, ...] = get_args(Policy)
SLOTS_MOST = 1 << 20
SEGMENTS_MOST = 16


class PcStats(NamedTuple):
    """``struct opd_pc_stats``: counters since the beginning; times in ns, memory in bytes."""

    hits: int
    shared_updates: int
    flushes: int
    flips: int
    evictions: int
    wraps: int
    probe_max: int
    bytes: int
    ns_per_hit: float
    flip_ns: float


class Target(NamedTuple):
    """Which samples: at kernel addresses [start, end), or at ELF addresses of a file.

    ``segments`` (offset, size, ELF address) are a file's code, none the kernel's;
    the file is known by ``build_id`` (hex), else by device and inode.
    """

    start: int
    end: int
    shift: int
    segments: tuple[tuple[int, int, int], ...] = ()
    build_id: str = ""
    major: int = 0
    minor: int = 0
    inode: int = 0

    @property
    def length(self) -> int:
        """Slots of the buffer."""
        return ((self.end - 1 - self.start) >> self.shift) + 1


def memory_bytes(*, slots: int, cpus: int, length: int) -> int:
    """Memory of a PcHash, were all of it touched; tables alone with a ``length`` of 0."""
    # A length may be of 64-bit addresses.
    tables = int(lib.opd_pc_hash_bytes(slots, cpus, 0))
    return tables + length * int(ffi.sizeof("uint32_t"))


class PcHash:
    """Owns tables and buffer. Any thread may read; a Tap counts into it.

    ``nodes``: the NUMA node of each CPU from 0 on, -1 where it is not known.
    Raises NativeError: EINVAL for a shape that cannot be, ENOMEM.
    """

    def __init__(
        self, *, slots: int, ways: int, policy: Policy, nodes: Sequence[int], length: int
    ) -> None:
        options = ffi.new("struct opd_pc_options *")
        options.shape = (slots, ways, POLICIES.index(policy))
        where = ffi.new("int32_t[]", list(nodes))
        options.nodes, options.cpus, options.length = where, len(nodes), length
        pointer = lib.opd_pc_hash_create(options)
        if pointer == ffi.NULL:
            check(-ffi.errno, f"make tables of {slots} slots for {len(nodes)} CPUs")
        self.pointer: Any = ffi.gc(pointer, lib.opd_pc_hash_destroy)
        self.cpus = len(nodes)
        self.length = length

    def add(self, cpu: int, slots: Sequence[int]) -> None:
        """Count a hit of each slot; for tests and whoever has no Tap."""
        if not 0 <= cpu < self.cpus or any(not 0 <= slot < self.length for slot in slots):
            raise ValueError("no such CPU or slot")
        lib.opd_pc_hash_add(self.pointer, cpu, list(slots), len(slots))

    def flush(self) -> None:
        """Have all that was counted in the buffer."""
        lib.opd_pc_hash_flush(self.pointer)

    def read(self) -> tuple[array[int], array[int]]:
        """Flush; the slots that have hits, in order, and their hits."""
        room = 4096
        while True:
            slots, hits = array("I", bytes(4 * room)), array("I", bytes(4 * room))
            found = lib.opd_pc_hash_read(
                self.pointer,
                ffi.from_buffer("uint32_t[]", slots),
                ffi.from_buffer("uint32_t[]", hits),
                room,
            )
            if found <= room:
                return slots[:found], hits[:found]
            room = found + found // 8

    def reset(self) -> None:
        """Empty the buffer; the counters go on."""
        lib.opd_pc_hash_reset(self.pointer)

    def stats(self) -> PcStats:
        """Of all CPUs."""
        out = ffi.new("struct opd_pc_stats *")
        lib.opd_pc_hash_stats(self.pointer, out)
        return _stats(out)

    def stats_by_cpu(self) -> dict[int, PcStats]:
        """Of each CPU that counted anything."""
        out = ffi.new("struct opd_pc_stats *")
        found = {}
        for cpu in range(self.cpus):
            lib.opd_pc_hash_stats_cpu(self.pointer, cpu, out)
            if out.hits:
                found[cpu] = _stats(out)
        return found


class Tap:
    """Counts samples of an event of a sampler in a PcHash; see ``Sampler.set_tap``.

    Raises NativeError EINVAL for a target that does not fit the hash.
    """

    def __init__(self, hashed: PcHash, event: int, target: Target) -> None:
        options = ffi.new("struct opd_pc_tap_options *")
        options.hash, options.event = hashed.pointer, event
        options.start, options.end, options.shift = target.start, target.end, target.shift
        segments = target.segments[: SEGMENTS_MOST + 1]
        options.segment_count = len(segments)
        options.segments[0 : min(len(segments), SEGMENTS_MOST)] = list(segments[:SEGMENTS_MOST])
        build_id = bytes.fromhex(target.build_id)[:20]
        options.build_id[0 : len(build_id)] = build_id
        options.build_id_size = len(build_id)
        options.major, options.minor, options.inode = target.major, target.minor, target.inode
        pointer = lib.opd_pc_tap_create(options)
        if pointer == ffi.NULL:
            check(-ffi.errno, "count program counters")
        self.pointer: Any = ffi.gc(pointer, lib.opd_pc_tap_destroy)
        self._hash = hashed  # it counts in there

    def outside(self) -> int:
        """Samples of the event that were not in the range."""
        return int(lib.opd_pc_tap_outside(self.pointer))


def _stats(out: Any) -> PcStats:
    return PcStats(*(getattr(out, name) for name in PcStats._fields))

"""What the sampler hands to the worker: runs, images and windows.

Packed columns are little-endian arrays in ``bytes``; Python passes them on
without looking inside. All three are encoded with msgpack between processes.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from opd.sampling.payload import Payload  # noqa: TC001 - msgspec reads it

ImageKind = Literal[
    "file", "kernel", "module", "bpf", "vdso", "vsyscall", "anon", "unknown", "feature"
]

STACK_TRUNCATED = 1
STACK_HAS_KERNEL = 2
STACK_HAS_USER = 4

MODE_USER = 0
MODE_KERNEL = 1


class EventInfo(msgspec.Struct, frozen=True):
    """One event of a run: ``name`` as asked, ``source`` what really runs.

    ``unit`` is of the weight: ns (time on CPUs), count, or a feature's word.
    ``feature``: whose event it is, "" for the sampler's. ``column``: it is the
    extra column of the event before the dot in its name, and its weight that
    column's sum.
    """

    name: str
    source: str
    unit: str
    hz: int | None = None
    period: int | None = None
    feature: str = ""
    column: bool = False


class RunInfo(msgspec.Struct, frozen=True):
    """One daemon start, one imported file, or one burst beside a daemon's profile.

    ``cpuid``: vendor, family, model and stepping as perf.data spells them, ""
    where not known.
    """

    run: str
    boot: str
    kind: Literal["live", "import", "burst"]
    session: str
    origin: str
    kernel_release: str
    kernel_build_id: str
    host: str
    cpus: int
    started_ns: int
    events: list[EventInfo]
    cpuid: str = ""


class ImageInfo(msgspec.Struct, frozen=True):
    """One image of a run. ``uid`` is never reused within the run.

    ``start`` and ``end`` are the runtime addresses of kernel, module and bpf
    images, else 0. ``symbol`` names a bpf program, and what a feature's record
    is about: the only name in an image of kind ``feature``.
    """

    uid: int
    kind: ImageKind
    path: str
    deleted: bool = False
    build_id: str = ""
    dev_major: int = 0
    dev_minor: int = 0
    inode: int = 0
    inode_generation: int = 0
    symbol: str = ""
    start: int = 0
    end: int = 0


class CgroupInfo(msgspec.Struct, frozen=True):
    """One cgroup of a run. ``uid`` is 1 or more and never reused within the run.

    ``gone``: no window from now on mentions it; ``path`` is empty then.
    """

    uid: int
    path: str
    gone: bool = False


# In a window's quality: the part of ``throttled_ns`` that the governor gave up.
GOVERNED = "governed_ns"
# Samples by how their cgroup was known; of the rest it was not.
LABELS = ("label_exact", "label_read", "label_inherited")

EVENT_QUALITY = (
    "samples",
    "ring_full",
    "hash_full",
    "no_mapping",
    "stack_truncated",
    "unwind_failed",
    "inexact_ip",
    *LABELS,
)


class Window(msgspec.Struct):
    """The hits of one stretch of time, as packed columns.

    ``row_*``: u32 sample file, u32 stack, u64 hits, u64 weight. ``sfile_*``:
    u16 event, u8 mode, i32 tgid, i32 tid and i32 cpu (-1: not separated), u32
    image uid of the leaf, 16 bytes comm, u32 cgroup uid (0: unknown; an empty
    column: of all). ``stack_start`` has ``stacks + 1``
    u32 indices into ``frame_image`` (u32 uid) and ``frame_address`` (u64),
    leaf first. A file's address is the offset in the file. Times are
    CLOCK_REALTIME ns. ``quality`` sums over events, ``event_quality`` has what
    can be told apart (EVENT_QUALITY) for each event of the run. ``payloads``: what
    is kept beside the rows (opd.sampling.payload).
    """

    sequence: int
    start_ns: int
    end_ns: int
    rows: int
    row_sfile: bytes
    row_stack: bytes
    row_hits: bytes
    row_weight: bytes
    sfiles: int
    sfile_event: bytes
    sfile_mode: bytes
    sfile_tgid: bytes
    sfile_tid: bytes
    sfile_cpu: bytes
    sfile_image: bytes
    sfile_comm: bytes
    stacks: int
    stack_start: bytes
    stack_flags: bytes
    frame_image: bytes
    frame_address: bytes
    quality: dict[str, int]
    event_quality: list[dict[str, int]] = []
    sfile_cgroup: bytes = b""
    payloads: list[Payload] = []

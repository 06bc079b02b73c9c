"""Windows and images as they leave the C pipeline."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from opd_native._core import ffi, lib
from opd_native.payload import NativePayload, unpack_payloads

IMAGE_KINDS = ("file", "kernel", "module", "bpf", "vdso", "vsyscall", "anon", "unknown")

COMM_SIZE = 16

# Column, C element size in bytes, and which count gives its length.
_COLUMNS = (
    ("row_sfile", 4, "rows"),
    ("row_stack", 4, "rows"),
    ("row_hits", 8, "rows"),
    ("row_weight", 8, "rows"),
    ("sfile_event", 2, "sfiles"),
    ("sfile_mode", 1, "sfiles"),
    ("sfile_tgid", 4, "sfiles"),
    ("sfile_tid", 4, "sfiles"),
    ("sfile_cpu", 4, "sfiles"),
    ("sfile_image", 4, "sfiles"),
    ("sfile_cgroup", 4, "sfiles"),
    ("sfile_comm", COMM_SIZE, "sfiles"),
    ("stack_flags", 1, "stacks"),
    ("frame_image", 4, "frames"),
    ("frame_address", 8, "frames"),
)


class NativeWindow(NamedTuple):
    """One finished window: packed columns by name, and its counts."""

    rows: int
    sfiles: int
    stacks: int
    frames: int
    columns: dict[str, bytes]
    counts: dict[str, int]
    event_counts: list[dict[str, int]]
    payloads: list[NativePayload]
    ibs_counts: dict[int, dict[str, int]]  # struct opd_ibs_counts of events with IBS records


class NativeImage(NamedTuple):
    """One image; ``fd`` is an open file that now belongs to the caller, or -1."""

    uid: int
    kind: str
    path: str
    deleted: bool
    build_id: str
    dev_major: int
    dev_minor: int
    inode: int
    inode_generation: int
    symbol: str
    start: int
    end: int
    fd: int


class NativeCgroup(NamedTuple):
    """One cgroup; ``path`` is None when no later window mentions ``uid``."""

    uid: int
    path: str | None


def struct_values(struct: Any) -> dict[str, Any]:
    """Give the fields of a C struct by name, nested structs as dicts."""
    values: dict[str, Any] = {}
    for name, field in ffi.typeof(struct).fields:
        value = getattr(struct, name)
        values[name] = struct_values(value) if field.type.kind == "struct" else value
    return values


def unpack_window(pointer: Any) -> NativeWindow:
    """Copy a ``struct opd_window *`` out and free it."""
    try:
        counts = {name: getattr(pointer, name) for name in ("rows", "sfiles", "stacks", "frames")}
        columns = {
            name: bytes(ffi.buffer(getattr(pointer, name), size * counts[length]))
            for name, size, length in _COLUMNS
        }
        columns["stack_start"] = bytes(ffi.buffer(pointer.stack_start, 4 * (counts["stacks"] + 1)))
        return NativeWindow(
            columns=columns,
            counts=struct_values(pointer.counts),
            event_counts=[struct_values(pointer.event_counts[i]) for i in range(pointer.events)],
            payloads=unpack_payloads(pointer.payload),
            ibs_counts={
                int(pointer.ibs_event[i]): struct_values(pointer.ibs_counts[i])
                for i in range(pointer.ibs_sources)
            },
            **counts,
        )
    finally:
        lib.opd_window_free(pointer)


def take_images(pipeline: Any, room: int = 256) -> list[NativeImage]:
    """Take the images first seen since the last call, at most ``room``."""
    out = ffi.new("struct opd_image[]", room)
    images = []
    for i in range(lib.opd_pipeline_images(pipeline, out, room)):
        image = out[i]
        images.append(
            NativeImage(
                uid=image.uid,
                kind=IMAGE_KINDS[image.kind],
                path=os.fsdecode(ffi.string(image.path)),
                deleted=bool(image.deleted),
                build_id=bytes(ffi.buffer(image.build_id, image.build_id_size)).hex(),
                dev_major=image.major,
                dev_minor=image.minor,
                inode=image.inode,
                inode_generation=image.generation,
                symbol=os.fsdecode(ffi.string(image.symbol)),
                start=image.start,
                end=image.end,
                fd=image.fd,
            )
        )
        image.fd = -1  # ours now
        lib.opd_image_release(out + i)
    return images


def take_cgroups(pipeline: Any, room: int = 256) -> list[NativeCgroup]:
    """Take the cgroups first seen, or seen last, since the last call, at most ``room``."""
    out = ffi.new("struct opd_cgroup[]", room)
    cgroups = []
    for i in range(lib.opd_pipeline_cgroups(pipeline, out, room)):
        path = None if out[i].path == ffi.NULL else os.fsdecode(ffi.string(out[i].path))
        cgroups.append(NativeCgroup(out[i].uid, path))
        lib.opd_cgroup_release(out + i)
    return cgroups

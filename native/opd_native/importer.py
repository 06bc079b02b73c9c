"""Feeds a recording through the pipeline: no Python per record."""

from __future__ import annotations

import errno
import os
from typing import Any, NamedTuple, Self

from opd_native._core import ffi, lib
from opd_native.errors import check
from opd_native.ibs import DerivedEvent, Flavour, derived_events
from opd_native.pipeline import (
    NativeCgroup,
    NativeImage,
    NativeWindow,
    take_cgroups,
    take_images,
    unpack_window,
)

FOREVER = 2**64 - 1


class ImportEvent(NamedTuple):
    """An event of a window: a recording's attr, or what is derived of its IBS records."""

    attr: int  # index in the recording's attrs
    derived: DerivedEvent | None


class Importer:
    """A pipeline over an open recording (``opd_native.perfdata.PerfDataFile``)."""

    def __init__(
        self, data: Any, *, separate_thread: bool = False, separate_cpu: bool = False
    ) -> None:
        options = ffi.new("struct opd_pipeline_options *")
        lib.opd_pipeline_defaults(options)
        options.proc_root = ffi.NULL
        options.keep_idle = True
        options.separate_thread = separate_thread
        options.separate_cpu = separate_cpu
        # A recording's windows are read once: they may be larger than a daemon's.
        options.payload.latencies = 1 << 18
        options.payload.accesses = options.payload.branches = 1 << 16
        options.payload.records = 1 << 14
        self._data = data  # the C side points into it
        self._pipeline = lib.opd_pipeline_create(options)
        self._import = (
            lib.opd_import_create(data.pointer, self._pipeline)
            if self._pipeline != ffi.NULL
            else ffi.NULL
        )
        if self._import == ffi.NULL:
            lib.opd_pipeline_destroy(self._pipeline)
            raise MemoryError("no memory for an import")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the pipeline; the recording stays the caller's."""
        pipeline, self._pipeline = self._pipeline, ffi.NULL
        if pipeline != ffi.NULL:
            lib.opd_import_destroy(self._import)
            lib.opd_pipeline_destroy(pipeline)

    def learn(self, ahead: Any) -> None:
        """Take events and facts of the same recording, read to its end: they may come late."""
        check(lib.opd_import_learn(self._import, ahead.pointer), "import")

    def events(self) -> list[ImportEvent]:
        """Give the events of windows so far, in order of their numbers."""
        count = ffi.new("size_t *")
        events = lib.opd_import_events(self._import, count)
        table = derived_events()
        return [
            ImportEvent(
                attr=events[i].attr,
                derived=table[events[i].derived] if events[i].derived >= 0 else None,
            )
            for i in range(count[0])
        ]

    def ibs_attr(self, attr: int) -> tuple[Flavour, bool] | None:
        """Tell whether an attr is of an IBS PMU: which, and whether it has raw records."""
        raw = ffi.new("bool *")
        flavour = lib.opd_import_ibs_flavour(self._import, attr, raw)
        return None if flavour < 0 else (Flavour(flavour), bool(raw[0]))

    def feed(self, until: int = FOREVER) -> int | None:
        """Feed all before the first sample of time >= ``until`` (ns, the events' clock).

        The time of that sample, or None at the recording's end.
        """
        next_time = ffi.new("uint64_t *")
        rc = check(lib.opd_import_feed(self._import, until, next_time), "import")
        return int(next_time[0]) if rc == 1 else None

    def take(self) -> NativeWindow:
        """Take what has been counted since the last call."""
        out = ffi.new("struct opd_window **")
        check(lib.opd_pipeline_take_here(self._pipeline, out), "take a window")
        return unpack_window(out[0])

    def take_images(self) -> list[NativeImage]:
        """Take the images first seen since the last call; none has an fd."""
        return take_images(self._pipeline)

    def take_cgroups(self) -> list[NativeCgroup]:
        """Take the cgroups first seen, and those never mentioned again, since the last call."""
        return take_cgroups(self._pipeline)

    def add_build_id(self, path: str, build_id: str) -> None:
        """Tell the build-id (hex) of the images of a path."""
        data = bytes.fromhex(build_id)
        rc = lib.opd_pipeline_add_build_id(self._pipeline, os.fsencode(path), data, len(data))
        if rc != -errno.EINVAL:  # an id of no known size helps nobody
            check(rc, "add a build-id")

    def kernel_build_id(self) -> str:
        """Give the recorded kernel's build-id in hex as a mapping told it, else ""."""
        build_id = ffi.new("uint8_t[20]")
        size = lib.opd_pipeline_kernel_build_id(self._pipeline, build_id)
        return bytes(build_id)[:size].hex()

    def kernel_text(self) -> int:
        """Give the address of the recorded kernel's ``_text``, 0 when it is not told."""
        return int(lib.opd_pipeline_kernel_text(self._pipeline))

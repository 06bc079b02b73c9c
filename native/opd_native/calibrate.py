"""Small loops that tell what measuring costs here (contract: opd/calibrate.h)."""

from __future__ import annotations

from array import array

from opd_native._core import ffi, lib
from opd_native.errors import check

WHATS = ("loop", "syscall", "clock")


def calibrate(what: str, *, work: int, turns: int, samples: int) -> array[float]:
    """Nanoseconds of ``samples`` times ``turns`` turns of one of WHATS."""
    column = array("d", bytes(8 * samples))
    cells = ffi.from_buffer("double[]", column)
    check(lib.opd_calibrate(WHATS.index(what), work, turns, cells, samples), "calibrate")
    return column


def calibrate_touch(size_bytes: int) -> float:
    """Nanoseconds of the first write to each page of so much fresh memory. Raises OSError."""
    ns = ffi.new("double *")
    check(lib.opd_calibrate_touch(size_bytes, ns), "mmap")
    return float(ns[0])

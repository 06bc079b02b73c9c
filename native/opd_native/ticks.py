"""The CPU's clock: its rate against CLOCK_MONOTONIC_RAW, and the core's speed."""

from __future__ import annotations

from typing import NamedTuple

from opd_native._core import ffi, lib
from opd_native.errors import check


class TicksRate(NamedTuple):
    """``per_ns`` ticks a nanosecond, right to ``error`` (relative); ``invariant`` as CPUID says."""

    per_ns: float
    error: float
    invariant: bool


def calibrate(seconds: float = 0.05) -> TicksRate:
    """Compare both clocks for so long. Raises NativeError (EINVAL) for 0."""
    out = ffi.new("struct opd_ticks_rate *")
    check(lib.opd_ticks_calibrate(int(seconds * 1e9), out), "calibrate the clock")
    return TicksRate(out.per_ns, out.error, bool(out.invariant))


def core_ghz(adds: int = 20_000_000) -> float:
    """Cycles a nanosecond of this core now, by dependent additions; it also warms it up."""
    return float(lib.opd_core_ghz(adds))

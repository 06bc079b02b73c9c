"""Whole columns of numbers, without a step of Python a number (contract: opd/columns.h)."""

from __future__ import annotations

from array import array
from typing import Any

from opd_native._core import ffi, lib
from opd_native.errors import check

_WRAP = 1 << 64


def runs(items: Any, stride: int, count: int, size: int = 0) -> tuple[array[int], array[int]]:
    """Neighbours that are equal are one run: for each item its run, for each run its first item.

    ``items`` is C memory or a buffer of ``count`` items of ``stride`` bytes, of
    which the first ``size`` are compared (0: all).
    """
    which, firsts = array("I", bytes(4 * count)), array("I", bytes(4 * count))
    data = items if isinstance(items, ffi.CData) else ffi.from_buffer(items)
    found = lib.opd_runs(data, stride, size or stride, count, _u32(which), _u32(firsts))
    del firsts[found:]
    return which, firsts


def gather(table: array[int], which: array[int]) -> array[int]:
    """``table[index]`` for each index, both u32. Raises NativeError ERANGE."""
    out = array("I", bytes(4 * len(which)))
    check(
        lib.opd_gather(_u32(table), len(table), _u32(which), len(which), _u32(out)),
        "look up a column",
    )
    return out


def shifted(values: array[int], delta: int, *, but_zero: bool = False) -> array[int]:
    """The u64 numbers plus ``delta``, modulo 2**64; with ``but_zero`` a 0 stays."""
    out = array("Q", values)
    lib.opd_shift(_u64(out), len(out), delta % _WRAP, but_zero)
    return out


def steps(values: array[int], before: int) -> array[int]:
    """Each u64 number less the one before, the first less ``before``, modulo 2**64."""
    out = array("Q", bytes(8 * len(values)))
    lib.opd_steps(_u64(values), len(values), before, _u64(out))
    return out


def _u32(column: array[int]) -> Any:
    return ffi.from_buffer("uint32_t[]", column)


def _u64(column: array[int]) -> Any:
    return ffi.from_buffer("uint64_t[]", column)

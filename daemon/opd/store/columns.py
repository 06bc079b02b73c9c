"""A window's packed columns as arrays, checked, and its rows summed and sorted."""

from __future__ import annotations

from array import array
from operator import floordiv, sub
from typing import TYPE_CHECKING, NamedTuple

from opd.errors import StoreError

if TYPE_CHECKING:
    from opd.sampling.window import Window

COMM_BYTES = 16
_SYMBOL_BITS = 32
_SYMBOL_MASK = (1 << _SYMBOL_BITS) - 1


class Columns(NamedTuple):
    """See opd.sampling.window.Window; every index is known to be in range."""

    row_sfile: array[int]
    row_stack: array[int]
    row_hits: array[int]
    row_weight: array[int]
    sfile_event: array[int]
    sfile_mode: bytes
    sfile_tgid: array[int]
    sfile_tid: array[int]
    sfile_cpu: array[int]
    sfile_image: array[int]
    stack_start: array[int]
    frame_image: array[int]
    frame_address: array[int]


def read_columns(window: Window) -> Columns:
    """The columns of a window. StoreError names what does not fit."""
    rows, sfiles, stacks = window.rows, window.sfiles, window.stacks
    start = _column(window, "stack_start", "I", stacks + 1)
    frames = start[-1]
    if start[0] != 0 or any(map(int.__gt__, start, start[1:])):
        raise StoreError("invalid window: stack_start does not ascend from 0")
    if len(window.stack_flags) != stacks or len(window.sfile_mode) != sfiles:
        raise StoreError("invalid window: stack_flags or sfile_mode has another length")
    if len(window.sfile_comm) != sfiles * COMM_BYTES:
        raise StoreError("invalid window: sfile_comm has another length")
    columns = Columns(
        row_sfile=_column(window, "row_sfile", "I", rows),
        row_stack=_column(window, "row_stack", "I", rows),
        row_hits=_column(window, "row_hits", "Q", rows),
        row_weight=_column(window, "row_weight", "Q", rows),
        sfile_event=_column(window, "sfile_event", "H", sfiles),
        sfile_mode=window.sfile_mode,
        sfile_tgid=_column(window, "sfile_tgid", "i", sfiles),
        sfile_tid=_column(window, "sfile_tid", "i", sfiles),
        sfile_cpu=_column(window, "sfile_cpu", "i", sfiles),
        sfile_image=_column(window, "sfile_image", "I", sfiles),
        stack_start=start,
        frame_image=_column(window, "frame_image", "I", frames),
        frame_address=_column(window, "frame_address", "Q", frames),
    )
    if rows and (max(columns.row_sfile) >= sfiles or max(columns.row_stack) >= stacks):
        raise StoreError("invalid window: a row names a sample file or stack that is not there")
    if rows and min(columns.row_hits) == 0:
        raise StoreError("invalid window: a row without hits")
    return columns


def _column(window: Window, name: str, code: str, count: int) -> array[int]:
    column = array(code)
    data: bytes = getattr(window, name)
    if len(data) != count * column.itemsize:
        raise StoreError(
            f"invalid window: {name} has {len(data)} bytes, not {count * column.itemsize}"
        )
    column.frombytes(data)
    return column


class Groups(NamedTuple):
    """Rows summed by (sample file, symbol), and the rows in order of their stacks.

    ``units``: what a hit of each event weighs at least; weight is
    hits * unit + excess, and excess is mostly 0. ``row_step`` is the number
    of a row's stack less that of the row before.
    """

    units: dict[int, int]
    sfile: list[int]
    symbol: list[int]
    hits: list[int]
    excess: list[int]
    row_sfile: list[int]
    row_step: list[int]
    row_hits: list[int]
    row_excess: list[int]


def group_rows(columns: Columns, symbols: list[int], stacks: list[int]) -> Groups:
    """Sum and sort; ``symbols`` and ``stacks`` give each stack's leaf name and number."""
    units = _units(columns)
    sfiles, all_hits = columns.row_sfile, columns.row_hits
    sfile_unit = [units[event] for event in columns.sfile_event]
    excess = [
        weight - hits * sfile_unit[sfile]
        for sfile, hits, weight in zip(sfiles, all_hits, columns.row_weight, strict=True)
    ]
    sums: dict[int, list[int]] = {}
    for sfile, stack, hits, more in zip(sfiles, columns.row_stack, all_hits, excess, strict=True):
        key = sfile << _SYMBOL_BITS | symbols[stack]
        entry = sums.get(key)
        if entry is None:
            sums[key] = [hits, more]
        else:
            entry[0] += hits
            entry[1] += more
    keys = sorted(sums)
    numbers = [stacks[stack] for stack in columns.row_stack]
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    ordered = [numbers[index] for index in order]
    return Groups(
        units=units,
        sfile=[key >> _SYMBOL_BITS for key in keys],
        symbol=[key & _SYMBOL_MASK for key in keys],
        hits=[sums[key][0] for key in keys],
        excess=[sums[key][1] for key in keys],
        row_sfile=[sfiles[index] for index in order],
        row_step=list(map(sub, ordered, [0, *ordered[:-1]])),
        row_hits=[all_hits[index] for index in order],
        row_excess=[excess[index] for index in order],
    )


def _units(columns: Columns) -> dict[int, int]:
    """For each event, the least that one of its hits weighs."""
    events = set(columns.sfile_event)
    least = map(floordiv, columns.row_weight, columns.row_hits)
    if len(events) == 1:
        return {events.pop(): min(least, default=0)}
    units: dict[int, int] = {}
    for sfile, unit in zip(columns.row_sfile, least, strict=True):
        event = columns.sfile_event[sfile]
        if unit < units.get(event, 1 << 64):
            units[event] = unit
    return {event: units.get(event, 0) for event in events}

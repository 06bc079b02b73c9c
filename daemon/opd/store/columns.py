"""A window's packed columns as arrays, checked, and its rows put in groups."""

from __future__ import annotations

from array import array
from operator import floordiv
from typing import TYPE_CHECKING, NamedTuple

from opd.errors import StoreError

if TYPE_CHECKING:
    from opd.sampling.window import Window

COMM_BYTES = 16
_SYMBOL_BITS = 32
_STACK_BITS = 32
_SYMBOL_MASK = (1 << _SYMBOL_BITS) - 1
_STACK_MASK = (1 << _STACK_BITS) - 1


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
    """Rows put together by (sample file, symbol), in that order.

    ``units``: what a hit of each event weighs at least; weight is
    hits * unit + excess, and excess is mostly 0.
    """

    units: dict[int, int]
    sfile: list[int]
    symbol: list[int]
    hits: list[int]
    excess: list[int]
    rows: list[int]
    row_stack: list[int]
    row_hits: list[int]
    row_excess: list[int]


def group_rows(columns: Columns, symbols: list[int], stacks: list[int]) -> Groups:
    """Sort the rows; ``symbols`` and ``stacks`` give each stack's leaf name and number."""
    keys = [
        (sfile << _SYMBOL_BITS | symbols[stack]) << _STACK_BITS | stacks[stack]
        for sfile, stack in zip(columns.row_sfile, columns.row_stack, strict=True)
    ]
    units = _units(columns)
    sfile_unit = [units[event] for event in columns.sfile_event] if units else []
    groups = Groups(units, [], [], [], [], [], [], [], [])
    all_hits, all_weights = columns.row_hits, columns.row_weight
    last = -1
    at = -1
    for index in sorted(range(len(keys)), key=keys.__getitem__):
        key = keys[index]
        group = key >> _STACK_BITS
        hits = all_hits[index]
        sfile = group >> _SYMBOL_BITS
        excess = all_weights[index] - hits * sfile_unit[sfile]
        if group != last:
            last = group
            at += 1
            groups.sfile.append(sfile)
            groups.symbol.append(group & _SYMBOL_MASK)
            groups.hits.append(hits)
            groups.excess.append(excess)
            groups.rows.append(1)
        else:
            groups.hits[at] += hits
            groups.excess[at] += excess
            groups.rows[at] += 1
        groups.row_stack.append(key & _STACK_MASK)
        groups.row_hits.append(hits)
        groups.row_excess.append(excess)
    return groups


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

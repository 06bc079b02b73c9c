"""Sums blocks of a store by chosen cells; no Python per row of a block."""

from __future__ import annotations

import enum
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from opd_native._core import ffi, lib
from opd_native.errors import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NO_EVENT = (1 << 32) - 1
LARGEST_CELL = (1 << 32) - 1
_EBADMSG = 74
_E2BIG = 7
_ENOMEM = 12


class CellColumn(enum.IntEnum):
    """Where a cell comes from; the numbers are those of opd/scan.h."""

    EVENT = 0
    MODE = 1
    PID = 2
    THREAD = 3
    CPU = 4
    IMAGE = 5
    COMM = 6
    CGROUP = 7
    SYMBOL = 8


class _Operation(enum.IntEnum):
    SET = 0
    RANGE = 1
    AND = 2
    OR = 3
    NOT = 4


class Key(NamedTuple):
    """A cell of a row; with ``map`` (u32) it is ``map[value]``, 0 past its end."""

    column: CellColumn
    map: array[int] | None = None


class InSet(NamedTuple):
    """The cell's bit is set in ``bits`` (the lowest bit of the first byte is 0's)."""

    column: CellColumn
    bits: bytes | bytearray


class InRange(NamedTuple):
    """``low <= cell <= high``."""

    column: CellColumn
    low: int
    high: int


class Operator(enum.Enum):
    """Of the one or two results before."""

    AND = _Operation.AND
    OR = _Operation.OR
    NOT = _Operation.NOT


Step = InSet | InRange | Operator


class BadBlockError(ValueError):
    """A damaged block; nothing of it was added."""


class TooManyRowsError(ValueError):
    """More different rows than the scan may hold."""


class Rows(NamedTuple):
    """Heaviest first; ``cells`` has one column a key, ``numbers`` are for ``choose``."""

    cells: list[array[int]]
    numbers: array[int]
    samples: array[int]
    weight: array[int]


class Series(NamedTuple):
    """``row`` is the place among the chosen; in no order."""

    bucket: array[int]
    row: array[int]
    samples: array[int]
    weight: array[int]


class Total(NamedTuple):
    """Of one bucket and event; ``all_*``: before the filter."""

    bucket: int
    event: int
    samples: int
    weight: int
    all_samples: int
    all_weight: int


class BlockScan:
    """See opd/scan.h. Single threaded."""

    def __init__(
        self,
        keys: Sequence[Key],
        steps: Sequence[Step] = (),
        *,
        row_limit: int = 1 << 20,
    ) -> None:
        """``steps`` is the filter, operands before their operator. ValueError: it is not."""
        self._held: list[Any] = []
        self._keys = len(keys)
        native_keys = ffi.new("struct opd_scan_key[]", len(keys) or 1)
        for native, key in zip(native_keys, keys, strict=False):
            native.column = key.column
            if key.map is not None:
                native.map = self._hold("uint32_t[]", key.map)
                native.map_count = len(key.map)
        native_steps = ffi.new("struct opd_scan_test[]", len(steps) or 1)
        for native, step in zip(native_steps, steps, strict=False):
            if isinstance(step, Operator):
                native.operation = step.value
                continue
            native.column = step.column
            if isinstance(step, InSet):
                native.operation = _Operation.SET
                native.bits = self._hold("uint8_t[]", step.bits)
                native.bit_count = 8 * len(step.bits)
            else:
                native.operation = _Operation.RANGE
                native.low, native.high = step.low, step.high
        pointer = lib.opd_scan_create(native_keys, len(keys), native_steps, len(steps), row_limit)
        if pointer == ffi.NULL:
            if ffi.errno == _ENOMEM:
                raise MemoryError("no memory to sum blocks")
            raise ValueError("no keys, or a filter that is none")
        self._pointer = ffi.gc(pointer, lib.opd_scan_destroy)

    def _hold(self, kind: str, data: Any) -> Any:
        held = ffi.from_buffer(kind, data)
        self._held.append(held)
        return held

    def events(self, numbers: Iterable[int]) -> None:
        """Blocks from now on are of a run with these numbers for its events, or NO_EVENT."""
        made = array("I", numbers)
        check(
            lib.opd_scan_events(self._pointer, ffi.from_buffer("uint32_t[]", made), len(made)),
            "sum blocks",
        )

    def add(self, block: bytes, sfile_columns: int, bucket: int = 0) -> None:
        """Add an inflated block. Raises BadBlockError, TooManyRowsError."""
        data = ffi.from_buffer("uint8_t[]", block)
        rc = lib.opd_scan_add(self._pointer, data, len(block), sfile_columns, bucket)
        if rc == -_EBADMSG:
            raise BadBlockError("damaged block: its columns do not fit together")
        if rc == -_E2BIG:
            raise TooManyRowsError("too many different rows")
        check(rc, "sum blocks")

    def rows(self, limit: int = 0) -> Rows:
        """The ``limit`` heaviest rows and those that weigh as much as the last; 0: all."""
        out = ffi.new("struct opd_scan_rows *")
        check(lib.opd_scan_rows(self._pointer, limit, out), "sum blocks")
        cells = _copied("I", out.cells, out.rows * self._keys)
        return Rows(
            [cells[at :: self._keys] for at in range(self._keys)],
            _copied("I", out.number, out.rows),
            _copied("Q", out.samples, out.rows),
            _copied("Q", out.weight, out.rows),
        )

    def choose(self, numbers: Iterable[int]) -> None:
        """Begin the series of the rows of these numbers: what is added from now on is for them.

        The totals begin anew.
        """
        asked = array("I", numbers)
        native = ffi.from_buffer("uint32_t[]", asked)
        check(lib.opd_scan_choose(self._pointer, native, len(asked)), "sum blocks")

    def series(self) -> Series:
        """What the chosen rows have in each bucket where they have anything."""
        out = ffi.new("struct opd_scan_series *")
        check(lib.opd_scan_series(self._pointer, out), "sum blocks")
        return Series(
            *(_copied("I", column, out.entries) for column in (out.bucket, out.row)),
            *(_copied("Q", column, out.entries) for column in (out.samples, out.weight)),
        )

    def totals(self) -> list[Total]:
        """The sums of every bucket and event."""
        out = ffi.new("struct opd_scan_totals *")
        check(lib.opd_scan_totals(self._pointer, out), "sum blocks")
        columns = [_copied("I", column, out.entries) for column in (out.bucket, out.event)]
        columns += [
            _copied("Q", column, out.entries)
            for column in (out.samples, out.weight, out.all_samples, out.all_weight)
        ]
        return [Total(*row) for row in zip(*columns, strict=True)]


def _copied(code: str, pointer: Any, count: int) -> array[int]:
    made = array(code)
    made.frombytes(ffi.buffer(pointer, count * made.itemsize))
    return made

"""A window's frames, stacks and rows against what a store has numbered already.

And the two things a store does with whole columns: packing them in planes and
summing them into roll-ups. No Python per row.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from opd_native._core import ffi, lib
from opd_native.columns import runs
from opd_native.errors import check

if TYPE_CHECKING:
    from collections.abc import Sequence

_FRAME_BYTES = 16  # struct opd_condense_frame
_U32 = (1 << 32) - 1
_EBADMSG = 74
NAME_WORDS = 3  # number, name, kind of a new frame
_ABOUT = ("event", "comm", "image", "mode", "cgroup")


class Column(NamedTuple):
    """Numbers of ``width`` bytes in C memory, which their maker keeps until its next call."""

    pointer: Any
    width: int
    length: int

    def to_bytes(self) -> bytes:
        """Copy the numbers, little-endian."""
        return bytes(ffi.buffer(self.pointer, self.width * self.length))


class Condensed(NamedTuple):
    """A condensed window; the columns are those of opd/condense.h, valid until the next one."""

    new_stacks: int
    stack_columns: tuple[Column, ...]
    group_columns: tuple[Column, ...]
    row_columns: tuple[Column, ...]
    sfile_unit: Column
    kind_hits: tuple[int, int, int]
    event_kinds: list[tuple[int, int, int]]
    hits: int


class NewFrames(NamedTuple):
    """Frames that have no number yet, sorted.

    ``groups``: image uid, 1 for return addresses, and the index of the first
    of them in ``addresses`` (u64).
    """

    groups: list[tuple[int, int, int]]
    addresses: array[int]


class BadWindowError(ValueError):
    """A window whose columns do not fit together; ``str()`` says which."""


class Condenser:
    """Remembers the frames and stacks that a store has numbered. Single threaded."""

    def __init__(self, frame_limit: int, stack_limit: int) -> None:
        pointer = lib.opd_condenser_create(frame_limit, stack_limit)
        if pointer == ffi.NULL:
            raise MemoryError("no memory to condense windows")
        self._pointer = ffi.gc(pointer, lib.opd_condenser_destroy)
        self._held: list[Any] = []

    def forget(self) -> None:
        """Forget all numbers: the transaction that made the last ones failed."""
        lib.opd_condenser_forget(self._pointer)

    def begin(self, window: Any) -> NewFrames:
        """Take a window (see opd.sampling.window); its new frames.

        The window's columns must have the lengths that its counts promise.
        Raises BadWindowError.
        """
        native = ffi.new("struct opd_condense_window *")
        native.rows, native.sfiles, native.stacks = window.rows, window.sfiles, window.stacks
        native.frames = len(window.frame_image) // 4
        self._held = []
        for name, kind in (
            ("row_sfile", "uint32_t[]"),
            ("row_stack", "uint32_t[]"),
            ("row_hits", "uint64_t[]"),
            ("row_weight", "uint64_t[]"),
            ("sfile_event", "uint16_t[]"),
            ("stack_start", "uint32_t[]"),
            ("stack_flags", "uint8_t[]"),
            ("frame_image", "uint32_t[]"),
            ("frame_address", "uint64_t[]"),
        ):
            column = ffi.from_buffer(kind, getattr(window, name))
            self._held.append(column)
            setattr(native, name, column)
        frames = ffi.new("struct opd_condense_frame **")
        count = ffi.new("uint32_t *")
        reason = ffi.new("char **")
        rc = lib.opd_condense_begin(self._pointer, native, frames, count, reason)
        if rc == -_EBADMSG:
            raise BadWindowError(ffi.string(reason[0]).decode())
        check(rc, "condense a window")
        words = array("Q")  # image and caller in one, address
        words.frombytes(ffi.buffer(frames[0], _FRAME_BYTES * count[0]))
        _which, firsts = runs(frames[0], _FRAME_BYTES, count[0], size=8)
        return NewFrames(
            [(words[2 * at] & _U32, words[2 * at] >> 32, at) for at in firsts], words[1::2]
        )

    def end(self, names: array[int], first_stack: int, no_name: int) -> Condensed:
        """Finish the window; ``names`` are NAME_WORDS u32 for each new frame, in its order."""
        out = ffi.new("struct opd_condensed **")
        words = ffi.from_buffer("struct opd_condense_name[]", names)
        rc = lib.opd_condense_end(self._pointer, words, first_stack, no_name, out)
        self._held = []
        check(rc, "condense a window")
        done = out[0]
        stacks, groups, rows = done.new_stacks, done.groups, done.rows
        return Condensed(
            new_stacks=stacks,
            stack_columns=(
                Column(done.new_flags, 4, stacks),
                Column(done.new_length, 4, stacks),
                Column(done.new_shared, 4, stacks),
                Column(done.rest, 4, done.rest_count),
            ),
            group_columns=(
                Column(done.group_sfile, 4, groups),
                Column(done.group_symbol, 4, groups),
                Column(done.group_hits, 8, groups),
                Column(done.group_excess, 8, groups),
            ),
            row_columns=(
                Column(done.row_sfile, 4, rows),
                Column(done.row_step, 8, rows),
                Column(done.row_hits, 8, rows),
                Column(done.row_excess, 8, rows),
            ),
            sfile_unit=Column(done.sfile_unit, 8, done.sfiles),
            kind_hits=tuple(done.kind_hits),
            event_kinds=[tuple(done.event_kinds[3 * i : 3 * i + 3]) for i in range(done.events)],
            hits=done.hits,
        )

    def stacks(self, count: int, no_name: int) -> tuple[array[int], array[int]]:
        """The number and the leaf's name (by number) of each of the last window's stacks."""
        numbers, symbols = array("I", bytes(4 * count)), array("I", bytes(4 * count))
        rc = lib.opd_condense_stacks(
            self._pointer,
            no_name,
            ffi.from_buffer("uint32_t[]", numbers),
            ffi.from_buffer("uint32_t[]", symbols),
        )
        check(rc, "number a window's stacks")
        return numbers, symbols


def pack_planes(columns: Sequence[Column | array[int]]) -> bytes:
    """Give the planes of columns of unsigned numbers (see opd.store.blocks)."""
    native = ffi.new("struct opd_column[]", len(columns))
    held = []
    for i, column in enumerate(columns):
        if isinstance(column, Column):
            native[i].data, native[i].width, native[i].count = column
            continue
        data = ffi.from_buffer(column)
        held.append(data)
        native[i].data, native[i].width, native[i].count = data, column.itemsize, len(column)
    out = ffi.new("uint8_t[]", lib.opd_pack_bound(native, len(columns)))
    size = lib.opd_pack(native, len(columns), out)
    return bytes(ffi.buffer(out, size))


class RollupSums:
    """Flat sums of windows; see opd/rollup.h. Single threaded."""

    def __init__(self) -> None:
        pointer = lib.opd_rollup_create()
        if pointer == ffi.NULL:
            raise MemoryError("no memory for a roll-up")
        self._pointer = ffi.gc(pointer, lib.opd_rollup_destroy)

    def __len__(self) -> int:
        return int(lib.opd_rollup_count(self._pointer))

    def add(
        self,
        about: Sequence[array[int]],
        groups: Sequence[Column | array[int]],
        squares: array[float] | None = None,
    ) -> None:
        """Add a window's groups, or with ``squares`` a whole roll-up.

        ``about``: event, comm, image, mode, cgroup ("I") and unit ("Q") by
        sample file; ``groups``: sample file, symbol ("I"), hits and excess ("Q").
        Raises ValueError when they do not fit together.
        """
        native = ffi.new("struct opd_rollup_groups *")
        held = []

        def put(name: str, column: Column | array[int], kind: str) -> None:
            pointer = (
                column.pointer if isinstance(column, Column) else ffi.from_buffer(kind, column)
            )
            held.append(pointer)
            setattr(native, name, pointer)

        for name, column in zip(_ABOUT, about, strict=False):
            put(name, column, "uint32_t[]")
        put("unit", about[len(_ABOUT)], "uint64_t[]")
        put("sfile", groups[0], "uint32_t[]")
        put("symbol", groups[1], "uint32_t[]")
        put("hits", groups[2], "uint64_t[]")
        put("excess", groups[3], "uint64_t[]")
        native.sfiles = len(about[0])
        first = groups[0]
        native.groups = first.length if isinstance(first, Column) else len(first)
        if squares is not None:
            held.append(ffi.from_buffer("float[]", squares))
            native.squares = held[-1]
        rc = lib.opd_rollup_add(self._pointer, native)
        if rc == -_EBADMSG:
            raise ValueError("a group names a sample file that is not there")
        check(rc, "add to a roll-up")

    def take(self) -> tuple[Column, ...]:
        """Give and forget all sums, in order.

        Event, mode, image, comm, unit, cgroup by sample file; then sample
        file, symbol, hits, excess and squares (float) by group.
        """
        out = ffi.new("struct opd_rollup_columns **")
        check(lib.opd_rollup_take(self._pointer, out), "take a roll-up")
        done = out[0]
        sfiles, groups = done.sfiles, done.groups
        return (
            Column(done.event, 4, sfiles),
            Column(done.mode, 4, sfiles),
            Column(done.image, 4, sfiles),
            Column(done.comm, 4, sfiles),
            Column(done.unit, 8, sfiles),
            Column(done.cgroup, 4, sfiles),
            Column(done.sfile, 4, groups),
            Column(done.symbol, 4, groups),
            Column(done.hits, 8, groups),
            Column(done.excess, 8, groups),
            Column(done.squares, 4, groups),
        )

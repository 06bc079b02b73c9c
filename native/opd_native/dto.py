"""Two implementations of memcpy and its like, timed in turn (opd/dto.h).

Call it in a process made for measuring: each round is a process forked off it.
"""

from __future__ import annotations

import enum
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from opd_native._core import ffi, lib
from opd_native.errors import NativeError, check

if TYPE_CHECKING:
    from collections.abc import Sequence

KERNELS = ("libc", "avx512", "avx2", "sse2", "rep-movsb", "nt")
ITERATIONS_MOST = 10_000  # a round
ARMS = 4
_REASON = 256
_FIELDS = ("copy", "move", "set", "compare")


class Op(enum.IntEnum):
    """What is measured."""

    MEMCPY = 0
    MEMMOVE = 1
    MEMSET = 2
    MEMCMP = 3


class Pages(enum.IntEnum):
    """Which pages back the buffers."""

    BASE = 0
    HUGETLB_2M = 1
    THP = 2


class Arm(enum.IntEnum):
    """Columns of a round: each iteration measures all four once."""

    A = 0
    B = 1
    A_AGAIN = 2
    B_AGAIN = 3


class DtoError(NativeError):
    """A cell or a round that failed; ``str()`` says what."""

    def __init__(self, errno: int, reason: str) -> None:
        super().__init__(errno, reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Functions:
    """The four functions of an implementation, and what keeps them loaded.

    ``pointer``: a ``struct opd_dto_functions *``. ``holds``: what must live as
    long as they may be called.
    """

    def __init__(self, pointer: Any, holds: Any = None) -> None:
        self.pointer = pointer
        self.holds = holds

    def has(self, op: Op) -> bool:
        """Whether it has the function of that operation."""
        return bool(getattr(self.pointer, _FIELDS[op]))

    @classmethod
    def at(cls, addresses: Sequence[int], holds: Any = None) -> Functions:
        """Of the addresses of memcpy, memmove, memset, memcmp; 0: it has it not."""
        pointer = ffi.new("struct opd_dto_functions *")
        for name, address in zip(_FIELDS, addresses, strict=True):
            kind = ffi.typeof(getattr(pointer, name))
            setattr(pointer, name, ffi.cast(kind, address))
        return cls(pointer, holds)

    @property
    def addresses(self) -> tuple[int, ...]:
        """Where they are, 0 where there is none."""
        return tuple(int(ffi.cast("uintptr_t", getattr(self.pointer, n))) for n in _FIELDS)


def kernels(name: str) -> Functions:
    """One of KERNELS. Raises NativeError: ENOENT no such name, EOPNOTSUPP not on this CPU."""
    pointer = ffi.new("struct opd_dto_functions *")
    check(lib.opd_dto_kernels(name.encode(), pointer), f"kernel {name}")
    return Functions(pointer)


class Facts(NamedTuple):
    """How a cell is measured; bytes of its memory."""

    ticks_per_ns: float
    is_tsc: bool
    flush: str
    line_bytes: int
    bytes: int
    huge_bytes: int
    page_bytes: int


class Round(NamedTuple):
    """One round: ``ticks`` arm by arm, ``order`` the permutation's number of each iteration."""

    ticks: array[int]
    order: bytes
    iterations: int
    seed: int
    cpu: int
    moved: int
    drops: int
    faults: int
    major: int
    spent_ns: int
    turn_ticks: float

    def column(self, arm: Arm) -> array[int]:
        """The ticks of one arm, in order."""
        return self.ticks[arm * self.iterations : (arm + 1) * self.iterations]


class Cell:
    """One operation, size and kind of memory. Raises DtoError for what cannot be.

    ``pf``: per cent of iterations before whose operations a page is dropped.
    ``overlap``: memmove's destination is so far behind the source, in one
    buffer. ``cpu`` -1: not pinned. ``inject_fence``: all arms end in a fence and
    a chain of dependent additions, of which ``inject`` gives current more.
    """

    def __init__(
        self,
        baseline: Functions,
        current: Functions,
        *,
        op: Op,
        size: int,
        pages: Pages = Pages.BASE,
        cold: bool = False,
        pf: int = 0,
        source_offset: int = 0,
        destination_offset: int = 0,
        overlap: int = 0,
        cpu: int = -1,
        warmup: int = 0,
        round_limit: float = 60.0,
        seed: int = 0,
        inject_fence: bool = False,
        plain_clock: bool = False,
    ) -> None:
        options = ffi.new("struct opd_dto_options *")
        options.op, options.pages, options.size = op, pages, size
        options.cold, options.pf, options.cpu = cold, pf, cpu
        options.source_offset, options.destination_offset = source_offset, destination_offset
        options.overlap, options.warmup, options.seed = overlap, warmup, seed
        options.round_limit_ns = int(round_limit * 1e9)
        options.inject_fence, options.plain_clock = inject_fence, plain_clock
        options.baseline, options.current = baseline.pointer[0], current.pointer[0]
        self._functions = baseline, current
        self._reason = ffi.new("char[]", _REASON)
        out = ffi.new("struct opd_dto **")
        self._check(lib.opd_dto_create(options, out, self._reason))
        self._pointer = ffi.gc(out[0], lib.opd_dto_destroy)

    def facts(self) -> Facts:
        """What it came to on this machine."""
        out = ffi.new("struct opd_dto_facts *")
        lib.opd_dto_facts(self._pointer, out)
        return Facts(
            out.ticks_per_ns,
            bool(out.is_tsc),
            ffi.string(out.flush).decode(),
            out.line_bytes,
            out.bytes,
            out.huge_bytes,
            out.page_bytes,
        )

    def inject(self, turns: int) -> None:
        """So many turns of eight additions after each of current's operations (inject_fence)."""
        lib.opd_dto_inject(self._pointer, turns)

    def exchange(self, baseline: Functions, current: Functions) -> None:
        """Other functions, from the next round on."""
        self._functions = baseline, current
        lib.opd_dto_exchange(self._pointer, baseline.pointer, current.pointer)

    def round(self, iterations: int, *, verify: bool = False) -> Round:
        """Measure in a process of its own. Raises DtoError: it died, hung, or was wrong."""
        ticks = array("Q", bytes(8 * ARMS * iterations))
        order = bytearray(iterations)
        out = ffi.new("struct opd_dto_round *")
        self._check(
            lib.opd_dto_round(
                self._pointer,
                iterations,
                verify,
                ffi.from_buffer("uint64_t[]", ticks),
                ffi.from_buffer("uint8_t[]", order),
                out,
                self._reason,
            )
        )
        return Round(
            ticks,
            bytes(order),
            out.iterations,
            out.seed,
            out.cpu,
            out.moved,
            out.drops,
            out.faults,
            out.major,
            out.spent_ns,
            out.turn_ticks,
        )

    def close(self) -> None:
        """Give its memory back."""
        ffi.release(self._pointer)

    def _check(self, rc: int) -> None:
        if rc < 0:
            raise DtoError(-rc, ffi.string(self._reason).decode(errors="replace"))


def order_of(number: int) -> tuple[Arm, ...]:
    """The arms in the order that permutation ``number`` (0 to 23) runs them."""
    arms = ffi.new("uint8_t[]", ARMS)
    lib.opd_dto_order(number, arms)
    return tuple(Arm(arms[i]) for i in range(ARMS))


def blocks_of(taken: Round, block: int, *, mean: bool) -> tuple[list[float], list[float]]:
    """Logs of ratios of B to A, and of A again to A, of each ``block`` iterations.

    ``mean``: of the middle 80 %, else of medians. Raises NativeError (EDOM)
    where the clock saw no time pass.
    """
    most = max(1, taken.iterations // block)
    effect, null = ffi.new("double[]", most), ffi.new("double[]", most)
    ticks = ffi.from_buffer("uint64_t[]", taken.ticks)
    count = check(
        lib.opd_dto_blocks(ticks, taken.iterations, block, mean, effect, null), "blocks of samples"
    )
    return list(effect[0:count]), list(null[0:count])


def quantum_of(samples: array[int]) -> int:
    """The smallest step between two samples, 0 when all are the same."""
    return int(lib.opd_dto_quantum(ffi.from_buffer("uint64_t[]", samples), len(samples)))


class Hold:
    """Files of settings with other values, until ``release`` or the caller's end.

    Raises DtoError when one cannot be written; then none is changed.
    """

    def __init__(self, settings: Sequence[tuple[str, str]]) -> None:
        texts = [ffi.new("char[]", word.encode()) for pair in settings for word in pair]
        paths, values = (ffi.new("char *[]", texts[at::2]) for at in (0, 1))
        reason = ffi.new("char[]", _REASON)
        out = ffi.new("struct opd_dto_hold **")
        rc = lib.opd_dto_hold(paths, values, len(settings), out, reason)
        if rc < 0:
            raise DtoError(-rc, ffi.string(reason).decode(errors="replace"))
        self._pointer: Any = out[0]

    def release(self) -> None:
        """Put back what stood there."""
        if self._pointer is not None:
            lib.opd_dto_release(self._pointer)
            self._pointer = None

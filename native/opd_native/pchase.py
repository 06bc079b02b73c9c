"""What memory accesses cost (opd/pchase.h): chains chased, streams, a line passed on."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple

from opd_native._core import ffi, lib
from opd_native.errors import NativeError, check

if TYPE_CHECKING:
    from collections.abc import Sequence

CHAINS_MOST = 28
WORK_MOST = 65536
THREADS_MOST = 4096
LAPS_MOST = 8
AHEAD_MOST = 4096
_REASON = 256


class Access(enum.IntEnum):
    """The order of a chain's lines; PAGE_RANDOM: those of a page forward.

    SAME_SET: lines at one offset of all pages, then those at the next.
    """

    RANDOM = 0
    FORWARD = 1
    REVERSE = 2
    PAGE_RANDOM = 3
    SAME_SET = 4


class MmuPages(enum.IntEnum):
    """Which pages of the MMU back it."""

    BASE = 0
    THP = 1
    HUGETLB_2M = 2
    HUGETLB_1G = 3


class Hint(enum.IntEnum):
    """The prefetch that each step issues on the pointer it has."""

    NONE = 0
    T0 = 1
    T1 = 2
    T2 = 3
    NTA = 4


class Load(enum.IntEnum):
    """What a streaming thread does; bytes count its own loads and stores, as STREAM does."""

    READ = 0
    WRITE = 1
    COPY = 2
    TRIAD = 3
    NT_WRITE = 4
    NT_COPY = 5
    ZERO = 6
    QUAD = 7
    MOVSB = 8
    STOSB = 9


# Arrays of each.
ARRAYS = {Load.COPY: 2, Load.NT_COPY: 2, Load.MOVSB: 2, Load.TRIAD: 3, Load.QUAD: 4}


class Vector(enum.IntEnum):
    """How wide a stream's loads and stores are, in bytes; AUTO: 32, where the CPU has them."""

    AUTO = 0
    V16 = 1
    V32 = 2
    V64 = 3


class Row(NamedTuple):
    """One thread of one experiment (struct opd_pchase_row)."""

    steps: int
    bytes: int
    start_ns: int
    end_ns: int
    ticks: int
    cpu_ns: int
    ghz: float
    cpu: int
    moved: bool

    @property
    def ns(self) -> int:
        """How long it took."""
        return self.end_ns - self.start_ns


class Facts(NamedTuple):
    """What was built: ``nodes`` a chain, bytes in all and in huge pages, the loop's kind."""

    nodes: int
    bytes: int
    huge_bytes: int
    compiled: bool
    unroll: int


class ChaseError(NativeError):
    """What could not be built or run; ``str()`` says what."""

    def __init__(self, errno: int, reason: str) -> None:
        super().__init__(errno, reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Chase:
    """Chains (and streams) that are built once and run as often as asked.

    Sizes in bytes; ``stride`` in lines; ``cpus`` one a thread, chasers first;
    ``chain_nodes`` one a chain of each thread, -1 where the thread runs;
    ``load_node`` that of streams; ``laps`` each in an order of its own;
    ``ahead``: steps that the hint looks ahead.
    Either ``iterations`` (passes) or ``seconds``. ``at_speed``: the cores were
    busy until now, so that no time is spent on their clocks. Raises ChaseError.
    """

    def __init__(
        self,
        *,
        chain: int = 0,
        line: int = 64,
        page: int = 4096,
        access: Access = Access.RANDOM,
        stride: int = 1,
        chains: int = 1,
        threads: int = 1,
        pages: MmuPages = MmuPages.BASE,
        hint: Hint = Hint.NONE,
        work: int = 0,
        iterations: int = 0,
        seconds: float = 0.0,
        loaders: int = 0,
        load: Load = Load.READ,
        load_bytes: int = 0,
        load_delay: int = 0,
        cpus: Sequence[int] = (),
        chain_nodes: Sequence[int] = (),
        seed: int = 1,
        vector: Vector = Vector.AUTO,
        load_node: int = -1,
        ahead: int = 0,
        laps: int = 1,
        plain_c: bool = False,
        at_speed: bool = False,
    ) -> None:
        options = ffi.new("struct opd_pchase_options *")
        options.access, options.pages, options.hint = access, pages, hint
        options.work, options.chains, options.threads = work, chains, threads
        options.loaders, options.load, options.load_delay = loaders, load, load_delay
        options.stride, options.plain_c, options.at_speed = stride, plain_c, at_speed
        options.vector, options.ahead = vector, ahead
        options.laps, options.load_node = laps, load_node
        options.line, options.page, options.chain = line, page, chain
        options.load_bytes, options.iterations = load_bytes, iterations
        options.duration_ns, options.seed = int(seconds * 1e9), seed
        held: list[Any] = []
        for name, values, count in (
            ("cpus", cpus, threads + loaders),
            ("chain_nodes", chain_nodes, threads * chains),
        ):
            if values:
                if len(values) != count:
                    raise ChaseError(22, f"{name}: {len(values)} given, {count} needed")
                held.append(ffi.new("int32_t[]", list(values)))
                setattr(options, name, held[-1])
        out = ffi.new("struct opd_pchase **")
        self._reason = ffi.new("char[]", _REASON)
        self._check(lib.opd_pchase_create(options, out, self._reason))
        self._pointer = ffi.gc(out[0], lib.opd_pchase_destroy)
        self._count = threads + loaders

    def run(self) -> list[Row]:
        """One experiment of all threads, chasers first. Raises ChaseError."""
        rows = ffi.new("struct opd_pchase_row[]", self._count)
        self._check(lib.opd_pchase_run(self._pointer, rows, self._reason))
        return [
            Row(
                r.steps,
                r.bytes,
                r.start_ns,
                r.end_ns,
                r.ticks,
                r.cpu_ns,
                r.ghz,
                r.cpu,
                bool(r.moved),
            )
            for r in rows
        ]

    def facts(self) -> Facts:
        """What was built."""
        out = ffi.new("struct opd_pchase_facts *")
        lib.opd_pchase_facts(self._pointer, out)
        return Facts(out.nodes, out.bytes, out.huge_bytes, bool(out.compiled), out.unroll)

    def close(self) -> None:
        """Give the memory back now."""
        ffi.release(self._pointer)

    def _check(self, rc: int) -> None:
        if rc < 0:
            raise ChaseError(-rc, ffi.string(self._reason).decode(errors="replace"))


def has_load(load: Load, vector: Vector) -> bool:
    """Whether opd and this CPU have the stream at that width."""
    return bool(lib.opd_pchase_has_load(load, vector))


def pass_line(first: int, second: int, rounds: int = 100_000) -> float:
    """Nanoseconds to pass a cache line from one CPU to the other. Raises NativeError."""
    out = ffi.new("double *")
    rc = lib.opd_pchase_pass(first, second, rounds, out)
    check(rc, f"pass a line between CPUs {first} and {second}")
    return float(out[0])

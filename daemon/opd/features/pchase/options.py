"""What can be asked of the pointer chase."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from opd.features.declared import SIZE, ProbeOptions, about
from opd.features.pchase.placement import parse_placement
from opd_native.pchase import AHEAD_MOST, CHAINS_MOST, LAPS_MOST, THREADS_MOST, WORK_MOST

_SIZE_MOST = 1 << 44
# What each mode but chase looks at, beside options of all probes.
_STREAMS = frozenset(("threads", "load", "load_memory", "load_delay", "vector", "pin"))
_WALK = frozenset(("chain", "line", "mmu_page", "seconds", "seed"))
USED = {
    "curve": _WALK | {"page", "laps"},
    "tlb": _WALK | {"experiments", "laps"},
    "parallel": _WALK | {"page", "laps", "experiments"},
    "bandwidth": _STREAMS | {"mmu_page", "seconds", "experiments"},
    "cores": frozenset[str](),
    "numa": _WALK | {"page", "threads", "load_memory", "experiments"},
}
# What means something only where threads stream beside the chase.
_BESIDE = frozenset(("load", "load_memory", "load_delay", "vector"))

# What a thread that streams does.
Stream = Literal[
    "read",
    "write",
    "copy",
    "triad",
    "nt_write",
    "nt_copy",
    "zero",
    "quad",
    "movsb",
    "stosb",
]


class ChaseOptions(ProbeOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One measurement. Sizes take k, m, g; ``line`` is a multiple of 8."""

    exclusive = (("seconds", "iterations"),)

    mode: Annotated[
        Literal["chase", "curve", "tlb", "parallel", "bandwidth", "cores", "numa"],
        about(
            "chase: latency of chains; curve: latency by size, and the caches in it; tlb: what"
            " misses of small and huge pages add; parallel: one chain to as many as gain;"
            " bandwidth: streams; cores: a line passed between each two CPUs; numa: each"
            " node's memory from each node."
        ),
    ] = "chase"
    chain: Annotated[
        int, about("Bytes of a chain; curve: the largest.", ge=8, le=_SIZE_MOST, unit=SIZE)
    ] = 64 << 20
    line: Annotated[int, about("Bytes a node stands for.", ge=8, le=1 << 20, unit=SIZE)] = 64
    page: Annotated[
        int,
        about(
            "Bytes whose lines are all visited before the next page: the model's (DRAM) page."
            " 0: the whole chain.",
            ge=0,
            le=_SIZE_MOST,
            unit=SIZE,
        ),
    ] = 4096
    mmu_page: Annotated[
        Literal["4k", "thp", "2m", "1g"], about("Pages of the MMU that back it.")
    ] = "4k"
    chains: Annotated[int, about("Chains of a thread in flight at once.", ge=1, le=CHAINS_MOST)] = 1
    threads: Annotated[int, about("Threads that chase.", ge=1, le=THREADS_MOST)] = 1
    iterations: Annotated[
        int,
        about(
            "Passes of a chain in an experiment; 0: as many as fit in seconds.", ge=0, le=1 << 40
        ),
    ] = 0
    seconds: Annotated[float, about("Length of an experiment.", ge=0.001, le=3600)] = 0.5
    experiments: Annotated[int, about("Experiments that count.", ge=1, le=10_000)] = 5
    access: Annotated[
        Literal["random", "forward", "reverse", "page_random", "same_set"],
        about(
            "The order of a chain's lines. page_random: those of a page forward; same_set:"
            " those at one offset of all pages (page: a way of the cache), then the next."
        ),
    ] = "random"
    laps: Annotated[
        int,
        about(
            "Laps, each in an order of its own, before the first comes again: prefetchers that"
            " learn an order do not know the next. At most the words of a cache line.",
            ge=1,
            le=LAPS_MOST,
        ),
    ] = 1
    stride: Annotated[
        int, about("Lines from one node to the next, forward or reverse.", ge=1, le=1 << 30)
    ] = 1
    numa: Annotated[
        str,
        about(
            "Where chains are: local, xor:MASK, add:OFFSET (from the thread's node), or"
            " map:T/C.C;T/C.C (a thread's node and its chains')."
        ),
    ] = "local"
    hint: Annotated[
        Literal["none", "t0", "t1", "t2", "nta"], about("Prefetch issued on each pointer.")
    ] = "none"
    ahead: Annotated[
        int,
        about(
            "Steps that the hint looks ahead, by a second pointer in each node; 0: it is on the"
            " pointer that the next step loads, which gains nothing.",
            ge=0,
            le=AHEAD_MOST,
        ),
    ] = 0
    work: Annotated[int, about("No-operations between two steps.", ge=0, le=WORK_MOST)] = 0
    loaders: Annotated[
        int, about("Threads that stream beside the chase (loaded latency).", ge=0, le=THREADS_MOST)
    ] = 0
    load: Annotated[
        Stream,
        about(
            "What streaming threads do. triad: a = b + 3c; nt_…: past the cache; zero: writes"
            " zeros; quad: a = b + c + d; movsb, stosb: by rep movsb, rep stosb."
        ),
    ] = "read"
    vector: Annotated[
        Literal["auto", "16", "32", "64"],
        about("Bytes of a stream's loads and stores; auto: 32 where the CPU has them."),
    ] = "auto"
    load_memory: Annotated[
        int, about("Bytes of each array of a stream.", ge=65536, le=_SIZE_MOST, unit=SIZE)
    ] = 64 << 20
    load_delay: Annotated[
        int, about("Pauses of the CPU after each 4 KiB that a stream moved.", ge=0, le=1 << 20)
    ] = 0
    pin: Annotated[bool, about("Pin thread j to the j-th of the CPUs.")] = True
    seed: Annotated[int, about("Of the random order.", ge=0, le=1 << 62)] = 1

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        page = self.model_page
        for is_wrong, why in (
            (self.line % 8, f"line={self.line} is no multiple of 8 bytes, a pointer"),
            (
                self.chain % self.line,
                f"chain={self.chain} is no multiple of line={self.line}",
            ),
            (
                page % self.line or page < self.line,
                f"page={page} is no multiple of line={self.line}",
            ),
            (
                self.chain % page,
                (
                    f"chain={self.chain} is no multiple of page={page};"
                    f" the next is {-(-self.chain // page) * page}"
                ),
            ),
            (
                self.chain // self.line > (1 << 32) - 1,
                f"chain={self.chain} has more than 2^32 lines of {self.line}",
            ),
            (
                self.stride > 1 and self.access not in {"forward", "reverse"},
                "stride is of access=forward or reverse",
            ),
            (
                self.laps > min(self.line, 64) // 8,
                f"laps={self.laps} needs as many words (of 8 bytes) in a line={self.line}",
            ),
            (
                self.ahead and (self.hint == "none" or self.line < 16 or self.laps > 1),
                "ahead needs a hint, lines of 16 bytes or more, and one lap",
            ),
            (self.load_memory % 4096, "load_memory is a multiple of 4 KiB"),
        ):
            if is_wrong:
                raise ValueError(why)
        parse_placement(self.numa)

    @property
    def unused(self) -> list[str]:
        """Options that were changed, and that the mode does not look at."""
        known = {field.name: field.default for field in msgspec.structs.fields(ChaseOptions)}
        common = {field.name for field in msgspec.structs.fields(ProbeOptions)} | {"mode"}
        if self.mode == "chase":
            used = set(known) - (set() if self.loaders else _BESIDE)
        else:
            used = common | USED[self.mode]
        return [name for name in known if name not in used and getattr(self, name) != known[name]]

    @property
    def model_page(self) -> int:
        """The page of the model: a chain shorter than it is one page."""
        return min(self.page or self.chain, self.chain)

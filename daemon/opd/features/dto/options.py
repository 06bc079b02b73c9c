"""What can be asked of dto: one cell."""

from __future__ import annotations

from typing import Annotated, Literal

from opd.features.declared import SIZE, ProbeOptions, about
from opd_native.dto import ITERATIONS_MOST

_SIZE_MOST = 1 << 40
_NOT_GIVEN = -1

OpName = Literal["memcpy", "memmove", "memset", "memcmp"]
ModeName = Literal["cpu", "stdc", "dsa", "dsa_auto"]


class DtoOptions(ProbeOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cell: an operation on buffers of one size and kind, by two implementations."""

    op: Annotated[OpName, about("What is done.")] = "memcpy"
    size: Annotated[int, about("Bytes of an operation.", ge=1, le=_SIZE_MOST, unit=SIZE)] = 64 << 10
    mode: Annotated[
        ModeName,
        about(
            "cpu: the implementations as they are; stdc: a library that offloads is told not to;"
            " dsa: all is offloaded; dsa_auto: as much as pays."
        ),
    ] = "cpu"
    page: Annotated[
        Literal["4k", "2m"],
        about("Pages of the buffers; 2m: hugetlb where reserved, else transparent."),
    ] = "4k"
    cold: Annotated[
        bool, about("Flush both buffers from the caches before each operation, not only once.")
    ] = False
    pf: Annotated[
        int,
        about(
            "Per cent of operations before which a random page of the destination is dropped.",
            ge=0,
            le=100,
        ),
    ] = 0
    baseline: Annotated[
        str,
        about(
            "The implementation that was: libc avx512 avx2 sse2 rep-movsb nt, a library's path,"
            " git:REVISION or worktree."
        ),
    ] = "libc"
    current: Annotated[str, about("The implementation that is judged.")] = "libc"
    tree: Annotated[str, about("Directory of git:REVISION and worktree.")] = ""
    build: Annotated[str, about("Command that builds there.")] = ""
    current_build: Annotated[str, about("Another one for current.")] = ""
    artifact: Annotated[
        str, about("What it makes, a path in the tree: a shared library, an archive, an object.")
    ] = ""
    link: Annotated[str, about("Words for the linker of archives and objects, such as -lm.")] = ""
    build_limit: Annotated[
        float, about("Seconds after which a build is ended.", ge=0.1, le=86_400)
    ] = 600.0
    inject: Annotated[
        float,
        about("Per cent of its time that current is made to take longer.", ge=0, le=1000),
    ] = 0.0
    overlap: Annotated[
        int,
        about(
            "memmove: the destination begins so many bytes behind the source (below 0: before),"
            " in one buffer; 0: two buffers.",
            ge=-_SIZE_MOST,
            le=_SIZE_MOST,
        ),
    ] = 0
    source_offset: Annotated[
        int, about("Where the source begins in its first page.", ge=0, le=4095)
    ] = 0
    destination_offset: Annotated[
        int, about("Where the destination begins in its first page.", ge=0, le=4095)
    ] = 0
    rounds: Annotated[
        int, about("Processes of the first look; each further look doubles them.", ge=1, le=1000)
    ] = 10
    iterations: Annotated[
        int,
        about(
            "Iterations of a round, each of which measures both twice; 0: as many as take 25 ms,"
            " at least 250.",
            ge=0,
            le=ITERATIONS_MOST,
        ),
    ] = 0
    looks: Annotated[
        int, about("How often it may be looked whether it is decided.", ge=1, le=4)
    ] = 4
    layouts: Annotated[
        int,
        about(
            "Ways in which archives and objects are linked, measured in turn; 0: 8 up to 1 MiB,"
            " else 1.",
            ge=0,
            le=64,
        ),
    ] = 0
    warmup: Annotated[
        int,
        about("Iterations of a round before those that count; -1: by size.", ge=-1, le=100_000),
    ] = _NOT_GIVEN
    round_limit: Annotated[
        float, about("Seconds after which a round is ended as hung.", ge=0.1, le=86_400)
    ] = 60.0
    seed: Annotated[
        int, about("Of the order of arms; 0: from the clock.", ge=0, le=(1 << 32) - 1)
    ] = 0
    reference: Annotated[
        bool, about("For reference: its verdict decides no exit status and no family.")
    ] = False
    perf_cpu: Annotated[
        int, about("CPU to measure on; -1: CPU 1, else the first allowed.", ge=-1, le=1 << 20)
    ] = _NOT_GIVEN
    perf_core_freq_mhz: Annotated[
        int, about("Pin the CPU's frequency, where that may be; 0: leave it.", ge=0, le=100_000)
    ] = 2000
    perf_uncore_freq_mhz: Annotated[
        int, about("Pin the uncore's frequency, where that may be; 0: leave it.", ge=0, le=100_000)
    ] = 2000
    perf_min_effect: Annotated[
        float,
        about(
            "Per cent that is too much: OK is surely below. The lower margin goes with it.",
            ge=0.01,
            le=1000,
        ),
    ] = 2.0
    perf_ab_rounds: Annotated[
        int, about("Rounds, exactly: one look. 0: as rounds and looks say.", ge=0, le=1000)
    ] = 0
    perf_iters: Annotated[
        int,
        about(
            "Iterations of a round, exactly, capped at 10,000: one look. 0: as iterations say.",
            ge=0,
            le=1 << 40,
        ),
    ] = 0
    perf_short: Annotated[bool, about("One round of 100 iterations, to see whether it works.")] = (
        False
    )
    perf_cold_cache: Annotated[
        int, about("1: as cold=1, 0: as cold=0; -1: as cold says.", ge=-1, le=1)
    ] = _NOT_GIVEN
    results_dir: Annotated[str, about("Where distributions.csv is to be written.")] = ""
    what: Annotated[
        Literal["times", "answers"],
        about(
            "times: one cell is measured; answers: both sides' four functions are tried beside"
            " libc's (suite=functional)."
        ),
    ] = "times"
    threshold: Annotated[
        int,
        about(
            "answers: the size around which to try more; 0: where a library begins to offload.",
            ge=0,
            le=1 << 30,
            unit=SIZE,
        ),
    ] = 0
    largest: Annotated[
        int,
        about(
            "answers: the largest size tried; 0: four times the threshold, at least 256 KiB.",
            ge=0,
            le=1 << 32,
            unit=SIZE,
        ),
    ] = 0
    threads: Annotated[int, about("answers: threads that try at once.", ge=1, le=64)] = 4
    random_cases: Annotated[
        int,
        about("answers: cases drawn by each thread, signal handler, child.", ge=1, le=1_000_000),
    ] = 200
    queues: Annotated[
        tuple[str, ...], about("dsa: names of queues to use, such as wq0.0; none: all.")
    ] = ()
    wait: Annotated[
        Literal["busypoll", "yield", "umwait", "tpause"],
        about("dsa: how a completion is waited for; the last two need a CPU with WAITPKG."),
    ] = "busypoll"
    near: Annotated[bool, about("dsa: take queues of the CPU's own node first.")] = False
    dsa_timeout: Annotated[
        float,
        about(
            "dsa: seconds after which a device that does not complete is given up.",
            ge=0.001,
            le=600,
        ),
    ] = 2.0

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        if 0 < self.largest < 64 or 0 < self.largest < self.threshold:
            raise ValueError(f"largest={self.largest}: 64 or more, and not below the threshold")
        if self.overlap and self.op != "memmove":
            raise ValueError(
                f"overlap={self.overlap}: buffers of {self.op} may not overlap; only memmove's may"
            )
        if self.overlap and (self.source_offset or self.destination_offset):
            raise ValueError("overlap and offsets: the overlap itself says where both begin")
        if self.overlap and self.pf:
            raise ValueError("overlap and pf: the dropped page would be the source's too")

    @property
    def is_cold(self) -> bool:
        """Whether each operation begins with cold caches."""
        return self.cold if self.perf_cold_cache < 0 else bool(self.perf_cold_cache)

    @property
    def memory_bytes(self) -> int:
        """Of both buffers, and of what one round's results are compared with."""
        page = 2 << 20 if self.page == "2m" else 4096
        mapped = -(-(self.size + abs(self.overlap) + 4096) // page) * page
        return (mapped if self.overlap else 2 * mapped) + self.size

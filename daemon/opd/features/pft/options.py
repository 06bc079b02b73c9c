"""What can be asked of the page-fault test."""

from __future__ import annotations

from typing import Annotated, Literal

from opd.features.declared import SIZE, ProbeOptions, about
from opd.features.pft.kinds import KINDS, KindName
from opd.probes.measuring import SAMPLES_MOST
from opd_native.pft import NODES_MOST, WORKERS_MOST, Touch

MEMORY = 256 << 20
_SAMPLES = 12  # of a repeat, at most, and one of each worker
_SIZE_MOST = 1 << 62
_DIRECTORY = "/var/tmp"  # noqa: S108 - on a disk; files are made by mkostemp and unlinked

PolicyName = Literal[
    "none", "default", "preferred", "bind", "interleave", "weighted_interleave", "local"
]


class PftOptions(ProbeOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One measurement: its memory is divided among its workers."""

    exclusive = (
        ("memory", "memory_each"),
        ("threads", "processes"),
        ("cachelines", "clear"),
        ("nodes", "node"),
    )

    kind: Annotated[KindName, about("Which page faults.")] = "anon"
    folio: Annotated[
        int,
        about(
            "Bytes of a folio (kind=mthp), 64k for one; 0: the largest that is enabled.",
            ge=0,
            le=1 << 40,
            unit=SIZE,
        ),
    ] = 0
    memory: Annotated[
        int,
        about(
            "Memory of all workers together.",
            ge=1,
            le=_SIZE_MOST,
            unit=SIZE,
        ),
    ] = MEMORY
    memory_each: Annotated[
        int,
        about(
            "Memory of each worker, instead of memory; 0: not given.",
            ge=0,
            le=_SIZE_MOST,
            unit=SIZE,
        ),
    ] = 0
    threads: Annotated[
        int, about("Workers that are threads of one process.", ge=1, le=WORKERS_MOST)
    ] = 1
    processes: Annotated[
        int, about("Workers that are processes, instead of threads.", ge=0, le=WORKERS_MOST)
    ] = 0
    repeats: Annotated[int, about("Repeats that count.", ge=1, le=100_000)] = 10
    warmup: Annotated[
        int,
        about(
            "Repeats before them that do not count: memory that the host has not given yet is"
            " slow. The kernel's own count of faults is taken in the last of them.",
            ge=0,
            le=1000,
        ),
    ] = 1
    cachelines: Annotated[int, about("Cache lines written in each page.", ge=1, le=65536)] = 1
    line: Annotated[
        int, about("Bytes of a cache line; 0: as the CPU says.", ge=0, le=4096, unit=SIZE)
    ] = 0
    clear: Annotated[bool, about("Clear each page instead of writing lines of it.")] = False
    mlock: Annotated[bool, about("Lock each worker's memory instead of touching it.")] = False
    shm_lock: Annotated[bool, about("SHM_LOCK the segment (kind=shm).")] = False
    multimap: Annotated[bool, about("Each worker maps its own memory.")] = False
    packed: Annotated[
        bool, about("Workers' memory side by side, in page tables that they may share.")
    ] = False
    policy: Annotated[PolicyName, about("Memory policy set by mbind; none: no call.")] = "none"
    nodes: Annotated[tuple[int, ...], about("Nodes of the policy.")] = ()
    node: Annotated[
        int, about("The one node of the policy; a list of them sweeps.", ge=-1, le=NODES_MOST - 1)
    ] = -1
    cpu_node: Annotated[
        int, about("Pin workers to this node's CPUs only; -1: to all.", ge=-1, le=NODES_MOST - 1)
    ] = -1
    numa: Annotated[
        bool, about("Keep where the pages lie: numa_maps of the last repeat that counts.")
    ] = False
    pin: Annotated[bool, about("Pin worker j to the j-th of the CPUs.")] = True
    cpu_offset: Annotated[
        int, about("The first worker's place among the CPUs.", ge=0, le=1 << 20)
    ] = 0
    delay: Annotated[
        float, about("Seconds that workers but the first sleep at their end.", ge=0, le=3600)
    ] = 0.0
    pause: Annotated[
        float,
        about("Seconds that memory stays at the end, for somebody to look.", ge=0, le=3600),
    ] = 0.0
    latency: Annotated[bool, about("One more repeat that times each page, for percentiles.")] = True
    rusage: Annotated[
        Literal["thread", "self"], about("Whose usage is read; self: as old kernels have to.")
    ] = "thread"
    directory: Annotated[str, about("Where files to fault in are made.")] = _DIRECTORY
    noclear: Annotated[bool, about("Pages not cleared: needs a patched kernel.")] = False
    tag: Annotated[str, about("Text of the TAG line of --format pft.")] = ""
    plotid: Annotated[str, about("PLOTID line of --format pft and agr.")] = ""
    title: Annotated[str, about("TITLE line of --format pft and agr.")] = ""
    subtitle: Annotated[str, about("SUBTITLE line of --format pft and agr.")] = ""
    legend: Annotated[str, about("LEGEND line of --format pft and agr.")] = ""

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        for is_wrong, why in [*self._wrong_work(), *self._wrong_nodes()]:
            if is_wrong:
                raise ValueError(why)

    def _wrong_work(self) -> list[tuple[bool, str]]:
        kind = self.kind
        writes = KINDS[kind].touch is Touch.WRITE
        return [
            (
                self.threads > 1 and self.processes > 0,
                (
                    f"threads={self.threads} and processes={self.processes}: workers are one"
                    " or the other"
                ),
            ),
            (
                self.memory != MEMORY and self.memory_each > 0,
                "memory and memory_each: give one of them",
            ),
            (
                self.clear and self.cachelines != 1,
                "clear and cachelines: a cleared page has all its lines written",
            ),
            (self.shm_lock and kind != "shm", f"shm_lock needs kind=shm, got kind={kind}"),
            (
                (self.mlock or self.clear) and not writes,
                f"kind={kind} is no write: mlock and clear do not go with it",
            ),
            (
                self.repeats > (most := SAMPLES_MOST // (_SAMPLES + self.workers)),
                (
                    f"repeats={self.repeats} of {self.workers} workers are more than"
                    f" {SAMPLES_MOST} samples: at most {most}"
                ),
            ),
            (self.line & (self.line - 1) > 0, f"line={self.line} is no power of two"),
            (self.mlock and self.clear, "mlock and clear: give one of them"),
            (self.folio > 0 and kind != "mthp", f"folio needs kind=mthp, got kind={kind}"),
            (
                self.noclear,
                (
                    "noclear needs a kernel patched with MPOL_MF_NOCLEAR; no released kernel has"
                    " it, so pages are always cleared"
                ),
            ),
        ]

    def _wrong_nodes(self) -> list[tuple[bool, str]]:
        policy, nodes = self.policy, self.wanted_nodes
        return [
            (self.cpu_node >= 0 and not self.pin, "cpu_node pins: it does not go with pin=false"),
            (self.node >= 0 and bool(self.nodes), "node and nodes: give one of them"),
            (
                policy in {"bind", "interleave", "weighted_interleave"} and not nodes,
                f"policy={policy} needs nodes, such as nodes=0+1",
            ),
            (
                bool(nodes) and policy in {"none", "default", "local"},
                f"nodes are of policy=bind, preferred or interleave, not {policy}",
            ),
            (policy == "preferred" and len(nodes) > 1, "policy=preferred takes one node"),
            (
                any(not 0 <= node < NODES_MOST for node in self.nodes),
                f"nodes are 0 to {NODES_MOST - 1}, got {self.nodes}",
            ),
        ]

    @property
    def wanted_nodes(self) -> tuple[int, ...]:
        """The nodes of the policy."""
        return (self.node,) if self.node >= 0 else self.nodes

    @property
    def workers(self) -> int:
        """How many there are."""
        return self.processes or self.threads

    def pages_each(self, page: int) -> int:
        """Pages of one worker: the memory, divided and rounded up."""
        if self.memory_each:
            return -(-self.memory_each // page)
        return -(-self.memory // page // self.workers)

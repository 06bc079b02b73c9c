"""What pchase offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.errors import OperationFailedError, UsageError
from opd.features.declared import Feature, Metric, Need, Probe
from opd.features.hookspecs import hookimpl
from opd.features.pchase.building import VECTORS
from opd.features.pchase.examples import EXAMPLES
from opd.features.pchase.matrices import nodes_bound
from opd.features.pchase.measure import measure
from opd.features.pchase.options import ChaseOptions
from opd.features.pchase.original import as_csv, header, rows_alone
from opd.features.pft.machine import NUMA_REFUSED, REFUSED, check_huge, check_thp
from opd.probes.room import cpus_of
from opd_native.pchase import ARRAYS, Chase, ChaseError, Load, has_load

if TYPE_CHECKING:
    from collections.abc import Sequence

METRICS = (
    Metric(name="latency_ns", unit="ns", summary="of a step: one load of each chain in flight"),
    Metric(name="ns_per_load", unit="ns", summary="latency_ns by the chains in flight"),
    Metric(
        name="bandwidth_bytes_per_second",
        unit="B/s",
        better="higher",
        summary="chase: whole lines; streams: what is loaded and stored",
    ),
    Metric(
        name="bus_bytes_per_second",
        unit="B/s",
        better="higher",
        summary="with the lines that stores read first",
    ),
    Metric(name="load_bytes_per_second", unit="B/s", better="higher", summary="beside the chase"),
    Metric(name="l1_ns", unit="ns", summary="of the first level that the curve shows"),
    Metric(name="l2_ns", unit="ns"),
    Metric(name="l3_ns", unit="ns"),
    Metric(name="local_ns", unit="ns", summary="random in 256 KiB at a time: few TLB misses"),
    Metric(name="tlb_ns", unit="ns", summary="what misses of small pages add to that"),
    Metric(name="huge_ns", unit="ns", summary="random over all of it, in huge pages"),
    Metric(name="huge_tlb_ns", unit="ns", summary="what misses of huge pages add"),
    Metric(
        name="parallelism",
        unit="loads",
        better="higher",
        summary="latency of one chain by the least ns_per_load of several",
    ),
    Metric(name="remote_ns", unit="ns", summary="latency of another node's memory"),
    Metric(name="remote_bytes_per_second", unit="B/s", better="higher"),
    Metric(name="pass_ns", unit="ns", summary="a line from one CPU to the other"),
)
SUITES = {
    "mlp": "chain=16m,page=0,chains=1+2+4+6+8+10+12+16+20+24",
    "caches": "mode=curve,chain=256m,page=256k,mmu_page=4k+thp",
    "tlb": "page=256k+0,mmu_page=4k+thp",
    "loaded": "page=0,loaders=1,load_delay=0+64+256+1024+4096+32768",
    "mixes": "page=0,loaders=1,load=read+quad+triad+copy+nt_copy+nt_write,load_delay=0+512",
    "bandwidth": "mode=bandwidth,load=read+write+copy+triad+nt_write+nt_copy,threads=1+2",
    "writes": "mode=bandwidth,load=write+zero+stosb+nt_write,vector=16+32",
    "hints": "page=0,hint=none+t0+t1+t2+nta,work=0+100+500",
    "ahead": "page=0,hint=t0,ahead=0+1+2+4+8+16",
}
_HUGE_KIB = {"2m": 2048, "1g": 1 << 20}


def needs(options: ChaseOptions) -> Need:
    """What it takes; what is not there is refused, with what is there instead."""
    cpus = cpus_of(options)
    chains = options.chain * options.chains * options.threads
    load, vector = Load[options.load.upper()], VECTORS[options.vector]
    streaming = options.mode in {"bandwidth", "numa"} or options.loaders
    if streaming and not has_load(load, vector):
        raise OperationFailedError(
            f"load={options.load},vector={options.vector}: this CPU has no such instructions",
            hint="there are: " + " ".join(w for w, v in VECTORS.items() if has_load(load, v)),
        )
    arrays = ARRAYS.get(load, 1)
    streams = options.load_memory * arrays
    memory, threads = {
        "chase": (chains + streams * options.loaders, options.threads + options.loaders),
        "curve": (options.chain, 1),
        "tlb": (3 * options.chain, 1),
        "parallel": (options.chain, 1),
        "bandwidth": (streams * options.threads, options.threads),
        "cores": (0, 2),
        "numa": (options.chain + options.load_memory * len(cpus), len(cpus)),
    }[options.mode]
    if options.mmu_page in _HUGE_KIB and memory:
        # Of mode=tlb one chain of three is in huge pages.
        huge = options.chain if options.mode == "tlb" else memory
        check_huge(_HUGE_KIB[options.mmu_page], huge)
    elif options.mmu_page == "thp":
        check_thp()
    try:
        _rehearse(options, nodes_bound(options, cpus))
    except ValueError as error:
        raise UsageError(str(error)) from error
    if options.mode == "cores" and len(cpus) < 2:
        raise OperationFailedError("mode=cores needs two CPUs, and one is allowed")
    # The order of lines and pages, while a chain is built.
    return Need(memory_bytes=memory + options.chain // options.line * 4, threads=threads)


def _rehearse(options: ChaseOptions, nodes: Sequence[int]) -> None:
    """One page on each node. OperationFailedError: the kernel does not place memory.

    ValueError: a chain of hugetlb pages that share one with the next cannot be placed.
    """
    kib = _HUGE_KIB.get(options.mmu_page, 0)
    if nodes and kib and options.chain % (kib << 10):
        raise ValueError(
            f"chain={options.chain} on a node of its own is no multiple of"
            f" mmu_page={options.mmu_page}, {kib << 10} bytes"
        )
    for node in nodes:
        try:
            Chase(chain=4096, iterations=1, chain_nodes=[node]).close()
        except ChaseError as error:
            asked = "mode=numa" if options.mode == "numa" else f"numa={options.numa}"
            raise OperationFailedError(
                f"{asked}: memory cannot be placed here: {error}",
                hint=NUMA_REFUSED if error.errno in REFUSED else None,
            ) from error


PCHASE = Probe(
    name="pchase",
    summary="memory accesses: latency of pointer chains, caches, bandwidth, lines between CPUs",
    options=ChaseOptions,
    metrics=METRICS,
    measure=measure,
    needs=needs,
    suites=SUITES,
    examples=EXAMPLES,
    texts={"pchase": as_csv, "pchase-csv": rows_alone, "pchase-header": header},
)


@hookimpl
def opd_ext_features() -> list[Feature]:
    """The feature that offers the probe."""
    return [Feature(name="pchase", summary=PCHASE.summary, probes=(PCHASE,))]

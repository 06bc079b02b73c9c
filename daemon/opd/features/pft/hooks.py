"""What pft offers."""

from __future__ import annotations

from opd.features.declared import Feature, Metric, Probe
from opd.features.hookspecs import hookimpl
from opd.features.pft.examples import EXAMPLES
from opd.features.pft.machine import needs
from opd.features.pft.measure import measure
from opd.features.pft.options import PftOptions
from opd.features.pft.original import as_agr, as_pft

METRICS = (
    Metric(name="faults_per_cpu_second", unit="1/s", better="higher", summary="measured faults"),
    Metric(name="faults_per_wall_second", unit="1/s", better="higher", summary="measured faults"),
    Metric(name="pages_per_cpu_second", unit="1/s", better="higher"),
    Metric(name="pages_per_wall_second", unit="1/s", better="higher"),
    Metric(name="ns_per_fault", unit="ns", summary="CPU time of the workers"),
    Metric(name="ns_per_page", unit="ns", summary="CPU time of the workers"),
    Metric(name="unmap_ns_per_page", unit="ns"),
    Metric(name="latency_p50_ns", unit="ns", summary="of a page's touch"),
    Metric(name="latency_p99_ns", unit="ns"),
    Metric(name="latency_p999_ns", unit="ns"),
    Metric(name="faults_measured", unit="count", better="neither", summary="of a repeat"),
    Metric(name="pages", unit="count", better="neither", summary="of a repeat"),
)
SUITES = {
    "kinds": "memory=64m,kind=anon+shm+shmem+memfd+memfd_cow+fault_around+file+file_write+file_cow"
    "+zero_page+zero_cow+fork_cow+fork_reuse+refault+map_populate+populate_read+populate_write"
    "+mlock+mlock_onfault+dontneed",
    "scaling": "memory_each=64m,threads=1+2+4+8",
}

PFT = Probe(
    name="pft",
    summary="page faults: rates and latencies of every kind, by threads or processes",
    options=PftOptions,
    metrics=METRICS,
    measure=measure,
    needs=needs,
    sets_fifo=True,
    suites=SUITES,
    examples=EXAMPLES,
    texts={"pft": as_pft, "agr": as_agr},
)


@hookimpl
def opd_ext_features() -> list[Feature]:
    """The feature that offers the probe."""
    return [Feature(name="pft", summary=PFT.summary, probes=(PFT,))]

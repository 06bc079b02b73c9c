"""What dto offers."""

from __future__ import annotations

from opd.features.declared import Feature, Metric, Need, Probe
from opd.features.dto.cells import cpu_of, pages_of
from opd.features.dto.implementations import check, sources_of
from opd.features.dto.measure import measure
from opd.features.dto.modes import check_mode
from opd.features.dto.options import DtoOptions
from opd.features.hookspecs import hookimpl
from opd.probes.room import cpus_of

METRICS = (
    Metric(name="baseline_ns", unit="ns", better="neither", summary="an operation of the baseline"),
    Metric(name="current_ns", unit="ns", better="neither", summary="an operation of the current"),
    Metric(
        name="change_percent",
        unit="%",
        better="neither",
        summary="of blocks: current by baseline, more is slower",
    ),
    Metric(name="ratio", unit="1", summary="of blocks: current by baseline; history is of this"),
    Metric(
        name="order",
        unit="number",
        better="neither",
        summary="of the permutation of the four arms, each iteration",
    ),
)


def needs(options: DtoOptions) -> Need:
    """What it takes; what is not there is refused, with what is there instead."""
    check_mode(options.mode)
    cpu_of(options, cpus_of(options))
    pages_of(options)
    check(sources_of(options), [options.op])
    return Need(memory_bytes=options.memory_bytes)


DTO = Probe(
    name="dto",
    summary="memcpy, memmove, memset, memcmp: two implementations compared, with a verdict",
    options=DtoOptions,
    metrics=METRICS,
    measure=measure,
    needs=needs,
)


@hookimpl
def opd_ext_features() -> list[Feature]:
    """The feature that offers the probe."""
    return [Feature(name="dto", summary=DTO.summary, probes=(DTO,))]

"""What dto offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.errors import OperationFailedError
from opd.features.declared import Feature, Metric, Need, Probe
from opd.features.dto import functional
from opd.features.dto.cells import cpu_of, pages_of
from opd.features.dto.dsa import check_device
from opd.features.dto.examples import EXAMPLES
from opd.features.dto.implementations import Sources, check, runs_code, sources_of
from opd.features.dto.measure import measure
from opd.features.dto.options import DtoOptions
from opd.features.dto.pictures import pictures_of_run
from opd.features.dto.suite import SUITES
from opd.features.dto.tables import as_dto, write_files
from opd.features.dto.trying import prepare
from opd.features.hookspecs import hookimpl
from opd.probes.room import cpus_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opd.probes.measuring import Measuring

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
    Metric(name="cases", unit="count", better="neither", summary="tried by suite=functional"),
    Metric(name="differences", unit="count", summary="from libc, of these cases"),
)


def needs(options: DtoOptions) -> Need:
    """What it takes; what is not there is refused, with what is there instead."""
    if options.what == "answers":
        return functional.needs(options)
    cpu_of(options, cpus_of(options))
    missing = ""
    try:
        check_device(options)
        pages_of(options)
    except OperationFailedError as error:
        missing = str(error)
    check(sources_of(options), [options.op])
    return Need(memory_bytes=options.memory_bytes, missing=missing)


def _runs_code(options: DtoOptions) -> str:
    return runs_code(sources_of(options))


def _prepare(all_options: Sequence[DtoOptions], tell: Callable[[str], None]) -> None:
    """Build and try all that is compared, each once."""
    needed: dict[Sources, set[str]] = {}
    for options in all_options:
        operations = needed.setdefault(sources_of(options), set())
        if options.what == "times":
            operations.add(options.op)
    for sources, operations in needed.items():
        if runs_code(sources):
            prepare(sources, sorted(operations), tell)


def measure_any(options: DtoOptions, run: Measuring) -> None:
    """Times, or answers, as asked."""
    if options.what == "answers":
        functional.measure(options, run)
    else:
        measure(options, run)


DTO = Probe(
    name="dto",
    summary="memcpy, memmove, memset, memcmp: two implementations compared, with a verdict",
    options=DtoOptions,
    metrics=METRICS,
    measure=measure_any,
    needs=needs,
    suites=SUITES,
    examples=EXAMPLES,
    texts={"dto": as_dto},
    runs_code=_runs_code,
    prepare=_prepare,
    files=write_files,
    pictures=pictures_of_run,
)


@hookimpl
def opd_ext_features() -> list[Feature]:
    """The feature that offers the probe."""
    return [Feature(name="dto", summary=DTO.summary, probes=(DTO,))]

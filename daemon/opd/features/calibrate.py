"""The built-in feature ``calibrate``: a probe of what measuring itself costs on this machine.

Its loops do a known, small thing. So it shows how still the machine holds, and
what a probe of more interesting things can hope to see.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal

from opd.features.declared import SIZE, Feature, Metric, Need, Probe, ProbeOptions, about
from opd.features.hookspecs import hookimpl

if TYPE_CHECKING:
    from opd.probes.measuring import Measuring

_TICK_SECONDS = 0.1


class CalibrateOptions(ProbeOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the probe ``calibrate``."""

    what: Annotated[
        Literal["loop", "syscall", "clock"],
        about("What is timed: dependent multiplications, a system call, or reading the clock."),
    ] = "loop"
    work: Annotated[int, about("Multiplications a turn of the loop.", ge=1, le=1 << 20)] = 100
    turns: Annotated[int, about("Turns a sample.", ge=1, le=1 << 32)] = 1000
    samples: Annotated[int, about("Samples a repeat.", ge=1, le=100_000)] = 25
    repeats: Annotated[int, about("How often.", ge=1, le=10_000)] = 10
    memory: Annotated[
        int, about("Fresh memory that each repeat writes to, 0: none.", ge=0, unit=SIZE)
    ] = 0
    rest: Annotated[float, about("Seconds that it waits after each repeat.", ge=0, le=3600)] = 0.0


def _measure(options: CalibrateOptions, run: Measuring) -> None:
    from opd_native.calibrate import calibrate, calibrate_touch

    for repeat in range(options.repeats):
        column = calibrate(
            options.what, work=options.work, turns=options.turns, samples=options.samples
        )
        run.samples("ns_per_turn", (ns / options.turns for ns in column), repeat=repeat)
        if options.memory:
            pages = max(1, options.memory // 4096)
            run.sample("ns_per_page", calibrate_touch(options.memory) / pages, repeat=repeat)
        run.progress(repeat + 1, options.repeats)
        _wait(options.rest)


def _wait(seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _TICK_SECONDS))


PROBE = Probe(
    name="calibrate",
    summary="what measuring costs here: a loop, a system call, the clock",
    options=CalibrateOptions,
    metrics=(
        Metric(name="ns_per_turn", unit="ns", summary="Of one turn."),
        Metric(name="ns_per_page", unit="ns", summary="Of the first write to a page."),
    ),
    measure=_measure,
    needs=lambda options: Need(memory_bytes=options.memory),
    suites={"all": "what=loop+syscall+clock"},
)


@hookimpl
def opd_ext_features() -> list[Feature]:
    """The feature, whose all is its probe."""
    return [
        Feature(
            name="calibrate",
            summary="measures what measuring costs on this machine",
            probes=(PROBE,),
        )
    ]

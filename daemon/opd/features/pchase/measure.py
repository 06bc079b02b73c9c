"""The pointer chase in the probe's process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.features.pchase.building import (
    PAGES,
    SPEED,
    VECTORS,
    built,
    remark,
    remark_huge,
    ticks_rate,
)
from opd.features.pchase.explore import measure_curve, measure_parallel, measure_tlb
from opd.features.pchase.matrices import measure_cores, measure_numa
from opd.stats.distribution import median
from opd_native.errors import NativeError
from opd_native.pchase import Chase, ChaseError, Load

if TYPE_CHECKING:
    from opd.features.pchase.options import ChaseOptions
    from opd.probes.measuring import Measuring
    from opd_native.pchase import Row

# A store to the cache reads its line first; one past the cache does not.
_BUS = {"write": 2.0, "copy": 1.5, "triad": 4 / 3, "quad": 5 / 4}
# What the CPU makes of these is its own.
_BUS_UNKNOWN = ("zero", "movsb", "stosb")


def measure(options: ChaseOptions, run: Measuring) -> None:
    """One measurement in the mode asked for."""
    modes = {
        "chase": _chase,
        "curve": measure_curve,
        "tlb": measure_tlb,
        "parallel": measure_parallel,
        "bandwidth": _bandwidth,
        "cores": measure_cores,
        "numa": measure_numa,
    }
    if options.unused:
        run.note(f"mode={options.mode} has no use for: {' '.join(options.unused)}")
    try:
        modes[options.mode](options, run)
    except ChaseError as error:
        run.void(error.reason)
    except NativeError as error:
        run.void(str(error))


def _chase(options: ChaseOptions, run: Measuring) -> None:
    rate = ticks_rate()
    if not rate.invariant:
        run.note("the TSC is not said to be invariant; times are CLOCK_MONOTONIC_RAW's")
    chase = built(options, run)
    facts = chase.facts()
    run.detail("chain", facts._asdict() | {"single_cycle": True, "ticks_per_ns": rate.per_ns})
    if options.mmu_page == "thp":
        remark_huge(chase, run)
    if not facts.compiled:
        run.note("the loop is the compiler's: code made at run time is not possible here")
    experiments = []
    for index in range(options.experiments):
        rows = chase.run()
        chasers, loaders = rows[: options.threads], rows[options.threads :]
        experiments.append(_tell(options, chasers, loaders, index, run))
        run.progress(index + 1, options.experiments)
    run.detail("experiments", experiments)
    chase.close()
    run.stats(_own(options, experiments))


def _own(options: ChaseOptions, experiments: list[dict[str, Any]]) -> dict[str, int | float | str]:
    """What ``opctl stats pchase`` says of the last run beside its metrics."""
    return {
        "last_options": _asked(options),
        "last_latency_ns": median(one["latency_ns"] for one in experiments),
        "last_loads": sum(sum(one["steps"]) for one in experiments) * options.chains,
        "last_elapsed_seconds": sum(one["elapsed_seconds"] for one in experiments),
        "last_core_ghz": median(ghz for one in experiments for ghz in one["core_ghz"]),
        "last_ticks_per_ns": ticks_rate().per_ns,
    }


def _tell(
    options: ChaseOptions, chasers: list[Row], loaders: list[Row], index: int, run: Measuring
) -> dict[str, Any]:
    # A latency is of the CPU's time: a thread that waited for a CPU waited for
    # no memory. A bandwidth is of the clock's.
    latency = sum(row.cpu_ns for row in chasers) / sum(row.steps for row in chasers)
    lines = sum(row.steps / row.ns for row in chasers) * 1e9 * options.chains
    run.sample("latency_ns", latency, repeat=index)
    run.sample("ns_per_load", latency / options.chains, repeat=index)
    run.sample("bandwidth_bytes_per_second", lines * options.line, repeat=index)
    if loaders:
        run.sample(
            "load_bytes_per_second",
            sum(row.bytes / row.ns for row in loaders) * 1e9,
            repeat=index,
        )
    for number, row in enumerate(chasers if len(chasers) > 1 else ()):
        run.sample("latency_ns", row.cpu_ns / row.steps, repeat=index, worker=number)
    remark(chasers + loaders, run)
    return {
        "elapsed_seconds": max(row.ns for row in chasers) / 1e9,
        "elapsed_ticks": max(row.ticks for row in chasers),
        "steps": [row.steps for row in chasers],
        "latency_ns": latency,
        "bandwidth_bytes_per_second": lines * options.line,
        "core_ghz": [round(row.ghz, 3) for row in chasers],
    }


def _bandwidth(options: ChaseOptions, run: Measuring) -> None:
    cpus = [run.cpus[i % len(run.cpus)] for i in range(options.threads)]
    streams = Chase(
        threads=0,
        loaders=options.threads,
        load=Load[options.load.upper()],
        load_bytes=options.load_memory,
        load_delay=options.load_delay,
        vector=VECTORS[options.vector],
        pages=PAGES[options.mmu_page],
        seconds=options.seconds,
        cpus=cpus if options.pin else (),
        at_speed=SPEED.is_up(cpus),
    )
    streams.run()  # the first is not counted: it warms up
    more = _BUS.get(options.load, 1.0)
    for index in range(options.experiments):
        rows = streams.run()
        rate = sum(row.bytes / row.ns for row in rows) * 1e9
        run.sample("bandwidth_bytes_per_second", rate, repeat=index)
        if options.load not in _BUS_UNKNOWN:
            run.sample("bus_bytes_per_second", rate * more, repeat=index)
        remark(rows, run)
        run.progress(index + 1, options.experiments)
    streams.close()
    run.stats({"last_options": _asked(options), "last_bytes_per_second": rate})


def _asked(options: ChaseOptions) -> str:
    """The options that were given, for ``opctl stats``."""
    from opd.probes.plan import changed_text

    return changed_text(options) or "as they are"

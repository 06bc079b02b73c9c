"""Where opd's CPU goes, by its own account: ns a sample by stage, between two looks.

The first look comes after some windows, so that what a start costs and names
that are met for the first time are mostly behind it.
"""

from __future__ import annotations

import time
from typing import Any

from bench.harness.figures import Plot, Series
from bench.harness.loads import KNOWN_LOADS, builder, running
from bench.harness.opd import Opd
from bench.harness.section import Context, Section


def run(context: Context) -> None:
    """One daemon a load and rate."""
    loads = context.options.loads or context.choose(["mixed", "forks"], ["mixed"])
    rows: dict[str, list[str]] = {}
    cases = [(load, rate) for load in loads for rate in context.rates([99, 999, 9999], [999])]
    bars: dict[str, list[list[float | str]]] = {}
    for load, rate in cases:
        found = _case(context, load, rate)
        for stage, nanoseconds in found.items():
            rows.setdefault(stage, ["-"] * len(cases))[cases.index((load, rate))] = (
                f"{nanoseconds:.0f}"
            )
            bars.setdefault(stage, []).append([f"{load} {rate}", max(nanoseconds, 1.0)])
        context.save()
    context.table(
        "CPU by stage, ns a further sample, as opd tells it",
        ["stage", *(f"{load} {rate} Hz" for load, rate in cases)],
        [[stage, *cells] for stage, cells in rows.items()],
    )
    series = [Series(stage, points) for stage, points in bars.items() if stage != "all"]
    series.sort(key=lambda each: -max(float(point[1]) for point in each.points))
    context.plot(
        Plot("CPU by stage, the largest eight", "case", "ns/sample", series[:8], "bars", "log")
    )


def _case(context: Context, load: str, rate: int) -> dict[str, float]:
    account, others = context.account("opd"), context.account("load")
    before_s, between_s = context.choose((25, 60), (6, 10))
    with builder() as loads:
        commands = KNOWN_LOADS[load].commands(loads)
        with running(others, *commands), Opd(account, "-e", f"cpu-clock:{rate}hz") as opd:
            context.progress(f"stages: {load}, {rate} Hz")
            time.sleep(before_s)
            first = _look(opd)
            time.sleep(between_s)
            second = _look(opd)
    context.close_account(account)
    context.close_account(others)
    more = max(second["samples"] - first["samples"], 1)
    earlier = {(row["stage"], row["process"]): row["cpu_seconds"] for row in first["stages"]}
    found = {}
    for row in second["stages"]:
        seconds = row["cpu_seconds"] - earlier.get((row["stage"], row["process"]), 0.0)
        found[row["stage"]] = 1e9 * seconds / more
    found["all"] = 1e9 * (second["cpu_seconds"] - first["cpu_seconds"]) / more
    for stage, nanoseconds in found.items():
        name = stage.replace(" ", "_").replace(",", "").replace("'", "")
        context.figure(f"stages.{load}.{rate}.{name}", nanoseconds, "ns/sample")
    return found


def _look(opd: Opd) -> dict[str, Any]:
    opd.ask("dump")
    cost: dict[str, Any] = opd.ask("status", "--cost")["cost"]
    return cost


SECTION = Section("stages", "where opd's CPU goes: ns a sample by stage, by its own account", run)

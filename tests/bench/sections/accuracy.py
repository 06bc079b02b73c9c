"""Shares of three functions, opd's against the program's own account of its CPU time."""

from __future__ import annotations

import subprocess

from bench.harness.loads import builder
from bench.harness.opd import Opd
from bench.harness.section import Context, Section

BUILDS = {
    "PIE": ("-pie", "-fPIE"),
    "static": ("-static",),
    "separate-code": ("-Wl,-z,separate-code",),
    "noseparate-code": ("-Wl,-z,noseparate-code",),
}
GOAL_POINTS = 1.5


def shares(values: dict[str, float]) -> dict[str, float]:
    """Give percent of the sum."""
    total = sum(values.values()) or 1
    return {name: 100 * value / total for name, value in values.items()}


def run(context: Context) -> None:
    """Run each build under opd and compare both accounts."""
    seconds, rate = context.choose(10, 3), context.rates([999], [999])[0]
    rows, worst_of_all = [], 0.0
    with builder() as loads:
        for build, flags in BUILDS.items():
            program = loads.build("three_functions.c", *flags, name=f"three-{build}")
            account = context.account("opd")
            with Opd(account, "-e", f"cpu-clock:{rate}hz") as opd:
                command = [program, str(seconds)]
                done = subprocess.run(command, capture_output=True, check=True, text=True)
                opd.ask("dump")
                answer = opd.ask("report", "--sort", "image,symbol", "--top", "0")
            context.close_account(account)
            own = shares({n: float(v) for n, v in map(str.split, done.stdout.splitlines())})
            weights = {
                row["symbol"]: row["weight"]
                for row in answer["rows"]
                if row["image"] == str(program) and row["symbol"] in own
            }
            sampled = shares(weights)
            worst = max(abs(own[name] - sampled.get(name, 0)) for name in own)
            worst_of_all = max(worst, worst_of_all)
            cells = [f"{own[name]:.2f} / {sampled.get(name, 0):.2f}" for name in own]
            rows.append([build, *cells, f"{worst:.2f}"])
    context.table(
        f"Share of CPU time in %, own / opd's, {rate} Hz, {seconds:g} s on two threads",
        ["build", "work_large", "work_middle", "work_small", "worst difference"],
        rows,
    )
    context.figure(
        "accuracy.worst", worst_of_all, "points", note=f"goal: within {GOAL_POINTS} points"
    )


SECTION = Section(
    "accuracy", "shares of three functions against the program's own account of its CPU", run
)

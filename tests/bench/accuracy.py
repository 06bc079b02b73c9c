"""Shares of three functions, opd's against the program's own account of its CPU time."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from harness import Opd, compile_load, table

BUILDS = {
    "PIE": ("-pie", "-fPIE"),
    "static": ("-static",),
    "separate-code": ("-Wl,-z,separate-code",),
    "noseparate-code": ("-Wl,-z,noseparate-code",),
}


def shares(values: dict[str, float]) -> dict[str, float]:
    """Give percent of the sum."""
    total = sum(values.values())
    return {name: 100 * value / total for name, value in values.items()}


def main(seconds: float = 10.0, rate: int = 999) -> None:
    """Run each build under opd and print both accounts."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="opd-bench-load-") as folder:
        for build, flags in BUILDS.items():
            program = Path(folder) / f"three-{build}"
            compile_load("three_functions.c", program, *flags)
            with Opd("-e", f"cpu-clock:{rate}hz") as opd:
                done = subprocess.run(
                    [program, str(seconds)], capture_output=True, check=True, text=True
                )
                opd.ask("dump")
                answer = opd.ask("report", "--sort", "image,symbol", "--top", "0")
            own = shares({n: float(v) for n, v in map(str.split, done.stdout.splitlines())})
            weights = {
                row["symbol"]: row["weight"]
                for row in answer["rows"]
                if row["image"] == str(program) and row["symbol"] in own
            }
            sampled = shares(weights)
            worst = max(abs(own[name] - sampled.get(name, 0)) for name in own)
            cells = [f"{own[name]:.2f} / {sampled.get(name, 0):.2f}" for name in own]
            rows.append([build, *cells, f"{worst:.2f}"])
    table(
        f"Share of CPU time in %, own / opd's, {rate} Hz, {seconds:g} s on two threads",
        ["build", "work_large", "work_middle", "work_small", "worst difference"],
        rows,
    )
    print("  goal: within 1.5 points")

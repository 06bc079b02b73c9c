"""IBS samples: ns to decode a record, and from the record to rows beside a plain sample."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from bench.harness.section import Context, Section

ROOT = Path(__file__).parents[3]


def run(context: Context) -> None:
    """Build the program of C's own clock and run it a few times."""
    with tempfile.TemporaryDirectory(prefix="opd-bench-") as directory:
        program = Path(directory) / "bench_ibs"
        context.progress("ibs: building")
        sources = sorted((ROOT / "native/src").glob("*.c"))
        command = ["cc", "-O2", "-D_GNU_SOURCE", "-Inative/include", "tests/bench/bench_ibs.c"]
        subprocess.run(
            [*command, *sources, "-pthread", "-ldl", "-lm", "-o", program], check=True, cwd=ROOT
        )
        medians: dict[str, list[float]] = {}
        rows: dict[str, str] = {}
        for _ in range(context.repeat(5, 1)):
            context.progress("ibs: running")
            done = subprocess.run([program], check=True, capture_output=True, text=True)
            for line in done.stdout.splitlines():
                name, median, _best, of = line.split("\t")
                medians.setdefault(name, []).append(float(median))
                rows[name] = of
    for name, values in medians.items():
        context.median(f"ibs.{name.replace(',', '').replace(' ', '_')}", values, "ns/record")
    context.table(
        "An IBS record, ns (medians of passes over 4,096 records in memory)",
        ["what", "ns a record", "rows a record"],
        [
            [name, f"{sorted(values)[len(values) // 2]:.0f}", rows[name]]
            for name, values in medians.items()
        ],
    )


SECTION = Section("ibs", "an IBS record: decoding, derived events, rows; ns by C's own clock", run)

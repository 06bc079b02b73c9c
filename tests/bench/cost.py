"""CPU a further sample: the slope between a short and a long run, opd beside perf record."""

from __future__ import annotations

import time

from harness import Opd, Usage, median, perf_record, start_load, table

SHORT_S, LONG_S = 10.0, 40.0
NS = 1e9
BUDGET_NS = 1000


def opd_run(seconds: float, rate: int) -> Usage:
    """Sample the load for a time; names and storage included."""
    with Opd("-e", f"cpu-clock:{rate}hz") as opd:
        load = start_load(seconds)
        time.sleep(seconds)
        load.wait()
        opd.ask("dump")
        status = opd.ask("status")
        bytes_stored = opd.store_bytes()
        cpu = opd.stop()
    extra = {
        "bytes": bytes_stored,
        "drain": status["drain"]["cpu_seconds"],
        "worker": status["worker"]["cpu_seconds"],
        "pss": status["pss_bytes"],
        "lost": status["quality"]["lost"],
    }
    return Usage(cpu, status["samples"], extra)


def perf_run(seconds: float, rate: int) -> Usage:
    """Record the same load with perf, call chains by frame pointer."""
    load = start_load(seconds)
    usage = perf_record(seconds, "-g", "-F", str(rate), "-e", "cpu-clock:I")
    load.wait()
    return usage


def slope(short: Usage, long: Usage) -> float:
    """Give ns of CPU for each sample that the long run has more."""
    return (long.cpu_seconds - short.cpu_seconds) / (long.samples - short.samples) * NS


def main(repeats: int = 3, rate: int = 999) -> None:
    """Interleave both tools and print medians."""
    slopes: dict[str, list[float]] = {"opd": [], "perf record": []}
    fixed: dict[str, list[float]] = {"opd": [], "perf record": []}
    rows = []
    for turn in range(repeats):
        tools = [("opd", opd_run), ("perf record", perf_run)]
        for name, run in tools if turn % 2 == 0 else tools[::-1]:
            short, long = run(SHORT_S, rate), run(LONG_S, rate)
            each = slope(short, long)
            slopes[name].append(each)
            fixed[name].append(short.cpu_seconds - each * short.samples / NS)
            detail = ", ".join(f"{key} {value}" for key, value in long.extra.items())
            rows.append(
                [
                    name,
                    f"{short.cpu_seconds:.3f}",
                    str(short.samples),
                    f"{long.cpu_seconds:.3f}",
                    str(long.samples),
                    f"{each:.0f}",
                    detail,
                ]
            )
    table(
        f"CPU of all processes, {rate} Hz, call chains by frame pointer, mixed load",
        [
            "tool",
            f"{SHORT_S:g} s CPU",
            "samples",
            f"{LONG_S:g} s CPU",
            "samples",
            "ns/sample",
            "of the long run",
        ],
        rows,
    )
    ours, theirs = median(slopes["opd"]), median(slopes["perf record"])
    verdict = "met" if ours <= min(BUDGET_NS, theirs) else "missed"
    print(f"  slope, median: opd {ours:.0f} ns, perf {theirs:.0f} ns, ratio {ours / theirs:.2f}")
    print(f"  budget: {BUDGET_NS} ns and not above perf's: {verdict}")
    ours, theirs = median(fixed["opd"]), median(fixed["perf record"])
    print(f"  start and stop, median: opd {ours:.3f} s, perf {theirs:.3f} s (budget 0.3 s)")

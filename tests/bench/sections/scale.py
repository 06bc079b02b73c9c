"""One drain where there are hundreds of CPUs: recorded rings, multiplied, through the real drain.

The recordings are of an interpreter with deep stacks beside compilers, at 99
and 997 Hz on two CPUs, and are played as fast as if that load had had them for
itself. At 99 Hz three of four records tell of processes that come and go.
``bench_scale.c`` makes of them the rings of N CPUs, with processes of their own,
and lets ``opd_sampler_drain`` empty them five times a second. CPU times are those
of the draining threads.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench.harness import rings
from bench.harness.figures import Plot, Series
from bench.harness.native import built
from bench.harness.section import Context, Section

CPUS = (2, 32, 128, 512)
STAGES = ("copy", "order", "attribute", "hash")
MIB = 1 << 20
TURN_S = 0.2
HZ = {"mixed-99hz": 99, "mixed-997hz": 997}  # recordings, and samples a second of a busy CPU
FULL = 0.5  # of a core: a thread that is busier has no room for a burst


def play(program: Path, recording: Path, *, cpus: int, drains: int, seconds: float) -> Any:
    """Run the program once: values of the whole by name, and those of every thread."""
    command = [program, recording, cpus, drains, HZ[recording.name], seconds]
    done = subprocess.run(
        [str(word) for word in command], check=True, capture_output=True, text=True
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    values = [dict(word.split("=") for word in line[1:]) for line in lines]
    return values[0], [{key: int(value) for key, value in each.items()} for each in values[1:]]


def run(context: Context) -> None:
    """Play both recordings as ever more CPUs, with one draining thread and with more."""
    seconds = context.choose(10.0, 1.0)
    names = context.choose(list(HZ), ["mixed-99hz"])
    sizes = context.choose(CPUS, (2, 32))
    drains = context.choose((1, 2, 4), (1, 2))
    runs: dict[tuple[str, int, int], list[Any]] = {}
    with built("bench_scale") as program, tempfile.TemporaryDirectory() as folder:
        recordings = {}
        for name in names:
            data = (rings.FOLDER / f"{name}.rings").read_bytes()
            recordings[name] = Path(folder) / name
            recordings[name].write_bytes(rings.unpack(data, name))
        cases = [(name, cpus, 1) for name in names for cpus in sizes]
        cases += [(name, sizes[-1], each) for name in names for each in drains if each > 1]
        for _ in range(context.repeat(3)):
            for name, cpus, each in cases:
                context.progress(f"scale: {name}, {cpus} CPUs, {each} threads")
                # Ten times the samples say as much in a third of the time.
                length = seconds / 3 if "997" in name else seconds
                found = play(program, recordings[name], cpus=cpus, drains=each, seconds=length)
                measured = int(found[0]["turns"]) * TURN_S
                runs.setdefault((name, cpus, each), []).append((*found, measured))
    _same_answers(runs)
    _one_thread(context, {key: found for key, found in runs.items() if key[2] == 1})
    _memory(context, names[0], runs)
    _several(context, names, sizes[-1], runs)


def _same_answers(runs: dict[tuple[str, int, int], list[Any]]) -> None:
    """Every sample comes out, at the same place whatever the number of threads."""
    sums: dict[tuple[str, int], set[str]] = {}
    for (name, cpus, _), found in runs.items():
        for whole, _threads, _length in found:
            if int(whole["fed"]) != int(whole["hits"]) + int(whole["idle"]) or int(whole["full"]):
                raise RuntimeError(f"{name}, {cpus} CPUs: samples were lost: {whole}")
            sums.setdefault((name, cpus), set()).add(whole["sum"])
    for (name, cpus), each in sums.items():
        if len(each) != 1:
            raise RuntimeError(f"{name}, {cpus} CPUs: threads disagree where samples were")


def _one_thread(context: Context, runs: dict[tuple[str, int, int], list[Any]]) -> None:
    rows, series = [], {}
    for (name, cpus, _), found in runs.items():
        threads = [(threads[0], length) for _, threads, length in found]
        of_sample = [each["cpu_ns"] / each["samples"] for each, _ in threads]
        core = [each["cpu_ns"] / length / 1e9 for each, length in threads]
        stages = [
            statistics.median([each[f"{stage}_ns"] / each["samples"] for each, _ in threads])
            for stage in STAGES
        ]
        samples, length = threads[0][0]["samples"], threads[0][1]
        others = threads[0][0]["records"] / samples - 1
        middle = statistics.median(of_sample)
        key = f"scale.{name}.{cpus}"
        context.median(f"{key}.sample", of_sample, "ns/sample", f"{others:.1f} other records each")
        context.median(f"{key}.core", [100 * each for each in core], "% of a core")
        context.figure(f"{key}.order", stages[1], "ns/sample")
        context.figure(f"{key}.most", 1e9 / middle, "samples/s", "of a thread that does no more")
        series.setdefault(name, []).append([float(cpus), middle])
        rows.append(
            [
                name,
                f"{cpus}",
                f"{samples / length:,.0f}",
                f"{others:.1f}",
                *(f"{each:.0f}" for each in stages),
                f"{middle:.0f}",
                f"{100 * statistics.median(core):.2f}",
                f"{1e9 / middle:,.0f}",
                f"{FULL * 1e9 / middle:,.0f}",
            ]
        )
    context.table(
        "One draining thread, ns a sample (what tells of processes included)",
        ["recording", "CPUs", "samples/s", "other records a sample", *STAGES, "all"]
        + ["% of a core", "samples/s at most", f"at {FULL:.0%} of a core"],
        rows,
    )
    context.plot(
        Plot(
            "One draining thread: CPU time a sample by number of CPUs",
            "CPUs",
            "ns/sample",
            [Series(name, points) for name, points in series.items()],
        )
    )


def _memory(context: Context, name: str, runs: dict[tuple[str, int, int], list[Any]]) -> None:
    rows = []
    for (which, cpus, drains), found in runs.items():
        if which != name or drains != 1:
            continue
        whole, threads, _ = found[-1]
        resident, thread = int(whole["resident"]), threads[0]
        rows.append(
            [
                f"{cpus}",
                f"{516 * cpus / 1024:.0f}",
                f"{thread['order_peak'] / MIB:.1f}",
                f"{thread['spaces'] / MIB:.1f}",
                f"{thread['hash'] / MIB:.1f}",
                f"{resident / MIB:.0f}",
                f"{resident / cpus / 1024:.0f}",
            ]
        )
        context.figure(f"scale.{cpus}.memory", resident / cpus / 1024, "KiB/CPU", "beside rings")
    context.table(
        f"Memory at {name}, MiB",
        ["CPUs", "rings", "order", "address spaces", "hash", "all but rings", "KiB a CPU"],
        rows,
    )


def _several(
    context: Context, names: list[str], cpus: int, runs: dict[tuple[str, int, int], list[Any]]
) -> None:
    rows = []
    for (name, size, drains), found in runs.items():
        if size != cpus:
            continue
        busiest = statistics.median(
            [int(whole["critical_ns"]) / length / 1e9 for whole, _, length in found]
        )
        total = statistics.median(
            [sum(each["cpu_ns"] for each in threads) / length / 1e9 for _, threads, length in found]
        )
        resident = int(found[-1][0]["resident"]) / MIB
        row = [f"{100 * busiest:.1f}", f"{100 * total:.1f}", f"{resident:.0f}"]
        rows.append([name, f"{drains}", *row])
        context.figure(f"scale.{name}.{cpus}.{drains}_threads", 100 * busiest, "% of a core")
    rows.sort(key=lambda row: (names.index(row[0]), int(row[1])))
    context.table(
        f"{cpus} CPUs shared by draining threads (each follows all processes): % of a core",
        ["recording", "threads", "the busiest thread", "all", "MiB but rings"],
        rows,
    )


SECTION = Section("scale", "128 and 512 CPUs' rings through one drain: ns, memory, threads", run)

"""Ways to count hits of a shared profile buffer, side by side on recorded and Zipf streams.

Streams are recorded (``record_streams.py``) or made by Zipf's law; a slot is as
large as the feature profile-hash has it. Updates are counted with every stream once through,
each CPU's hits in their order; a reader comes every 10,000 hits of a CPU, which
at 1000 Hz is opd's window of ten seconds, or never. Time is the CPU time of the
threads that count, in a tight loop: tables are warm, as they are not between
two ticks of a clock.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import streams
from bench.harness.figures import Plot, Series
from bench.harness.native import built
from bench.harness.section import Context, Section
from opd.features.profile_hash.options import SHIFT

if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW = 10_000
PAGES = (1, 2, 4, 8, 16)
DEFAULT_PAGES = 8  # what opd's own tables take; see docs/benchmarks.md
THREADS = (1, 2, 3, 4)
SEEDS_GAIN = 26.0
# What the program prints of a case: of which policy, pages, threads and window.
Case = tuple[str, int, int, int]


def run(context: Context) -> None:
    """Count updates, then time hits."""
    pages = context.choose(PAGES, (1, 4))
    threads = context.choose(THREADS, (1, 2))
    few = tuple(page for page in pages if page in {1, DEFAULT_PAGES})
    zipf = [streams.zipf(exponent, step=1 << SHIFT) for exponent in (0.8, 1.0, 1.2)]
    chosen = [*streams.recorded(), *zipf]
    if context.quick:
        chosen = chosen[:1] + chosen[-1:]
    counted: dict[str, dict[Case, tuple[float, int]]] = {}
    timed: dict[str, dict[Case, list[float]]] = {}
    with (
        built("bench_profile_hash", "profile_hash", "pc_hash*", "ticks") as program,
        tempfile.TemporaryDirectory() as folder,
    ):
        files = {each.name: streams.write_slots(each, SHIFT, Path(folder)) for each in chosen}
        for name, paths in files.items():
            context.progress(f"hash: counting {name}")
            lines = _lines(program, "count", (pages, (len(paths),), (0, WINDOW)), paths)
            counted[name] = {case: (updates / hits, size) for case, hits, updates, _, size in lines}
        for _ in range(context.repeat(5)):
            for name, paths in files.items():
                context.progress(f"hash: timing {name}")
                # Threads beyond one only where a table is small and where it is opd's.
                for lists in ((pages, threads[:1]), (few, threads[1:])):
                    for case, _, _, ns, _ in _lines(program, "time", (*lists, (WINDOW,)), paths):
                        timed.setdefault(name, {}).setdefault(case, []).append(ns)
    _streams(context, chosen)
    _updates(context, counted, pages)
    _one_page(context, counted)
    _times(context, timed, pages, threads)
    _figures(context, counted, timed)
    _plots(context, counted, timed, pages)


def _lines(
    program: Path, what: str, lists: tuple[tuple[int, ...], ...], paths: list[Path]
) -> Iterator[tuple[Case, int, int, float, int]]:
    """Run it for all pages, threads and windows: of a case hits, updates, ns a hit, bytes a CPU."""
    cases = [",".join(map(str, each)) for each in lists]
    command = [str(program), what, *cases, "1", *map(str, paths)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        policy, *rest = line.split("\t")
        page, thread, window, hits, updates = map(int, rest[:5])
        yield (policy, page, thread, window), hits, updates, float(rest[5]), int(rest[6])


def _streams(context: Context, chosen: list[streams.Stream]) -> None:
    rows = []
    for each in chosen:
        slots = each.slots(SHIFT)
        most = slots.most_common(10)
        rate = f"{each.rate}" if each.rate else "-"
        top = f"{100 * sum(hits for _, hits in most) / each.hits:.0f}"
        rows.append([each.name, rate, f"{each.hits}", f"{len(slots)}", top])
    context.table(
        f"Streams, in slots of {1 << SHIFT} bytes",
        ["stream", "Hz", "hits", "slots", "% in ten slots"],
        rows,
    )


def _policies(values: dict[Case, object]) -> list[str]:
    return list(dict.fromkeys(case[0] for case in values))


def _updates(
    context: Context, counted: dict[str, dict[Case, tuple[float, int]]], pages: tuple[int, ...]
) -> None:
    rows = []
    for name, cases in counted.items():
        for policy in _policies(cases):
            found = {case[1]: value for case, value in cases.items() if _is(case, policy, WINDOW)}
            row = [f"{100 * found[page][0]:.2f}" for page in pages]
            rows.append([name, policy, *row, f"{found[pages[0]][1] / 1024:.0f}"])
    context.table(
        f"Updates of the shared buffer in 100 hits, read every {WINDOW:,} hits of a CPU",
        ["stream", "policy", *(f"{page} page{'s' * (page > 1)}" for page in pages)]
        + [f"KiB a CPU at {pages[0]}"],
        rows,
    )


def _is(case: Case, policy: str, window: int) -> bool:
    return case[0] == policy and case[3] == window


def _one_page(context: Context, counted: dict[str, dict[Case, tuple[float, int]]]) -> None:
    rows = []
    for name, cases in counted.items():
        row = []
        for policy in _policies(cases):
            value = next(v for c, v in cases.items() if _is(c, policy, 0) and c[1] == 1)[0]
            row.append(f"{1 / value:.1f}")
            context.figure(f"hash.{name}.{policy}.1_page.amortisation", 1 / value, "hits/update")
        rows.append([name, *row])
    context.table(
        f"Hits an update with one page a table and no reader (the seed's figure: {SEEDS_GAIN:g})",
        ["stream", *_policies(next(iter(counted.values())))],
        rows,
    )


def _times(
    context: Context,
    timed: dict[str, dict[Case, list[float]]],
    pages: tuple[int, ...],
    threads: tuple[int, ...],
) -> None:
    rows = []
    for name, cases in timed.items():
        for policy in _policies(cases):
            middles = {
                case: statistics.median(ns) for case, ns in cases.items() if case[0] == policy
            }
            alone = [f"{middles[policy, page, threads[0], WINDOW]:.1f}" for page in pages]
            more = [f"{middles[policy, pages[0], each, WINDOW]:.1f}" for each in threads[1:]]
            rows.append([name, policy, *alone, *more])
    context.table(
        "CPU time of a hit, ns: one thread by pages, then one page by threads",
        ["stream", "policy", *(f"{page} p" for page in pages)]
        + [f"{each} threads" for each in threads[1:]],
        rows,
    )


def _figures(
    context: Context,
    counted: dict[str, dict[Case, tuple[float, int]]],
    timed: dict[str, dict[Case, list[float]]],
) -> None:
    for name, cases in counted.items():
        for (policy, page, _, window), (value, _size) in cases.items():
            if window == WINDOW:
                context.figure(f"hash.{name}.{policy}.{page}.updates_per_hit", value, "")
    for name, times in timed.items():
        for (policy, page, thread, _), ns in times.items():
            context.median(f"hash.{name}.{policy}.{page}.{thread}.hit", ns, "ns")


def _plots(
    context: Context,
    counted: dict[str, dict[Case, tuple[float, int]]],
    timed: dict[str, dict[Case, list[float]]],
    pages: tuple[int, ...],
) -> None:
    for name, cases in counted.items():
        lines = []
        for policy in _policies(cases):
            points = sorted(
                [float(case[1]), 100 * value[0]]
                for case, value in cases.items()
                if _is(case, policy, WINDOW)
            )
            lines.append(Series(policy, [list(point) for point in points]))
        context.plot(
            Plot(
                f"{name}: updates of the shared buffer",
                "pages of slots a table",
                "in 100 hits",
                lines,
                scale="log",
            )
        )
    bars: dict[str, list[list[float | str]]] = {}
    for name, times in timed.items():
        for policy in _policies(times):
            ns = times[policy, pages[0], 1, WINDOW]
            bars.setdefault(policy, []).append([name, statistics.median(ns), min(ns), max(ns)])
    series = [Series(policy, points) for policy, points in bars.items()]
    context.plot(Plot("A hit, one thread, one page", "stream", "ns", series, "bars", "log"))


SECTION = Section("hash", "counting hits of a shared buffer: policies, updates and ns a hit", run)

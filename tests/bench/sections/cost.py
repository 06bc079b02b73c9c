"""CPU a further sample, memory, bytes, losses and names: opd beside its peers on the same loads.

Each contender runs for a short and a long time, interleaved with the others.
The slope between the two is what a further sample costs; what is left at zero
samples is start-up and shutdown.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness import contenders
from bench.harness.figures import Plot, Series
from bench.harness.loads import KNOWN_LOADS, Builder, builder, running
from bench.harness.section import Context, Section

if TYPE_CHECKING:
    from bench.harness.contenders import Contender, Taken

NS = 1e9
MB = 1e6
MAIN_LOAD, MAIN_RATE = "mixed", 999


@dataclass
class Run:
    """One contender for one time."""

    wall: float
    cpu: float
    taken: Taken
    memory: dict[str, int]


@dataclass
class Pair:
    """A short and a long run."""

    short: Run
    long: Run

    @property
    def slope(self) -> float:
        """CPU in ns for each sample that the long run has more."""
        more = self.long.taken.samples - self.short.taken.samples
        return (self.long.cpu - self.short.cpu) / max(more, 1) * NS

    @property
    def fixed(self) -> float:
        """CPU in seconds at no samples."""
        return self.short.cpu - self.slope * self.short.taken.samples / NS

    @property
    def percent(self) -> float:
        """CPU in percent of one core for the further time."""
        return 100 * (self.long.cpu - self.short.cpu) / (self.long.wall - self.short.wall)

    def part(self, name: str) -> float:
        """CPU of one part in ns a further sample."""
        more = self.long.taken.samples - self.short.taken.samples
        seconds = self.long.taken.parts.get(name, 0) - self.short.taken.parts.get(name, 0)
        return seconds / max(more, 1) * NS


Case = tuple[str, int, str]  # load, rate, contender


def run(context: Context) -> None:
    """Go through loads and rates; all contenders take turns in each."""
    chosen, absent = contenders.present(context.options.contenders)
    for line in absent:
        context.note(line)
    for contender in chosen:
        for version in contenders.describe(contender).values():
            context.note(f"{contender.name}: {version}")
    pairs: dict[Case, list[Pair]] = {}
    with builder() as loads:
        for turn in range(context.repeat(3)):
            for load, rate in _cells(context):
                order = [c for c in chosen if _takes_part(c, load, rate, turn)]
                for contender in order if turn % 2 == 0 else order[::-1]:
                    case = load, contender.fixed_rate or rate, contender.name
                    context.progress(f"turn {turn + 1}: {contender.name}, {load}, {case[1]} Hz")
                    try:
                        pair = _pair(context, contender, load, rate, loads)
                        pairs.setdefault(case, []).append(pair)
                    except (RuntimeError, OSError) as error:
                        context.note(f"{contender.name}, {load}, {rate} Hz failed: {error}")
                context.findings.figures.clear()
                _figures(context, pairs)
                context.save()
    _tables(context, pairs)
    _plots(context, pairs)


def _cells(context: Context) -> list[tuple[str, int]]:
    names = context.options.loads or context.choose(list(KNOWN_LOADS), [MAIN_LOAD])
    for name in names:
        if name not in KNOWN_LOADS:
            raise ValueError(f"no load {name!r}; there are: {' '.join(KNOWN_LOADS)}")
    rates = context.rates([99, 999, 4999, 10000], [MAIN_RATE])
    if context.options.loads or context.options.rates:
        return [(name, rate) for name in names for rate in rates]
    # All rates on one load, all loads at one rate.
    return [
        (name, rate) for name in names for rate in rates if name == MAIN_LOAD or rate == MAIN_RATE
    ]


def _takes_part(contender: type[Contender], load: str, rate: int, turn: int) -> bool:
    """One that has a rate of its own runs once a load; a slow one once."""
    if contender.fixed_rate is not None and abs(rate - contender.fixed_rate) > 1:
        return False
    return contender.name != "bpftrace" or (turn == 0 and rate <= MAIN_RATE and load != "forks")


def _pair(
    context: Context, contender: type[Contender], load: str, rate: int, loads: Builder
) -> Pair:
    times = context.choose((10.0, 40.0) if load == MAIN_LOAD else (5.0, 20.0), (2.0, 6.0))
    if rate < 500:
        times = context.choose((10.0, 60.0), (4.0, 12.0))
    commands = KNOWN_LOADS[load].commands(loads)
    short, long = (_run(context, contender, rate, commands, seconds) for seconds in times)
    return Pair(short, long)


def _run(
    context: Context,
    contender: type[Contender],
    rate: int,
    commands: list[list[str]],
    seconds: float,
) -> Run:
    account, others = context.account(contender.name), context.account("load")
    runner = contender(account, rate)
    try:
        with running(others, *commands):
            time.sleep(0.3)
            runner.start()
            began = time.monotonic()
            time.sleep(seconds)
            memory = runner.memory()
            wall = time.monotonic() - began
            runner.stop()
        cpu = account.cpu_seconds()
        return Run(wall, cpu, runner.examine(), memory)
    finally:
        runner.close()
        context.close_account(account)
        context.close_account(others)


def _figures(context: Context, pairs: dict[Case, list[Pair]]) -> None:
    for (load, rate, name), found in pairs.items():
        key = f"cost.{name}.{load}.{rate}"
        context.median(f"{key}.slope", [pair.slope for pair in found], "ns/sample")
        context.median(f"{key}.fixed", [pair.fixed for pair in found], "s CPU")
        context.median(f"{key}.percent", [pair.percent for pair in found], "% of one core")
        longs = [pair.long for pair in found]
        for part in ("pss", "rings", "kernel", "total"):
            values = [run.memory[part] / MB for run in longs if run.memory[part] >= 0]
            context.median(f"{key}.memory.{part}", values, "MB")
        takens = [run.taken for run in longs]
        per = [taken.bytes / max(taken.samples, 1) for taken in takens]
        context.median(f"{key}.bytes", per, "B/sample")
        for what, values, unit in (
            ("lost", [t.lost for t in takens], "samples"),
            ("image", [_percent(t.image_named) for t in takens], "%"),
            ("leaf", [_percent(t.leaf_named) for t in takens], "%"),
            ("answer", [t.answer_s for t in takens], "s"),
            ("answer_cpu", [t.answer_cpu_s for t in takens], "s CPU"),
        ):
            known = [float(value) for value in values if value is not None]
            if known:
                context.median(f"{key}.{what}", known, unit)
        for part in takens[0].parts if takens else ():
            context.median(f"{key}.{part}", [pair.part(part) for pair in found], "ns/sample")


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _tables(context: Context, pairs: dict[Case, list[Pair]]) -> None:
    known = {figure.key: figure for figure in context.findings.figures}
    rows = []
    for load, rate, name in sorted(pairs):
        key = f"cost.{name}.{load}.{rate}"

        def cell(what: str, form: str = ".0f", key: str = key, *, spread: bool = False) -> str:
            figure = known.get(f"{key}.{what}")
            if figure is None or figure.value is None:
                return "-"
            text = format(figure.value, form)
            if spread and figure.n > 1:
                text += f" ({format(figure.low, form)}..{format(figure.high, form)})"
            return text

        samples = pairs[load, rate, name][-1].long.taken.samples
        cells = [cell("slope", spread=True), cell("fixed", ".2f"), cell("percent", ".2f")]
        cells += [cell("memory.total", ".1f"), cell("bytes", ".1f"), str(samples)]
        cells += [cell("lost"), cell("image", ".2f"), cell("leaf", ".1f"), cell("answer", ".2f")]
        rows.append([load, str(rate), name, *cells])
    header = ["load", "Hz", "who", "ns/sample", "start+stop s", "% of core", "memory MB"]
    header += ["B/sample", "samples", "lost", "image %", "leaf %", "answer s"]
    context.table("CPU of all processes a further sample, and what came of it", header, rows)
    parts = []
    for (load, rate, name), found in sorted(pairs.items()):
        split = {
            part: known[f"cost.{name}.{load}.{rate}.{part}"] for part in found[0].long.taken.parts
        }
        if split:
            text = ", ".join(f"{part} {figure.value:.0f}" for part, figure in split.items())
            parts.append([load, str(rate), text])
    context.table("Where opd's CPU went, ns a further sample", ["load", "Hz", "parts"], parts)
    context.note("bpftrace: 'lost' counts stacks it could not keep; it does not tell lost samples")


def _plots(context: Context, pairs: dict[Case, list[Pair]]) -> None:
    known = {figure.key: figure for figure in context.findings.figures}

    def bars(what: str, cases: list[Case], label: int) -> list[Series]:
        names = sorted({case[2] for case in cases})
        series = []
        for name in names:
            points: list[list[float | str]] = []
            for case in sorted(case for case in cases if case[2] == name):
                figure = known.get(f"cost.{name}.{case[0]}.{case[1]}.{what}")
                if figure is None or figure.value is None:
                    continue
                low, high = figure.low or figure.value, figure.high or figure.value
                points.append([str(case[label]), figure.value, low, high])
            series.append(Series(name, points))
        return series

    by_rate = [case for case in pairs if case[0] == MAIN_LOAD]
    by_load = [case for case in pairs if abs(case[1] - MAIN_RATE) <= 1]
    for what, title, unit, scale in (
        ("slope", "CPU a further sample", "ns", "log"),
        ("memory.total", "Memory: PSS, rings, kernel", "MB", "linear"),
        ("bytes", "Bytes a sample", "B", "log"),
    ):
        for cases, label, by in ((by_rate, 1, "Hz"), (by_load, 0, "load")):
            if cases:
                series = bars(what, cases, label)
                context.plot(Plot(f"{title}, by {by}", by, unit, series, "bars", scale))


SECTION = Section("cost", "CPU a further sample, memory, bytes, names: opd beside its peers", run)

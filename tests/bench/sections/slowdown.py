"""What a load loses: CPU of a fixed piece of work with and without each contender, in pairs."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
from typing import TYPE_CHECKING

from bench.harness import contenders
from bench.harness.figures import Figure, Plot, Series
from bench.harness.loads import builder
from bench.harness.section import Context, Section

if TYPE_CHECKING:
    from pathlib import Path

    from bench.harness.contenders import Contender

ROUNDS = 150_000  # about 0.8 s of CPU
SEED = 11


def run(context: Context) -> None:
    """Pairs in the order off, on, on, off; the contender starts once for two pairs."""
    chosen, absent = contenders.present(context.options.contenders)
    for line in absent:
        context.note(line)
    ratios: Ratios = {}
    with builder() as loads:
        spin = loads.build("spin.c")
        _work(context, spin)  # warm
        for _ in range(context.repeat(8, 1)):
            for rate in context.rates([99, 999, 10000], [99, 999]):
                for contender in chosen:
                    if contender.fixed_rate is not None and abs(rate - contender.fixed_rate) > 1:
                        continue
                    if contender.name == "bpftrace" and rate > 999:
                        continue  # its ending takes minutes
                    context.progress(f"slow-down: {contender.name}, {rate} Hz")
                    case = contender.name, contender.fixed_rate or rate
                    ratios.setdefault(case, []).extend(_block(context, contender, rate, spin))
            context.findings.figures.clear()
            _figures(context, ratios)
            context.save()
    _tables(context, ratios)


Ratios = dict[tuple[str, int], list[float]]


def _figures(context: Context, ratios: Ratios) -> None:
    for (name, rate), found in ratios.items():
        middle = 100 * (statistics.median(found) - 1)
        low, high = _interval(found)
        note = "95 % interval of the median, by resampling"
        context.findings.figures.append(
            Figure(f"slowdown.{name}.{rate}", middle, "%", len(found), low, high, note)
        )


def _tables(context: Context, ratios: Ratios) -> None:
    known = {figure.key: figure for figure in context.findings.figures}
    rows = []
    points: dict[str, list[list[float | str]]] = {}
    for name, rate in sorted(ratios, key=lambda case: (case[1], case[0])):
        figure = known[f"slowdown.{name}.{rate}"]
        middle, low, high = (float(v or 0) for v in (figure.value, figure.low, figure.high))
        per = middle / 100 / rate * 1e6
        rows.append([name, str(rate), f"{middle:+.2f}", f"{low:+.2f}..{high:+.2f}", f"{per:.1f}"])
        points.setdefault(name, []).append([str(rate), middle, low, high])
    context.table(
        "Slow-down of a CPU-bound program on every CPU, by its own CPU time",
        ["who", "Hz", "median %", "95 % interval", "us a sample"],
        rows,
    )
    series = [Series(name, values) for name, values in points.items()]
    context.plot(Plot("Slow-down of the load", "Hz", "%", series, "bars"))


def _block(context: Context, contender: type[Contender], rate: int, spin: Path) -> list[float]:
    account = context.account(contender.name)
    runner = contender(account, rate)
    try:
        off_before = _work(context, spin)
        runner.start()
        on_first, on_second = _work(context, spin), _work(context, spin)
        runner.stop()
        off_after = _work(context, spin)
    finally:
        runner.close()
        context.close_account(account)
    return [on_first / off_before, on_second / off_after]


def _work(context: Context, spin: Path) -> float:
    """CPU seconds of the same work on every CPU at once."""
    rounds = context.choose(ROUNDS, ROUNDS // 5)
    running = [
        subprocess.Popen([spin, str(cpu), str(rounds)], stdout=subprocess.PIPE)
        for cpu in range(os.cpu_count() or 1)
    ]
    return sum(float(process.communicate()[0]) for process in running)


def _interval(values: list[float]) -> tuple[float, float]:
    chance = random.Random(SEED)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(2000))
    return 100 * (medians[50] - 1), 100 * (medians[1949] - 1)


SECTION = Section("slowdown", "what a CPU-bound load loses to each contender, in pairs", run)

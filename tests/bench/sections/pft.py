"""The probe pft while opd samples and not, and beside the C program that it continues, in turn.

Debian has no package of it and its licence is another, so it is built outside
and named: ``OPD_PFT=/path/to/pft make bench ARGS=pft``.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.harness import pairs as turns
from bench.harness.opd import Opd
from bench.harness.section import Section
from opd.probes import results, running
from opd.probes.jobs import limits_of

if TYPE_CHECKING:
    from bench.harness.section import Context

_VARIABLE = "OPD_PFT"
SEED = 20261130
# Name, the options of the C program, those of the probe.
CONFIGURATIONS = (
    ("1 thread, 256 MiB", "-a -t 1 -m 256m", "memory=256m"),
    ("1 thread, 512 MiB", "-a -t 1 -m 512m", "memory=512m"),
    ("1 thread, 1 GiB", "-a -t 1 -m 1g", "memory=1g"),
    ("2 threads, 256 MiB", "-a -t 2 -m 256m", "memory=256m,threads=2"),
    ("2 threads, 512 MiB", "-a -t 2 -m 512m", "memory=512m,threads=2"),
    ("2 threads, 1 GiB", "-a -t 2 -m 1g", "memory=1g,threads=2"),
    ("2 processes, 512 MiB", "-a -n 2 -m 512m", "memory=512m,processes=2"),
    ("shm, 512 MiB", "-a -S -t 1 -m 512m", "memory=512m,kind=shm"),
    ("bzero, 512 MiB", "-a -z -t 1 -m 512m", "memory=512m,clear=true"),
    ("mlock, 512 MiB", "-a -l -t 1 -m 512m", "memory=512m,mlock=true"),
)
_HEADER = (*turns.HEADER, "wall ratio")
Rates = tuple[float, float]  # faults a CPU second, a wall second


def run(context: Context) -> None:
    """What sampling costs the probe, then the C program beside it."""
    _while_sampled(context)
    _beside_the_program(context)


def _while_sampled(context: Context) -> None:
    """The probe while a daemon samples at 99 Hz, and while it does not, in turn."""
    pairs = context.repeat(15, 3)
    draw = random.Random(SEED)
    told: dict[str, list[Rates]] = {"off": [], "on": []}
    with Opd(context.account("opd"), "-e", "cpu-clock:99hz") as opd:
        for turn in range(pairs + 1):
            context.progress(f"sampled or not: pair {turn} of {pairs}")
            order = [*told]
            draw.shuffle(order)
            for state in order:
                opd.ask("start" if state == "on" else "stop")
                rates = _ours("memory=512m,threads=2")
                if turn:
                    told[state].append(rates)
    row = _judge(context, "sampled at 99 Hz", told, draw)
    header = ["flt/cpu/s, not sampled", "sampled", *_HEADER]
    context.table(
        f"pft of 2 threads, 512 MiB, sampled at 99 Hz or not, {pairs} pairs", header, [row]
    )


def _beside_the_program(context: Context) -> None:
    """Take turns with each configuration; ratios of medians with their intervals."""
    program = os.environ.get(_VARIABLE, "")
    if not program or not os.access(program, os.X_OK):
        context.note(f"{_VARIABLE} names no program: build pft 0.12x outside and set it")
        return
    pairs = context.repeat(15, 3)
    draw = random.Random(SEED)
    rows = []
    for name, theirs, ours in CONFIGURATIONS:
        told: dict[str, list[Rates]] = {"C": [], "opd": []}
        for turn in range(pairs + 1):
            context.progress(f"{name}: pair {turn} of {pairs}")
            order = ["C", "opd"]
            draw.shuffle(order)
            for who in order:
                rates = _theirs(program, theirs) if who == "C" else _ours(ours)
                if turn:  # memory that the host has not backed yet is no news
                    told[who].append(rates)
        rows.append([name, *_judge(context, name, told, draw)])
    header = ["configuration", "C flt/cpu/s", "opd", *_HEADER]
    context.table(f"pft beside the C program, {pairs} pairs each", header, rows)


def _theirs(program: str, options: str) -> Rates:
    done = subprocess.run(
        [Path(program).resolve(), *options.split()], capture_output=True, text=True, check=True
    )
    cpu, wall = done.stdout.split()[-2:]
    return float(cpu), float(wall)


def _ours(options: str) -> Rates:
    planned = running.plan("pft", f"{options},repeats=1,warmup=0,latency=false")
    (parameters,) = planned.parameters
    outcome = running.measure("pft", [parameters], limits=limits_of(parameters))
    if outcome.void:
        raise RuntimeError(f"pft {options}: {outcome.void}")
    found = {m["name"]: m["median"] for m in results.metrics_of(outcome, 0, planned.metrics)}
    return found["faults_per_cpu_second"], found["faults_per_wall_second"]


def _judge(
    context: Context, name: str, told: dict[str, list[Rates]], draw: random.Random
) -> list[str]:
    """The cells of a row: medians of both, the second by the first, its interval, spreads."""
    theirs, ours = ([rates[0] for rates in one] for one in told.values())
    ratio, low, high = turns.ratio_of(theirs, ours, draw)
    walls = [median([rates[1] for rates in one]) for one in told.values()]
    key = name.replace(" ", "_").replace(",", "")
    context.figure(f"pft.{key}.ratio", ratio, "", note=f"95 %: {low:.3f} to {high:.3f}")
    cells = turns.cells(theirs, ours, (ratio, low, high))
    return [f"{median(theirs):.0f}", f"{median(ours):.0f}", *cells, f"{walls[1] / walls[0]:.3f}"]


SECTION = Section("pft", "the page-fault probe beside the C program", run, by_default=False)

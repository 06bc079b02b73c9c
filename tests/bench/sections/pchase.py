"""The probe pchase beside multichase, multiload and STREAM's loops, in turn.

multichase is the judge of latency; it tells the best of its samples, two of half a
second here, and so are ours. Debian has no package of it, so it is built
outside and its directory named: ``OPD_MULTICHASE=/path make bench ARGS=pchase``.
STREAM's loops are loads/stream.c. All on one CPU, on small pages unless named.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from bench.harness import pairs as turns
from bench.harness.loads import builder
from bench.harness.section import Section
from opd.probes import running
from opd.probes.jobs import limits_of
from opd.probes.results import WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.harness.section import Context

_VARIABLE = "OPD_MULTICHASE"
SEED = 20261130
_MIB = 1 << 20
# Bytes of each array: past every cache.
_ARRAY = 128 * _MIB
# Passes of the probe's loads, of which the best counts, as STREAM's does.
_PASSES = 10
# What STREAM's loops are compiled with: no library call in their place.
_FLAGS = (*("-O3", "-mavx2", "-ffast-math", "-fno-builtin", "-fno-tree-loop-distribute-patterns"),)


class _Case(NamedTuple):
    """``theirs``: options of multichase; ``ours``: of the probe; ``within``: the goal in %."""

    name: str
    theirs: str
    ours: str
    within: float


LATENCY = (
    _Case("L1, 16 KiB", "-m 16k -s 64 -T 16k", "chain=16k,page=16k", 3),
    _Case("L2, 512 KiB", "-m 512k -s 64 -T 256k", "chain=512k,page=256k", 3),
    _Case("DRAM, T-local", "-m 256m -s 64 -T 256k", "chain=256m,page=256k", 3),
    _Case("DRAM, random", "-m 256m -s 64 -T 256m", "chain=256m,page=0", 3),
    _Case("DRAM, random, THP", "-m 256m -s 64 -T 256m -H", "chain=256m,page=0,mmu_page=thp", 3),
    *(
        _Case(
            f"{n} chains",
            f"-m 256m -s 256 -T 256m -c parallel{n}",
            f"chain={256 // n}m,page=0,line=256,chains={n}",
            5,
        )
        for n in (2, 4, 8)
    ),
)
BANDWIDTH = ("read", "copy", "triad")
# multiload's names of the same; it warms up for seconds, so fewer pairs of it.
_MULTILOAD = {"read": "stream-sum", "copy": "stream-copy", "triad": "stream-triad"}
_MULTILOAD_SHARE = 5
_HEADER = ("case", "peer", "opd", *turns.HEADER, "goal")


def run(context: Context) -> None:
    """Latency beside multichase, then bandwidth beside STREAM's loops and multiload."""
    programs = os.environ.get(_VARIABLE, "")
    bench = _Bench(context, Path(programs) if programs else None)
    bench.latency()
    bench.bandwidth()


class _Bench:
    def __init__(self, context: Context, programs: Path | None) -> None:
        self._context = context
        self._programs = programs
        self._pairs = context.repeat(15, 3)
        self._draw = random.Random(SEED)
        self._rows: list[list[str]] = []

    def latency(self) -> None:
        if self._programs is None:
            self._context.note(f"{_VARIABLE} names no directory: build multichase and set it")
            return
        for case in LATENCY:
            command = [str(self._programs / "multichase"), "-n", "2", *case.theirs.split()]
            text = f"{case.ours},cpus=0,seconds=0.5,experiments=2"
            self._row(
                (case.name, "ns", case.within),
                lambda command=command: float(_run(command).split()[-1]),
                lambda text=text: min(_samples(text, "ns_per_load")),
            )
        self._end("pchase beside multichase: ns a load")

    def bandwidth(self) -> None:
        few = max(self._pairs // _MULTILOAD_SHARE, 2)
        with builder() as loads:
            stream = str(loads.build("stream.c", *_FLAGS))
            for load in BANDWIDTH:
                text = f"mode=bandwidth,load={load},load_memory={_ARRAY},cpus=0"
                text += f",seconds=0.04,experiments={_PASSES}"

                def ours(text: str = text) -> float:
                    return max(_samples(text, "bandwidth_bytes_per_second")) / 1e9

                command = ["taskset", "-c", "0", stream, load, str(_ARRAY)]
                self._row(
                    (f"{load}, STREAM", "GB/s", 5.0),
                    lambda command=command: float(_run(command)) / 1e9,
                    ours,
                )
                if self._programs is None:
                    continue
                command = [str(self._programs / "multiload"), "-n", "2", "-t", "1"]
                command += ["-m", str(_ARRAY), "-l", _MULTILOAD[load]]
                self._row(
                    (f"{load}, multiload", "GB/s", 5.0),
                    lambda command=command: _multiload(_run(command)) / 1e9,
                    ours,
                    few,
                )
        self._end("pchase beside STREAM's loops and multiload: GB/s")

    def _row(
        self,
        what: tuple[str, str, float],
        theirs: Callable[[], float],
        ours: Callable[[], float],
        pairs: int = 0,
    ) -> None:
        """Measure a case (name, unit, goal in %) and add its row."""
        name, unit, within = what
        pairs = pairs or self._pairs
        self._context.progress(f"{name}: {pairs} pairs")
        first, second = turns.take_turns(pairs, self._draw, theirs, ours)
        ratio = turns.ratio_of(first, second, self._draw)
        key = name.lower().replace(",", "").replace(" ", "_")
        told = f"95 %: {ratio[1]:.3f} to {ratio[2]:.3f}, {pairs} pairs"
        self._context.figure(f"pchase.{key}.ratio", ratio[0], "", note=told)
        met = "met" if abs(ratio[0] - 1) <= within / 100 else "missed"
        values = [f"{median(one):.2f} {unit}" for one in (first, second)]
        cells = turns.cells(first, second, ratio)
        self._rows.append([name, *values, *cells, f"±{within:g} % {met}"])
        self._context.save()

    def _end(self, title: str) -> None:
        self._context.table(title, _HEADER, self._rows)
        self._rows = []


def _run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _multiload(text: str) -> float:
    """Its best bandwidth in bytes a second, from the table that it prints."""
    lines = [line for line in text.splitlines() if line.strip()]
    head = next(i for i, line in enumerate(lines) if "LdMaxMibs" in line)
    names = [word.strip() for word in lines[head].split(",")]
    values = [word.strip() for word in lines[head + 1].split(",")]
    return float(values[names.index("LdMaxMibs")]) * _MIB


def _samples(text: str, metric: str) -> list[float]:
    """All values of a metric of the whole, of a run in a process of its own."""
    planned = running.plan("pchase", text)
    (parameters,) = planned.parameters
    outcome = running.measure("pchase", [parameters], limits=limits_of(parameters))
    if outcome.void:
        raise RuntimeError(f"pchase {text}: {outcome.void}")
    return list(outcome.samples[0, metric, WHOLE].values)


SECTION = Section("pchase", "the pointer chase beside its peers", run, by_default=False)

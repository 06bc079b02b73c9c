"""How often dto's verdict is wrong here: nothing changed, a planted change, other layouts.

Each cell is the probe itself, in the probe's process. Beside the verdict stands
what a fixed gate says of the same samples: FAIL when the mean of the middle 80 %
of the baseline's and the current's differ by more than 2 %.
"""

from __future__ import annotations

import contextlib
import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.harness.loads import builder, running
from bench.harness.section import Section
from opd.probes import running as probes
from opd.probes.running import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness.section import Context

_RESULTS = ("REGRESSED", "OK", "UNDECIDED", "INVALID")
# Cells of one of the probe's processes, which may tell a million samples.
_TOGETHER = 5
_CELL_SECONDS = 60.0
_SIZES = ("64k", "16k")
_PLANTED = (0.0, 0.5, 1.0, 2.0, 5.0)
_SMALL = ("256", "4k")
_HEADER = [
    *("cell", "cells", *_RESULTS, "void", "fixed gate FAIL", "interval holds the truth"),
    *("sd of change", "mean error", "s a cell", "s judging"),
]


class _Cell(NamedTuple):
    """What one cell came to; ``truth``: the change in per cent that was planted."""

    verdict: dict[str, Any]
    gate: dict[str, Any]
    truth: float
    seconds: float
    judging: float

    @property
    def error(self) -> float:
        return float(self.verdict["change_percent"] - self.truth)

    @property
    def holds(self) -> bool:
        low, high = self.verdict["low"], self.verdict["high"]
        return (low is None or low <= self.truth) and (high is None or self.truth <= high)


def run(context: Context) -> None:
    """All three, one after the other; each row is written when it is measured."""
    _Bench(context).run()


class _Bench:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._rows: list[list[str]] = []

    def run(self) -> None:
        """Same against same, planted changes, small operations."""
        count = self._count(40, 2)
        self._title = "Nothing changed: libc against libc"
        same: list[_Cell] = []
        for loaded in (False, True):
            with self._load() if loaded else contextlib.nullcontext():
                for size in _SIZES:
                    for cold in (1, 0):
                        caches, cpus = "cold" if cold else "warm", "busy" if loaded else "idle"
                        what = f"{size} {caches}, CPUs {cpus}"
                        key = f"same.{size}.{caches}.{cpus}"
                        same += self._row(what, key, f"size={size},cold={cold}", count)
        self._end()
        self._whole("same", same)
        self._title = "A planted change, 64 KiB"
        count = self._count(60, 2)
        for cold in (1, 0):
            for planted in _PLANTED:
                what = f"{'cold' if cold else 'warm'}, +{planted:g} %"
                key = f"planted.{'cold' if cold else 'warm'}.{planted:g}"
                self._row(what, key, f"size=64k,cold={cold},inject={planted:g}", count)
        self._end()
        self._title = "Small operations, warm: the same against itself"
        small: list[_Cell] = []
        count = self._count(48, 2)
        with builder() as loads:
            flags = ("-O2", "-ffreestanding", "-fno-tree-loop-distribute-patterns", "-c")
            library = loads.build("copies.c", *flags, name="copies.o")
            both = f"baseline={library},current={library}"
            for size in _SMALL:
                small += self._row(f"{size}, libc", f"small.{size}.libc", f"size={size}", count)
                what = f"{size}, a build linked twice, in 8 layouts"
                few = max(count // 2, 2)  # each is linked anew, which takes seconds
                small += self._row(what, f"small.{size}.linked", f"size={size},{both}", few)
        self._end()
        self._whole("small", small)

    def _count(self, usual: int, quick: int) -> int:
        return int(self._context.options.count or self._context.choose(usual, quick))

    @contextlib.contextmanager
    def _load(self) -> Iterator[None]:
        with builder() as loads:
            spin = [str(loads.build("spin.c"))]
            with running(self._context.account("dto-load"), [*spin, "0"], [*spin, "1"]):
                yield

    def _row(self, what: str, key: str, text: str, count: int) -> list[_Cell]:
        """Measure a kind of cell so often, and add its row. What it came to."""
        cells, void = self._measure(what, text, count)
        counts = Counter(cell.verdict["result"] for cell in cells)
        failed = sum(cell.gate["result"] == "FAIL" for cell in cells)
        held = sum(cell.holds for cell in cells)
        changes = [cell.verdict["change_percent"] for cell in cells]
        n = max(len(cells), 1)
        seconds = [cell.seconds for cell in cells] or [0.0]
        error = statistics.fmean([cell.error for cell in cells] or [0.0])
        sd = statistics.stdev(changes) if len(changes) > 1 else 0.0
        judging = max([cell.judging for cell in cells] or [0.0])
        self._rows.append(
            [
                *(what, str(len(cells)), *(str(counts.get(name, 0)) for name in _RESULTS)),
                *(str(void), str(failed), f"{100 * held / n:.0f} %", f"{sd:.2f} %"),
                *(f"{error:+.3f} pp", f"{statistics.median(seconds):.2f} (max {max(seconds):.2f})"),
                f"{judging:.3f}",
            ]
        )
        figure = self._context.figure
        for name in _RESULTS:
            figure(f"dto.{key}.{name.lower()}", 100 * counts.get(name, 0) / n, "%")
        figure(f"dto.{key}.gate_fail", 100 * failed / n, "%")
        figure(f"dto.{key}.coverage", 100 * held / n, "%")
        figure(f"dto.{key}.error", error, "pp")
        self._context.median(f"dto.{key}.seconds", seconds, "s")
        self._context.save()
        return cells

    def _measure(self, what: str, text: str, count: int) -> tuple[list[_Cell], int]:
        (parameters,) = probes.plan("dto", text).parameters
        cells: list[_Cell] = []
        void = done = 0
        while done < count:
            together = min(_TOGETHER, count - done)
            self._context.progress(f"{self._title}: {what}: {done} of {count}")
            outcome = probes.measure(
                "dto", [parameters] * together, limits=Limits(seconds=_CELL_SECONDS * together)
            )
            done += together
            void += together - len(outcome.verdicts)
            for arm, verdict in outcome.verdicts.items():
                told = outcome.details[arm]
                truth = told.get("inject", {}).get("added_percent", 0.0)
                took = told["cell"]
                judging = took["judging_seconds"]
                cells.append(_Cell(verdict, told["gate"], truth, took["seconds"], judging))
            if outcome.void:
                self._context.note(f"{what}: void: {outcome.void}")
        return cells, void

    def _end(self) -> None:
        self._context.table(self._title, _HEADER, self._rows)
        self._rows = []

    def _whole(self, key: str, cells: list[_Cell]) -> None:
        """Of all cells of a table: false alarms, and how many they may be at 95 %."""
        n = max(len(cells), 1)
        worse = sum(cell.verdict["result"] == "REGRESSED" for cell in cells)
        self._context.figure(f"dto.{key}.cells", len(cells), "cells")
        self._context.figure(f"dto.{key}.false_alarms", 100 * worse / n, "%")
        fine = sum(cell.verdict["result"] == "OK" for cell in cells)
        self._context.figure(f"dto.{key}.ok", 100 * fine / n, "%")


SECTION = Section(
    "dto", "how often dto's verdict is wrong: A/A, planted, small", run, by_default=False
)

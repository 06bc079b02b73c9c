"""The budgets, as data, and whether a run met them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.harness.figures import Figure


@dataclass(frozen=True)
class Budget:
    """At most ``limit`` (at least, where ``least``) for each figure; all must be there.

    A figure in ``relative`` is another key that the first one may not exceed.
    """

    name: str
    what: str
    keys: tuple[str, ...]
    limit: float
    unit: str
    least: bool = False
    relative: str = ""

    @property
    def says(self) -> str:
        """The budget in words."""
        text = f"{'at least ' if self.least else ''}{self.limit:g} {self.unit}"
        return f"{text}, and no more than {self.relative}" if self.relative else text


@dataclass(frozen=True)
class Verdict:
    """A budget and what was measured."""

    budget: Budget
    verdict: str  # met, missed, not measured
    measured: str


BUDGETS = (
    Budget(
        "slope",
        "CPU of all opd processes per further sample, 999 Hz",
        ("cost.opd.mixed.999.slope",),
        1000,
        "ns",
        relative="cost.perf.mixed.999.slope",
    ),
    Budget(
        "start-stop",
        "start-up + shutdown, 1,000 processes running",
        ("start.opd.cpu",),
        0.3,
        "s CPU",
    ),
    Budget(
        "first-sample",
        "first sample, 1,000 processes running",
        ("start.opd.first_sample",),
        0.5,
        "s",
    ),
    Budget("default-cpu", "99 Hz, all-in", ("cost.opd.mixed.99.percent",), 0.1, "% of one core"),
    Budget("default-slowdown", "99 Hz, slow-down of the load", ("slowdown.opd.99",), 0.3, "%"),
    Budget("dwarf-slope", "live DWARF unwinding, slope", ("cost.opd-dwarf.slope",), 3000, "ns"),
    Budget(
        "drain",
        "native drain with chains, 999 Hz and above",
        ("cost.opd.mixed.999.drain", "cost.opd.mixed.4999.drain", "cost.opd.mixed.10000.drain"),
        300,
        "ns",
    ),
    Budget(
        "lost",
        "samples lost at 10 kHz on all CPUs",
        ("loss.running.lost", "loss.stopped.lost"),
        0,
        "samples",
    ),
    Budget(
        "memory",
        "PSS + kernel memory after an hour of 50 execs/s",
        ("soak.hour.memory",),
        64,
        "MB",
    ),
    Budget(
        "memory-slope",
        "its slope is 0: the lower end of the 95 % interval",
        ("soak.hour.slope_low",),
        0,
        "MB/h",
    ),
    Budget("query-child", "query child's memory", ("answers.query_child.memory",), 150, "MB"),
    Budget(
        "storm-image",
        "named image under a fork storm",
        ("storm.image_named",),
        99.9,
        "%",
        least=True,
    ),
    Budget(
        "storm-leaf",
        "leaf frames named in unstripped files, fork storm",
        ("storm.leaf_named",),
        95,
        "%",
        least=True,
    ),
    Budget(
        "store",
        "store, all files, an hour of the standard load at 99 Hz, fp",
        ("soak.hour.bytes_a_sample",),
        5,
        "B/sample",
    ),
    Budget("top-warm", "top-20 over 24 h, warm", ("answers.opd.day.warm",), 50, "ms"),
    Budget("top-cold", "top-20 over 24 h, cold", ("answers.opd.day.cold",), 300, "ms"),
    Budget("status", "opctl status from the shell", ("answers.opd.status",), 100, "ms"),
)


def judge(figures: Iterable[Figure]) -> list[Verdict]:
    """Compare each budget with the figures there are."""
    from bench.harness.report_text import figure_text, number

    known = {figure.key: figure for figure in figures if figure.value is not None}
    verdicts = []
    for budget in BUDGETS:
        found = [known[key] for key in budget.keys if key in known]
        texts = [figure_text(figure) for figure in found]
        good = all(_within(budget, float(figure.value or 0)) for figure in found)
        complete = len(found) == len(budget.keys)
        if budget.relative:
            other = known.get(budget.relative)
            if other is None or other.value is None:
                complete = False
            else:
                texts.append(f"{budget.relative} {number(other.value)}")
                good = good and all(float(f.value or 0) <= other.value for f in found)
        # One that is over is missed, whatever else was left out.
        verdict = "missed" if found and not good else "met" if complete else "not measured"
        verdicts.append(Verdict(budget, verdict, "; ".join(texts) or "-"))
    return verdicts


def _within(budget: Budget, value: float) -> bool:
    return value >= budget.limit if budget.least else value <= budget.limit

"""How often verdicts are wrong: simulated, and by real comparisons with a known truth."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.harness.section import Section
from opd.probes.jobs import Comparison, Control, compare_now
from opd.probes.local import LocalKeeper
from opd.probes.running import plan
from opd.stats.bootstrap import resample
from opd.stats.verdict import judge

if TYPE_CHECKING:
    from bench.harness.section import Context
    from opd.probes.wire import Planned
    from opd.stats.verdict import Verdict

_RESULTS = ("REGRESSED", "OK", "UNDECIDED", "INVALID")
_PROCESSES, _ROUNDS, _LOOKS = 4, 15, 4
_SCENES = (
    # what, true change in percent, spread of a round, of a process, share of outliers
    ("quiet, no change", 0.0, 0.01, 0.001, 0.0),
    ("noisy, no change", 0.0, 0.05, 0.005, 0.05),
    ("quiet, +1 %", 1.0, 0.01, 0.001, 0.0),
    ("quiet, +2 %", 2.0, 0.01, 0.001, 0.0),
    ("quiet, +5 %", 5.0, 0.01, 0.001, 0.0),
    ("noisy, +5 %", 5.0, 0.05, 0.005, 0.05),
)


def _blocks(draw, scene, processes, *, changed):
    _what, change, spread, luck, outliers = scene
    change = change if changed else 0.0
    made = []
    for _ in range(processes):
        own = change / 100 + draw.gauss(0, luck)
        made.append(
            [
                own + draw.gauss(0, spread) * (10 if draw.random() < outliers else 1)
                for _ in range(_ROUNDS)
            ]
        )
    return made


def _simulate(scene, seed):
    draw = random.Random(seed)
    blocks, null = [], []
    for look in range(1, _LOOKS + 1):
        more = _PROCESSES if look == 1 else len(blocks)
        blocks += _blocks(draw, scene, more, changed=True)
        null += _blocks(draw, scene, more, changed=False)
        verdict = judge(blocks, null, look=look)
        if verdict.result != "UNDECIDED":
            break
    found = resample(blocks, resamples=400)
    held = found.bound(0.025) <= scene[1] / 100 <= found.bound(0.975)
    return verdict.result, held


def _row(what, counts, more):
    every = sum(counts.values())
    return [what, str(every), *(str(counts.get(name, 0)) for name in _RESULTS), *more]


def run(context: Context) -> None:
    """Simulate, then compare real probes with themselves and with a planted change."""
    times = context.choose(300, 40)
    rows = []
    for scene in _SCENES:
        context.progress(f"simulating {scene[0]}")
        told = [_simulate(scene, seed) for seed in range(times)]
        counts = Counter(result for result, _held in told)
        held = 100 * sum(held for _result, held in told) / times
        rows.append(_row(scene[0], counts, [f"{held:.0f} %"]))
        regressed = 100 * counts["REGRESSED"] / times
        context.figure(f"verdicts.simulated.{scene[0]}.regressed", regressed, "%")
    header = ["simulated", "comparisons", *_RESULTS, "interval holds the truth"]
    context.table("Verdicts of simulated comparisons", header, rows)
    context.save()
    _compare_really(context)


# ---- real comparisons

_QUICK_CHASE = "seconds=0.004,experiments=3"
_QUICK_FAULTS = "repeats=3,latency=false"


@dataclass
class _Cell:
    """Two probes that are compared again and again; ``b`` empty: with itself."""

    name: str
    probe: str
    a: str
    b: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    changes: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    plans: tuple[Planned, Planned] | None = None

    def planned(self) -> tuple[Planned, Planned]:
        """What is compared; the options are read once."""
        if self.plans is None:
            first = plan(self.probe, self.a)
            self.plans = first, plan(self.probe, self.b) if self.b else first
        return self.plans

    def add(self, verdict: Verdict | None, seconds: float) -> None:
        """Count a comparison."""
        self.counts[verdict.result if verdict is not None else "void"] += 1
        self.seconds.append(seconds)
        if verdict is not None:
            self.changes.append(verdict.change_percent)
            self.widths.append((verdict.high - verdict.low) / 2)

    def row(self) -> list[str]:
        """Of the table."""
        if not self.changes:
            return _row(self.name, self.counts, ["", "", "", ""])
        return _row(
            self.name,
            self.counts,
            [
                f"{statistics.median(self.changes):+.2f} %",
                f"{min(self.changes):+.2f} .. {max(self.changes):+.2f}",
                f"{statistics.median(self.widths):.2f}",
                f"{statistics.mean(self.seconds):.1f} s",
            ],
        )


def _cells_with_themselves() -> list[_Cell]:
    # Chains of the first cache: the second is shared with the core's other thread,
    # which on a guest is anybody's.
    return [
        _Cell("pft anon 2m", "pft", f"memory=2m,{_QUICK_FAULTS}"),
        _Cell("pft shmem 4m, 2 threads", "pft", f"kind=shmem,memory=4m,threads=2,{_QUICK_FAULTS}"),
        _Cell("pft memfd 2m", "pft", f"kind=memfd,memory=2m,{_QUICK_FAULTS}"),
        _Cell("pft fork_cow 2m", "pft", f"kind=fork_cow,memory=2m,{_QUICK_FAULTS}"),
        _Cell("pchase 16k", "pchase", f"chain=16k,{_QUICK_CHASE}"),
    ]


def _cells_with_more() -> list[_Cell]:
    lines = f"memory=2m,line=8,{_QUICK_FAULTS}"
    work = f"chain=16k,{_QUICK_CHASE}"
    return [
        _Cell("pft, more lines a page", "pft", lines, f"{lines},cachelines=512"),
        _Cell("pchase, more work a step", "pchase", f"{work},work=200", f"{work},work=210"),
        _Cell(
            "pchase, a larger chain",
            "pchase",
            f"chain=32k,page=0,{_QUICK_CHASE}",
            f"chain={(32 << 10) + 64},page=0,{_QUICK_CHASE}",
        ),
    ]


_KEPT_OF_A_STORE = (
    50  # comparisons; then a store anew, so that its size costs the later ones nothing
)


def _compare_really(context: Context) -> None:
    """A against A, and against something worse, in turn: what the machine does meets all."""
    count = context.options.count or context.choose(300, 10)
    same, worse = _cells_with_themselves(), _cells_with_more()
    planted = max(len(worse), round(count * 40 / 300))
    turns = [same[at % len(same)] for at in range(count)]
    for at in range(planted):
        turns.insert(at * (len(turns) + 1) // planted, worse[at % len(worse)])
    began = time.monotonic()
    keeper, folder = None, None
    for at, cell in enumerate(turns):
        if at % _KEPT_OF_A_STORE == 0:
            _close(keeper, folder)
            folder = tempfile.TemporaryDirectory(prefix="opd-verdicts-")
            keeper = LocalKeeper(folder.name)
        _compare_once(context, cell, keeper)
        spent = time.monotonic() - began
        context.progress(
            f"{at + 1} of {len(turns)} comparisons in {spent:.0f} s,"
            f" about {spent / (at + 1) * (len(turns) - at - 1):.0f} s left;"
            f" with themselves: {_told(same)}; worse: {_told(worse)}"
        )
        if at % _KEPT_OF_A_STORE == _KEPT_OF_A_STORE - 1:
            _figures(context, same, worse)
            context.save()
    _close(keeper, folder)
    _figures(context, same, worse)
    header = ["real", "comparisons", *_RESULTS, "median change", "changes", "± interval", "took"]
    context.table("A against A", header, [cell.row() for cell in same])
    context.table("A against something worse", header, [cell.row() for cell in worse])


def _compare_once(context: Context, cell: _Cell, keeper: LocalKeeper | None) -> None:
    control = Control(lambda: "", lambda *_: None)
    how = Comparison(processes=2, rounds=12)
    start = time.monotonic()
    assert keeper is not None
    numbers, verdict = compare_now(*cell.planned(), how, keeper, control)
    cell.add(verdict, time.monotonic() - start)
    expected = "REGRESSED" if cell.b else "OK"
    if verdict is None:
        context.note(f"{cell.name}: void ({numbers})", quiet=True)
    elif verdict.result != expected:
        told = f"{verdict.change_percent:+.2f} % ({verdict.low:+.2f} .. {verdict.high:+.2f})"
        null = f"itself {verdict.null_low or 0:+.2f} .. {verdict.null_high or 0:+.2f}"
        words = f"{cell.name}: {verdict.result} {told}, {null}, look {verdict.look}"
        context.note(words, quiet=True)


def _close(keeper: LocalKeeper | None, folder: tempfile.TemporaryDirectory[str] | None) -> None:
    if keeper is not None and folder is not None:
        keeper.close()
        folder.cleanup()


def _told(cells: list[_Cell]) -> str:
    counts = sum((cell.counts for cell in cells), Counter())
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "none yet"


def _figures(context: Context, same: list[_Cell], worse: list[_Cell]) -> None:
    """Shares of each result, anew: those of a run that goes on are replaced."""
    figures = context.findings.figures
    figures[:] = [figure for figure in figures if not figure.key.startswith("verdicts.real.")]
    for key, cells in (("same", same), ("worse", worse)):
        counts = sum((cell.counts for cell in cells), Counter())
        every = sum(counts.values())
        for name in (*_RESULTS, "void"):
            share = 100 * counts[name] / every if every else None
            note = f"{counts[name]} of {every}"
            context.figure(f"verdicts.real.{key}.{name.lower()}", share, "%", note)


SECTION = Section("verdicts", "how often verdicts are wrong", run, by_default=False)

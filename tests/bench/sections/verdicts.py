"""How often verdicts are wrong: simulated, and by real comparisons with a known truth."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from typing import TYPE_CHECKING

from bench.harness.section import Section
from opd.probes.jobs import Comparison, Control, compare_now
from opd.probes.local import LocalKeeper
from opd.probes.running import plan
from opd.stats.bootstrap import resample
from opd.stats.verdict import judge

if TYPE_CHECKING:
    from bench.harness.section import Context

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
    return [what, str(every), *(str(counts.get(name, 0)) for name in _RESULTS), more]


def run(context: Context) -> None:
    """Simulate, then compare calibrate with itself and with 5 % more work."""
    times = context.choose(300, 40)
    rows = []
    for scene in _SCENES:
        context.progress(f"simulating {scene[0]}")
        told = [_simulate(scene, seed) for seed in range(times)]
        counts = Counter(result for result, _held in told)
        held = 100 * sum(held for _result, held in told) / times
        rows.append(_row(scene[0], counts, f"{held:.0f} %"))
        regressed = 100 * counts["REGRESSED"] / times
        context.figure(f"verdicts.simulated.{scene[0]}.regressed", regressed, "%")
    header = ["simulated", "comparisons", *_RESULTS, "interval holds the truth"]
    context.table("Verdicts of simulated comparisons", header, rows)
    _compare_really(context)


def _compare_really(context: Context) -> None:
    times = context.choose(300, 10)
    control = Control(lambda: "", lambda *_: None)
    how = Comparison(processes=2, rounds=12)
    rows = []
    with tempfile.TemporaryDirectory(prefix="opd-verdicts-") as folder:
        keeper = LocalKeeper(folder)
        for what, a, b in (
            ("A against A", "work=200", "work=200"),
            ("A against 5 % more work", "work=200", "work=210"),
        ):
            plans = [plan("calibrate", f"{one},repeats=1,samples=9") for one in (a, b)]
            count = times if a == b else max(times // 5, 5)
            counts: Counter[str] = Counter()
            began = time.monotonic()
            for at in range(count):
                context.progress(f"{what}: {at} of {count}")
                _numbers, verdict = compare_now(*plans, how, keeper, control)
                counts[verdict.result if verdict is not None else "void"] += 1
            each = (time.monotonic() - began) / count
            rows.append(_row(what, counts, f"{each:.1f} s each"))
            worse = counts["REGRESSED"] / count
            key = "same" if a == b else "worse"
            context.figure(f"verdicts.real.{key}.regressed", 100 * worse, "%")
        keeper.close()
    header = ["real", "comparisons", *_RESULTS, "took"]
    context.table("Verdicts of real comparisons of calibrate", header, rows)


SECTION = Section("verdicts", "how often verdicts are wrong", run, by_default=False)

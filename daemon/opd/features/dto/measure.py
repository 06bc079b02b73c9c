"""One cell in the probe's process: rounds until it is decided, all of them told."""

from __future__ import annotations

import math
import os
import statistics
import time
from array import array
from typing import TYPE_CHECKING, Any

from opd.errors import OpdError
from opd.features.dto import cells, frequency
from opd.features.dto.alignment import by_place, levelled
from opd.features.dto.dsa import offloaded
from opd.features.dto.implementations import layouts_of, open_pair, sources_of
from opd.features.dto.modes import ENVIRONMENT
from opd.stats.bootstrap import autocorrelation
from opd.stats.samples import contrast
from opd.stats.verdict import judge, percent
from opd_native.dto import Arm, Cell, DtoError, Op, Pages, blocks_of, quantum_of
from opd_native.errors import NativeError

if TYPE_CHECKING:
    from opd.features.dto.cells import Amount
    from opd.features.dto.dsa import Pairing
    from opd.features.dto.options import DtoOptions
    from opd.probes.measuring import Measuring
    from opd.stats.verdict import Verdict
    from opd_native.dto import Round

# Of a run's iterations, whose samples are kept; the verdict has all.
KEPT_MOST = 30_000
_PILOT = 20
_PILOT_EXACT = 250
# A difference of places, a log, that a reader should know of.
_PLACES_SHOWN = 0.02
# Of the samples that are kept: by arm the metric, and whose.
_COLUMNS = (
    (Arm.A, "baseline_ns", -1),
    (Arm.B, "current_ns", -1),
    (Arm.A_AGAIN, "baseline_ns", 1),
    (Arm.B_AGAIN, "current_ns", 1),
)


def measure(options: DtoOptions, run: Measuring) -> None:
    """Measure one cell, and judge it."""
    os.environ.update(ENVIRONMENT[options.mode])
    try:
        cpu = cells.cpu_of(options, run.cpus)
        layouts = layouts_of(options)
        if layouts > 1:
            layouts <<= options.looks - 1  # each look has new ones, as far as there are
        plain = open_pair(sources_of(options), [options.op], layouts=layouts)
        pair = offloaded(plain, options, run)
        asked = frequency.wanted(cpu, options.perf_core_freq_mhz, options.perf_uncore_freq_mhz)
        held = frequency.hold(asked, run.note)
        try:
            _Measurement(options, run, cpu, pair).do()
        finally:
            pair.close()
            if held is not None:
                held.release()
    except DtoError as error:
        run.void(error.reason)
    except NativeError as error:
        run.void(str(error))
    except OpdError as error:
        run.void(error.message)


class _Measurement:
    """A cell between its first round and its verdict."""

    def __init__(self, options: DtoOptions, run: Measuring, cpu: int, pair: Pairing) -> None:
        self._options = options
        self._run = run
        self._pair = pair
        self._layouts = min(pair.layouts, layouts_of(options))
        self._fresh = range(self._layouts)  # of this look
        self._cpu = cpu
        self._began = time.monotonic()
        self._judging = 0.0
        if len(run.cpus) and cpu != 1 and options.perf_cpu < 0:
            run.note(f"measured on CPU {cpu}: CPU 1 is not allowed")
        self._pages = cells.pages_of(options)
        self._cell = Cell(
            *pair.functions(0),
            op=Op[options.op.upper()],
            size=options.size,
            pages=self._pages,
            cold=options.is_cold,
            pf=options.pf,
            source_offset=options.source_offset,
            destination_offset=options.destination_offset,
            overlap=options.overlap,
            cpu=cpu,
            warmup=cells.warmup_of(options),
            round_limit=options.round_limit,
            seed=options.seed,
            inject_fence=options.inject > 0,
        )
        self._facts = self._cell.facts()
        self._ticks: dict[Arm, array[int]] = {arm: array("Q") for arm in Arm}
        self._effects: dict[int, list[float]] = {}
        self._nulls: dict[int, list[float]] = {}
        self._iterations = self._done = 0
        self._moved = self._drops = self._faults = 0
        self._turns = 0
        self._added: list[tuple[float, float]] = []  # by round: ticks, share of an operation
        self._seconds = 0.0

    def do(self) -> None:
        """All of it."""
        options, run = self._options, self._run
        self._remark()
        pilot = self._cell.round(_PILOT, verify=True)
        if options.inject > 0:
            self._inject(pilot)
        quantum = quantum_of(pilot.ticks)
        amount = cells.amount_of(options, pilot, quantum, self._layouts)
        if options.perf_iters > amount.iterations:
            run.note(f"perf_iters={options.perf_iters}: capped at {amount.iterations}")
        margins = cells.margins_of(options.size, options.perf_min_effect, self._layouts)
        verdict = self._looks(amount, margins)
        self._seconds = time.monotonic() - self._began
        self._cell.close()
        self._tell(amount, quantum, verdict)
        run.verdict(verdict, metric="ratio", gating=not options.reference)

    def _remark(self) -> None:
        facts, run = self._facts, self._run
        if not facts.is_tsc:
            run.note("times are clock_gettime's: this CPU has no invariant TSC to read")
        if self._options.is_cold and facts.flush != "clflushopt":
            run.note(f"caches are flushed by {facts.flush}: this CPU has no clflushopt")
        if self._options.page == "2m":
            kind = "hugetlb" if self._pages is Pages.HUGETLB_2M else "transparent huge pages"
            share = 100 * facts.huge_bytes / facts.bytes
            run.note(f"page=2m: {kind}; {share:.0f} % of the buffers are in huge pages")

    def _inject(self, pilot: Round) -> None:
        """Find how many turns take so much of the baseline's time; current does them from now."""
        each_ns = pilot.spent_ns / pilot.iterations
        count = max(_PILOT, min(_PILOT_EXACT, int(1e9 / max(each_ns, 1.0))))
        exact = self._cell.round(count)
        ticks = _level(exact) * self._options.inject / 100
        self._turns = max(1, round(ticks / exact.turn_ticks))
        self._cell.inject(self._turns)

    def _looks(self, amount: Amount, margins: Any) -> Verdict:
        rounds = amount.rounds
        for look in range(1, amount.looks + 1):
            while self._done < rounds:
                self._one(amount)
                self._run.progress(self._done, rounds)
            began = time.monotonic()
            verdict = judge(
                self._groups(),
                [self._nulls[key] for key in sorted(self._nulls)],
                margins=margins,
                look=look,
                looks=amount.looks,
            )
            self._judging += time.monotonic() - began
            if verdict.result != "UNDECIDED":
                break
            rounds *= 2
            if self._layouts > 1:
                used = self._fresh.stop
                most = min(2 * used, self._pair.layouts)
                self._fresh = range(used, most) if most > used else range(most)
        return verdict

    def _one(self, amount: Amount) -> None:
        """One round: measured, told, taken apart."""
        layout = self._fresh[self._done % len(self._fresh)]
        if self._layouts > 1:
            self._cell.exchange(*self._pair.functions(layout))
        taken = self._cell.round(amount.iterations)
        effect, null = blocks_of(taken, amount.block, mean=amount.mean)
        group = layout if self._layouts > 1 else self._done
        self._effects.setdefault(group, []).extend(effect)
        self._nulls.setdefault(group, []).extend(null)
        self._run.samples("change_percent", map(percent, effect), repeat=self._done)
        self._run.samples("ratio", map(math.exp, effect), repeat=self._done)
        self._keep(taken)
        self._moved += taken.moved
        self._drops += taken.drops
        self._faults += taken.faults
        if self._turns:
            added = self._turns * taken.turn_ticks
            self._added.append((added, added / _level(taken)))
        self._done += 1

    def _keep(self, taken: Round) -> None:
        """Tell the raw samples in order, with the order of arms, as far as there is room."""
        self._iterations += taken.iterations
        kept = len(self._ticks[Arm.A])
        count = min(taken.iterations, KEPT_MOST - kept)
        if count <= 0:
            return
        per_ns = self._facts.ticks_per_ns
        for arm, metric, worker in _COLUMNS:
            ticks = taken.column(arm)[:count]
            self._ticks[arm].extend(ticks)
            values = array("d", [tick / per_ns for tick in ticks])
            self._run.samples(metric, values, repeat=self._done, worker=worker)
        self._run.samples("order", list(taken.order[:count]), repeat=self._done, worker=0)

    def _tell(self, amount: Amount, quantum: int, verdict: Verdict) -> None:
        run, facts, options = self._run, self._facts, self._options
        per_ns = facts.ticks_per_ns
        kept = len(self._ticks[Arm.A])
        if kept < self._iterations:
            run.note(f"raw samples are of the first {kept} of {self._iterations} iterations")
        places = by_place(self._effects) if self._layouts > 1 else []
        if places and max(places) - min(places) > _PLACES_SHOWN:
            run.note(
                "where code lies in a line of the cache alone moves the change from"
                f" {percent(min(places)):+.1f} to {percent(max(places)):+.1f} %: judged is the"
                f" mean of all {len(places)} places"
            )
        if self._moved:
            run.note(f"{self._moved} operations moved to another CPU")
        run.detail(
            "cell",
            {
                "cpu": self._cpu,
                **facts._asdict(),
                **amount._asdict(),
                "rounds": self._done,
                "look": verdict.look,
                "iterations_in_all": self._iterations,
                "layouts": self._layouts_used(),
                "quantum_ticks": quantum,
                "seconds": self._seconds,
                "judging_seconds": self._judging,
                "drops": self._drops,
                "faults": self._faults,
            },
        )
        run.detail("implementations", self._pair.details() | {"layouts": self._layouts_used()})
        if self._turns:
            added_ns = statistics.fmean(ticks for ticks, _share in self._added) / per_ns
            percent_more = 100 * statistics.fmean(share for _ticks, share in self._added)
            told = {"asked_percent": options.inject, "added_percent": percent_more}
            run.detail("inject", {**told, "added_ns": added_ns, "turns": self._turns})
            run.note(f"current was made to take {added_ns:.1f} ns longer: {percent_more:.2f} %")
        first, second = (
            array("d", [tick / per_ns for tick in self._ticks[arm]]) for arm in (Arm.A, Arm.B)
        )
        found = contrast(first, second)
        is_over = found.change_percent > options.perf_min_effect
        run.detail(
            "gate",
            {
                "baseline_mean_ns": found.before_mean,
                "current_mean_ns": found.after_mean,
                "change_percent": found.change_percent,
                "ks_d": found.distance,
                "ks_p": found.p,
                "baseline_outliers": found.before_outliers,
                "current_outliers": found.after_outliers,
                "result": "FAIL" if is_over else "PASS",
            },
        )
        run.detail("spread", self._spread(found, kept))
        run.stats(
            {
                "verdict": verdict.result,
                "change_percent": round(verdict.change_percent, 3),
                "low": round(verdict.low, 3),
                "high": round(verdict.high, 3),
                "rounds": self._done,
                "iterations": self._iterations,
            }
        )

    def _groups(self) -> list[list[float]]:
        """Blocks by layout, or by round."""
        if self._layouts > 1:
            return levelled(self._effects)
        return [self._effects[key] for key in sorted(self._effects)]

    def _layouts_used(self) -> int:
        return len(self._effects) if self._layouts > 1 else 1

    def _spread(self, found: Any, kept: int) -> dict[str, Any]:
        """What else says how still the machine held: for information."""
        groups = [self._effects[key] for key in sorted(self._effects)]
        means = [statistics.fmean(group) for group in groups]
        places = list(map(percent, by_place(self._effects))) if self._layouts > 1 else []
        rests = [block - mean for group, mean in zip(groups, means, strict=True) for block in group]
        return {
            "autocorrelation": autocorrelation(rests),
            "group_sd_percent": 100 * statistics.stdev(means) if len(means) > 1 else None,
            "place_percent": places,
            "outlier_share": (found.before_outliers + found.after_outliers) / (2 * kept),
            "baseline_modes": found.before_modes,
            "current_modes": found.after_modes,
        }


def _level(taken: Round) -> float:
    """The median of the baseline's operations of a round, in ticks."""
    return float(statistics.median(taken.column(Arm.A) + taken.column(Arm.A_AGAIN)))

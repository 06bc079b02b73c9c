"""What is asked of probes: to measure, a sweep, two in turn. For the daemon and for opctl alone."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from opd.errors import UsageError
from opd.probes import results, running
from opd.probes.measuring import SAMPLES_MOST, WHOLE
from opd.probes.running import Limits
from opd.stats.distribution import median
from opd.stats.verdict import LOOKS_MOST, Margins, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opd.probes.asker import Asker
    from opd.probes.running import Column, Outcome
    from opd.probes.wire import Planned
    from opd.stats.verdict import Verdict

# A comparison's first look: processes, and rounds in each; every further look doubles both's
# product by as many processes again.
PROCESSES = 4
ROUNDS = 15
_A, _B, _AGAIN = 0, 1, 2
_NOTES_OF_PLAN = -1


class Keeper(Protocol):
    """Who stores runs. Raises OpdError."""

    def begin(self, params: dict[str, Any]) -> int:
        """Note that a run begins (opd.store.probes.begin)."""
        ...

    def end(self, params: dict[str, Any]) -> None:
        """Keep what it came to (opd.store.probes.end)."""
        ...

    def judge(self, params: dict[str, Any]) -> None:
        """Keep another verdict of an ended run (opd.store.probes.judge)."""
        ...


class Control(msgspec.Struct):
    """How a job is told to end, and tells how far it is.

    ``cancelled`` gives a reason, or nothing. ``tell(done, of, words)``.
    ``asker``: who asked, None: this process's own user.
    """

    cancelled: Callable[[], str]
    tell: Callable[[float, float, str], None]
    asker: Asker | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """How two are compared: ``metric`` empty is the first that has a better way."""

    metric: str = ""
    processes: int = PROCESSES
    rounds: int = ROUNDS
    looks: int = LOOKS_MOST
    margins: Margins = Margins()


def measure_all(planned: Planned, origin: str, keeper: Keeper, control: Control) -> list[int]:
    """Measure each one after the other, whatever becomes of the others; their numbers.

    Verdicts of probes that judge by themselves are at last judged together.
    """
    numbers = []
    verdicts: list[dict[str, Any] | None] = []
    count = len(planned.parameters)
    _prepare(planned, control)
    for at, parameters in enumerate(planned.parameters):
        if at and control.cancelled():
            break
        number = _begin(keeper, planned.probe, parameters, origin)
        numbers.append(number)

        def tell(done: float, of: float, at: int = at) -> None:
            share = done / of if of > 0 else 0.0
            control.tell(at + min(share, 1.0), count, "")

        control.tell(at, count, "")
        outcome = running.measure(
            planned.probe,
            [parameters],
            limits=limits_of(parameters),
            asker=control.asker,
            progress=tell,
            cancelled=control.cancelled,
        )
        outcome.notes[_NOTES_OF_PLAN] = planned.notes
        metrics = results.metrics_of(outcome, 0, planned.metrics)
        if not metrics and not outcome.void:
            outcome.void = "it measured nothing"
        verdicts.append(None if outcome.void else outcome.verdicts.get(0))
        keeper.end(results.ended(number, planned.probe, outcome, metrics, verdict=verdicts[-1]))
    judged = results.judge_together(verdicts)
    for number, before, after in zip(numbers, verdicts, judged, strict=True):
        if after != before:
            keeper.judge({"id": number, "verdict": after})
    return numbers


def compare_now(
    a: Planned, b: Planned, how: Comparison, keeper: Keeper, control: Control
) -> tuple[list[int], Verdict | None]:
    """Measure A, B and A again in turn until it is sure; the numbers of A and B, the verdict.

    No verdict: a run was void, as it says. Raises UsageError for what cannot
    be compared.
    """
    sign = check_comparable(a, b, how)
    _prepare(a, control)
    _prepare(b, control)
    arms = [a.parameters[0], b.parameters[0], a.parameters[0]]
    numbers = [_begin(keeper, a.probe, arm, "compare") for arm in arms[:2]]
    whole = _Pooled()
    groups: list[list[float]] = []
    null: list[list[float]] = []
    verdict: Verdict | None = None
    looks = max(1, min(how.looks, LOOKS_MOST))
    metric = metric_of(a, how)
    for look in range(1, looks + 1):
        fresh = how.processes if look == 1 else len(groups)
        for _ in range(fresh):
            seed = len(groups)
            done = len(groups)

            def tell(share: float, of: float, done: int = done, look: int = look) -> None:
                del share, of
                control.tell(done, how.processes << (look - 1), f"look {look} of {looks}")

            tell(0, 0)
            outcome = running.measure(
                a.probe,
                arms,
                limits=_longer(limits_of(arms[0]), 3 * how.rounds),
                asker=control.asker,
                rounds=how.rounds,
                seed=seed,
                progress=tell,
                cancelled=control.cancelled,
            )
            whole.add(outcome)
            if outcome.void:
                break
            groups.append(_blocks(outcome, metric, (_A, _B), rounds=how.rounds, sign=sign))
            null.append(_blocks(outcome, metric, (_A, _AGAIN), rounds=how.rounds, sign=sign))
        if whole.outcome is None or whole.outcome.void:
            break
        verdict = judge(groups, null, margins=how.margins, look=look)
        if verdict.result != "UNDECIDED":
            break
    outcome = whole.result([*a.notes, *b.notes])
    if outcome.void:
        verdict = None
    for arm, number in zip((_A, _B), numbers, strict=True):
        told = results.verdict_map(verdict) if verdict is not None and arm == _B else None
        if told is not None:
            told |= {"metric": metric, "baseline": numbers[_A]}
        metrics = results.metrics_of(outcome, arm, a.metrics)
        keeper.end(results.ended(number, a.probe, outcome, metrics, arm=arm, verdict=told))
    return numbers, verdict


def _prepare(planned: Planned, control: Control) -> None:
    """Make ready what it needs; nothing is measured when that fails. Raises OpdError."""
    if planned.prepares:
        running.prepare(
            planned.probe,
            planned.parameters,
            asker=control.asker,
            tell=lambda words: control.tell(0, len(planned.parameters), words),
            cancelled=control.cancelled,
        )


class _Pooled:
    """The processes of a comparison as one outcome."""

    def __init__(self) -> None:
        self.outcome: Outcome | None = None

    def add(self, more: Outcome) -> None:
        if self.outcome is None:
            self.outcome = more
            return
        whole = self.outcome
        whole.ended_ns, whole.void = more.ended_ns, more.void
        held = sum(len(column.values) for column in whole.samples.values())
        if held > SAMPLES_MOST:
            # The verdict has theirs; memory and the store are bounded.
            whole.notes.setdefault(_B, []).append(f"only the first {held} samples are kept")
            more.samples = {}
        for key, column in more.samples.items():
            if key not in whole.samples:
                whole.samples[key] = column
                continue
            into = whole.samples[key]
            base = (into.repeats[-1] + 1) if into.repeats else 0
            into.repeats.extend(repeat + base for repeat in column.repeats)
            into.values.extend(column.values)
        for arm, notes in more.notes.items():
            known = whole.notes.setdefault(arm, [])
            known += [note for note in notes if note not in known]
        for arm, details in more.details.items():
            whole.details.setdefault(arm, {}).update(details)

    def result(self, notes: Sequence[str]) -> Outcome:
        """All of it."""
        outcome = self.outcome
        if outcome is None:
            outcome = running.Outcome(started_ns=time.time_ns(), ended_ns=time.time_ns())
            outcome.void = "cancelled before it began"
        outcome.notes[_NOTES_OF_PLAN] = list(dict.fromkeys(notes))
        return outcome


def _blocks(
    outcome: Outcome, metric: str, arms: tuple[int, int], *, rounds: int, sign: int
) -> list[float]:
    """Of each round the log of the ratio of medians, more than 0 is worse."""
    a, b = (_by_repeat(outcome.samples.get((arm, metric, WHOLE))) for arm in arms)
    count = min(len(a), len(b))
    per = max(1, count // rounds)
    blocks = []
    for at in range(0, count - per + 1, per):
        below, above = median(a[at : at + per]), median(b[at : at + per])
        if below > 0 and above > 0:
            blocks.append(sign * math.log(above / below))
    return blocks


def _by_repeat(column: Column | None) -> list[float]:
    """The median of each repeat, in order."""
    if column is None:
        return []
    found: dict[int, list[float]] = {}
    for repeat, value in zip(column.repeats, column.values, strict=True):
        found.setdefault(repeat, []).append(value)
    return [median(values) for _repeat, values in sorted(found.items())]


def check_comparable(a: Planned, b: Planned, how: Comparison) -> int:
    """1 when more is worse, -1 when less is. Raises UsageError."""
    if a.probe != b.probe:
        raise UsageError(f"{a.probe} and {b.probe} measure different things")
    for planned in (a, b):
        if len(planned.parameters) != 1:
            raise UsageError("a comparison is of two measurements: no sweeps")
    for name in ("cpus", "nice", "fifo"):
        if a.parameters[0][name] != b.parameters[0][name]:
            raise UsageError(f"{name} must be the same for both: they run in one process")
    return worse(a.metrics, metric_of(a, how))


def metric_of(planned: Planned, how: Comparison) -> str:
    """The metric that decides. Raises UsageError with those there are."""
    with_a_way = [name for name, _unit, better in planned.metrics if better != "neither"]
    if not how.metric and with_a_way:
        return with_a_way[0]
    if how.metric not in with_a_way:
        raise UsageError(
            f"{planned.probe} has no metric {how.metric!r} to be judged by",
            hint=f"there are: {' '.join(with_a_way) or 'none'}",
        )
    return how.metric


def worse(metrics: Sequence[Sequence[str]], metric: str) -> int:
    """1 when more of the metric is worse, -1 when less is."""
    better = {name: way for name, _unit, way in metrics}
    return -1 if better.get(metric) == "higher" else 1


def limits_of(parameters: dict[str, Any]) -> Limits:
    """What a run with these options may use."""
    return Limits(seconds=parameters["time_limit"], memory_bytes=parameters["memory_cap"])


def _longer(limits: Limits, times: int) -> Limits:
    return msgspec.structs.replace(limits, seconds=limits.seconds * times)


def _begin(keeper: Keeper, probe: str, parameters: dict[str, Any], origin: str) -> int:
    return keeper.begin(
        {"probe": probe, "parameters": parameters, "origin": origin, "at_ns": time.time_ns()}
    )

"""From raw samples to what a run came to: the map that is stored, shown and compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from opd.probes.measuring import WHOLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.probes.running import Outcome
    from opd.stats.verdict import Verdict
    from opd.store.probes import ProbeRun

# Of a verdict's result.
STATUS = {"OK": 0, "REGRESSED": 3, "UNDECIDED": 4, "INVALID": 5}
_CONTRACT = ("name", "unit", "median", "low", "high", "cv", "n")


def metrics_of(
    outcome: Outcome, arm: int, metrics: Sequence[tuple[str, str, str]]
) -> list[dict[str, Any]]:
    """A map for each declared metric that has samples of the whole."""
    from opd.stats.distribution import distribution_of

    found = []
    for name, unit, better in metrics:
        column = outcome.samples.get((arm, name, WHOLE))
        if column is None or not len(column.values):
            continue
        told = msgspec.structs.asdict(distribution_of(column.values))
        found.append({"name": name, "unit": unit, "better": better, **told})
    return found


def ended(
    number: int,
    probe: str,
    outcome: Outcome,
    metrics: list[dict[str, Any]],
    *,
    arm: int = 0,
    verdict: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What the store is told of the end of a run (opd.store.probes.end)."""
    notes = [*outcome.notes.get(-1, ()), *outcome.notes.get(arm, ())]
    return {
        "id": number,
        "probe": probe,
        "started_ns": outcome.started_ns,
        "ended_ns": outcome.ended_ns,
        "machine": outcome.machine,
        "metrics": metrics,
        "verdict": verdict,
        "void": outcome.void or None,
        "notes": notes,
        "details": outcome.details.get(arm, {}),
        "samples": [
            (metric, worker, column.repeats.tobytes(), column.values.tobytes())
            for (of, metric, worker), column in outcome.samples.items()
            if of == arm
        ],
    }


def result_map(run: ProbeRun) -> dict[str, Any]:
    """A run as it is answered: the contract's result, and beside it when, notes and details."""
    return {
        "probe": run.probe,
        "parameters": run.parameters,
        "machine": run.machine,
        "metrics": [
            {name: _finite(metric.get(name)) for name in _CONTRACT} for metric in run.metrics
        ],
        "verdict": run.verdict,
        "void": run.void,
        "id": run.id,
        "origin": run.origin,
        "started_ns": run.started_ns,
        "ended_ns": run.ended_ns,
        "notes": run.notes,
        "details": run.details,
    }


def judge_together(verdicts: Sequence[dict[str, Any] | None]) -> list[dict[str, Any] | None]:
    """Verdicts of a sweep's runs, each as one of a family (opd.stats.verdict.judge_family).

    None, and those that are for reference only, stay as they are.
    """
    from opd.stats.verdict import judge_family

    gating = [at for at, one in enumerate(verdicts) if one is not None and one["gating"]]
    judged = list(verdicts)
    if len(gating) < 2:
        return judged
    family = judge_family([_verdict_of(verdicts[at]) for at in gating])
    for at, verdict in zip(gating, family, strict=True):
        judged[at] = {**(verdicts[at] or {}), **verdict_map(verdict)}
    return judged


def _verdict_of(told: dict[str, Any] | None) -> Verdict:
    """The verdict that verdict_map showed: what it could not show is infinite."""
    from opd.stats.verdict import Verdict

    fields = {
        name: value for name, value in (told or {}).items() if name in Verdict.__struct_fields__
    }
    fields["low"] = -math.inf if fields["low"] is None else fields["low"]
    fields["high"] = math.inf if fields["high"] is None else fields["high"]
    return Verdict(**fields)


def status_of(results: Sequence[dict[str, Any]]) -> int:
    """The exit status of runs: 1 a void one; by their gating verdicts 3, 5, 4 or 0, worst first."""
    if not results or any(one["void"] for one in results):
        return 1
    found = {one["verdict"]["result"] for one in results if _gates(one["verdict"])}
    return next(
        (STATUS[name] for name in ("REGRESSED", "INVALID", "UNDECIDED") if name in found), 0
    )


def whole_verdict(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The worst gating verdict of several runs, and how many there are of each."""
    found = [one["verdict"]["result"] for one in results if _gates(one["verdict"])]
    names = {status: name for name, status in STATUS.items()}
    return {
        "result": names.get(status_of([one for one in results if not one["void"]]))
        if found
        else None,
        "gating": len(found),
        "void": sum(bool(one["void"]) for one in results),
        **{name: found.count(name) for name in STATUS},
    }


def _gates(verdict: dict[str, Any] | None) -> bool:
    return verdict is not None and bool(verdict.get("gating", True))


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def verdict_map(verdict: Any) -> dict[str, Any]:
    """A verdict as a map of what JSON holds."""
    return {name: _finite(value) for name, value in msgspec.structs.asdict(verdict).items()}

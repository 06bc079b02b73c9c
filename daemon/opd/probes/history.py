"""Runs that were kept: compared with each other, and where their history changed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from opd.errors import UsageError
from opd.stats.changepoints import change_points
from opd.stats.verdict import judge_history

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.stats.verdict import Margins, Verdict
    from opd.store.probes import ProbeRun


def compare_runs(
    a: ProbeRun,
    b: ProbeRun,
    known: Sequence[ProbeRun],
    *,
    metric: str = "",
    margins: Margins | None = None,
) -> Verdict:
    """Judge two kept runs, by the spread of their like. Raises UsageError.

    ``known``: all runs of the probe; those with the options of A, as far as
    they are no void, tell how runs differ with nothing changed.
    """
    for run in (a, b):
        if run.void:
            raise UsageError(f"run {run.id} is void: {run.void}")
    if a.probe != b.probe:
        raise UsageError(f"{a.probe} and {b.probe} measure different things")
    with_a_way = [m["name"] for m in a.metrics if m["better"] != "neither"]
    metric = metric or next(iter(with_a_way), "")
    before, after = _median(a, metric), _median(b, metric)
    if metric not in with_a_way:
        raise UsageError(
            f"{metric}: more is neither better nor worse",
            hint=f"to judge by there are: {' '.join(with_a_way) or 'none'}",
        )
    more_is_better = any(m["name"] == metric and m["better"] == "higher" for m in a.metrics)
    if not (before > 0 and after > 0):
        raise UsageError(f"{metric}: {before:g} and {after:g} have no ratio")
    sign = -1 if more_is_better else 1
    alike = [
        run
        for run in known
        if run.parameters == a.parameters and not run.void and run.id not in (a.id, b.id)
    ]
    levels = [math.log(value) for run in alike if (value := _median(run, metric, strict=False)) > 0]
    return judge_history(sign * math.log(after / before), levels, margins=margins)


def changes(runs: Sequence[ProbeRun]) -> list[dict[str, Any]]:
    """Where the medians of alike runs changed their level: a map each."""
    series: dict[tuple[str, str, str], list[tuple[ProbeRun, float]]] = {}
    for run in runs:
        for one in run.metrics if not run.void else ():
            if one["better"] == "neither":
                continue  # no news, whichever way it goes
            key = (run.probe, _text(run.parameters), one["name"])
            series.setdefault(key, []).append((run, one["median"]))
    found = []
    for (probe, _alike, metric), points in series.items():
        for change in change_points([value for _run, value in points]):
            run = points[change.at][0]
            found.append(
                {
                    "probe": probe,
                    "parameters": run.parameters,
                    "metric": metric,
                    "id": run.id,
                    "started_ns": run.started_ns,
                    **msgspec.structs.asdict(change),
                }
            )
    return sorted(found, key=lambda one: one["started_ns"])


def _median(run: ProbeRun, metric: str, *, strict: bool = True) -> float:
    for one in run.metrics:
        if one["name"] == metric:
            return float(one["median"])
    if strict:
        names = " ".join(known["name"] for known in run.metrics)
        raise UsageError(f"run {run.id} has no metric {metric!r}", hint=f"there are: {names}")
    return 0.0


def _text(parameters: dict[str, Any]) -> str:
    from opd.store.probes import canonical

    return canonical(parameters)

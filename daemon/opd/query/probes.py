"""Answers about kept runs of probes, from a store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from opd.errors import UsageError
from opd.probes.results import result_map, verdict_map
from opd.query.history import range_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from opd.store.queries import Reader

DEFAULT_TOP = 50
_HISTORY_MOST = 1000


def probe_answer(
    reader: Reader, method: str, params: dict[str, Any], *, begun: Collection[int] = ()
) -> dict[str, Any]:
    """``probe_list``, ``probe_show``, and ``probe_compare`` of two kept runs.

    ``begun``: runs of the job that runs, known before the store is read. One that
    has no end yet is there as one that opd ended with, should that happen: it is
    not void. Raises UnknownNameError, UsageError, StoreError.
    """
    if method == "probe_compare":
        for number in map(number_of, (params["a"], params["b"])):
            if number in begun:
                raise UsageError(f"run {number} is not over yet")
        return _compare(reader, params)
    answer = _list(reader, params) if method == "probe_list" else _show(reader, params)
    for one in answer.get("runs", [answer]):
        if one["id"] in begun and one["ended_ns"] is None:
            one["void"] = None
    return answer


def _list(reader: Reader, params: dict[str, Any]) -> dict[str, Any]:
    since, until = range_of(reader, params, time.time_ns())
    most = _HISTORY_MOST if params.get("changes") else params.get("top", DEFAULT_TOP)
    runs = reader.probe_runs(probe=params.get("probe"), since_ns=since, until_ns=until, most=most)
    answer: dict[str, Any] = {"runs": [result_map(run) for run in runs]}
    if params.get("changes"):
        from opd.probes.history import changes

        answer["changes"] = changes(runs)
    return answer


def _show(reader: Reader, params: dict[str, Any]) -> dict[str, Any]:
    run = reader.probe_run(params["id"])
    answer = {**result_map(run), "distributions": run.metrics}
    if params.get("samples"):
        answer["samples"] = [
            {
                "metric": column.metric,
                "worker": column.worker,
                "repeats": column.repeats.tobytes(),
                "values": column.values.tobytes(),
            }
            for column in reader.probe_samples(run.id)
        ]
    return answer


def _compare(reader: Reader, params: dict[str, Any]) -> dict[str, Any]:
    from opd.probes.history import compare_runs

    numbers = [number_of(params[name]) for name in ("a", "b")]
    if None in numbers:
        raise UsageError(
            "a comparison of what is not measured yet needs a daemon, or opctl probe compare",
            hint="two numbers of runs compare what is kept",
        )
    a, b = (reader.probe_run(number) for number in numbers if number is not None)
    known = reader.probe_runs(probe=a.probe, most=_HISTORY_MOST)
    verdict = compare_runs(a, b, known, metric=params.get("metric", ""))
    told = verdict_map(verdict) | {"metric": params.get("metric", ""), "baseline": a.id}
    return {"result": {**result_map(b), "verdict": told}, "baseline": result_map(a)}


def number_of(text: str) -> int | None:
    """The number of a run; None for what is to be measured: ``PROBE:OPTIONS``.

    >>> number_of("12"), number_of("pft:memory=64m")
    (12, None)
    """
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def check_both_measured(a: str, b: str) -> None:
    """UsageError: one of them is the number of a kept run."""
    if number_of(a) is not None or number_of(b) is not None:
        raise UsageError(
            "a kept run and one that is to be measured cannot be interleaved",
            hint="give two numbers, or two of PROBE:OPTIONS",
        )


def measure_of(text: str) -> tuple[str, str]:
    """Probe and options of ``PROBE[:OPTIONS]``.

    >>> measure_of("pft:memory=64m,threads=2")
    ('pft', 'memory=64m,threads=2')
    """
    probe, _, options = text.strip().partition(":")
    return probe, options

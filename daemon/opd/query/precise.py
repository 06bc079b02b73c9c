"""Answers from precise samples as they travel: metrics, ``mem``, ``branches``, ``derive``."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from opd.errors import UnknownNameError
from opd.query import tables
from opd.query.history import range_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from opd.store.precise.branches import BranchResult
    from opd.store.precise.derive import DeriveResult
    from opd.store.precise.memory import MemoryResult
    from opd.store.precise.metric import MetricResult
    from opd.store.precise.nodes import Nodes
    from opd.store.queries import Reader
    from opd.store.runs import Run

DEFAULT_TOP = 20
LIVE_RANGE_NS = 3600 * 1_000_000_000
# f64 has no other word for "not told".
_NONE = float("nan")

_MEMORY_COLUMNS = {
    **dict.fromkeys(("accesses", "percent", "percent_low", "percent_high"), "f64"),
    "kept": "u64",
    **dict.fromkeys(("loads", "stores", "dram", "remote", "modified", "tlb_missed"), "f64"),
    "timed": "u64",
    **dict.fromkeys(("latency_mean", "latency_p50", "latency_p99"), "f64"),
}
_LINE_COLUMNS = {"threads": "u64", "sharing": "str", "bytes": "u64"}
_BRANCH_COLUMNS = {
    "samples": "u64",
    "percent": "f64",
    **dict.fromkeys(("taken", "mispredicted", "returns"), "u64"),
    **dict.fromkeys(("misprediction", "misprediction_low", "misprediction_high"), "f64"),
    **dict.fromkeys(("image", "symbol", "address"), "str"),
    **dict.fromkeys(("to_image", "to_symbol", "to_address"), "str"),
}


def precise_answer(
    reader: Reader, method: str, params: dict[str, Any], *, live: bool = False
) -> dict[str, Any]:
    """Answer ``mem``, ``branches`` or ``derive`` from a store.

    ``live``: without a range, the last hour instead of everything. Raises as
    report does.
    """
    from opd.store.precise.branches import BY
    from opd.store.precise.reading import PreciseQuery

    now = time.time_ns()
    since, until = range_of(reader, params, now)
    if live and since is None and until is None:
        since = now - LIVE_RANGE_NS
    by = params.get("by")
    query = PreciseQuery(
        by=by if method != "branches" and by else (),
        top=params.get("top", DEFAULT_TOP),
        since_ns=since,
        until_ns=until,
        session=params.get("session"),
        where=params.get("where"),
    )
    if method == "mem":
        return memory_map(reader.memory(query, _local_nodes()))
    if method == "derive":
        return derive_map(reader.derive(params["event"], query))
    by = by or BY[0]
    if by not in BY:
        raise UnknownNameError(f"branches: by {by[:100]!r}", hint=f"valid: {', '.join(BY)}")
    return branches_map(reader.branches(query, by))


def _local_nodes() -> Callable[[Run], Nodes | None]:
    """Nodes of runs of this host: where another's memory lies nobody tells."""
    from opd.store.precise.nodes import Nodes

    here = os.uname().nodename
    read: list[Nodes] = []

    def nodes_of(run: Run) -> Nodes | None:
        if run.info.kind == "import" or run.info.host != here:
            return None
        if not read:
            read.append(Nodes.read())
        return read[0]

    return nodes_of


def metric_map(result: MetricResult) -> dict[str, Any]:
    """A metric as it travels. ``value``, ``low``, ``high`` are NaN where nothing tells them."""
    rows = result.rows
    columns = [
        *(
            tables.numbers(name, "f64", [_or_nan(getattr(row, name)) for row in rows])
            for name in ("value", "low", "high")
        ),
        *(
            tables.numbers(name, "u64", [getattr(row, name) for row in rows])
            for name in ("numerator", "denominator", "n")
        ),
        *_keys(result.keys),
    ]
    metric = result.metric
    answer: dict[str, Any] = {
        "metric": metric.name,
        "meaning": metric.meaning,
        "unit": metric.unit,
        "numerator": list(metric.events),
        "denominator": list(metric.over or metric.events),
        "total": msgspec.to_builtins(result.total),
        "rows": tables.table(len(rows), columns),
        "quality": result.quality,
        "covered_seconds": result.covered_s,
    }
    if result.in_histogram is not None:
        answer["in_histogram"], answer["counted"] = result.in_histogram
    return _with(answer, where=result.where, damaged=result.damaged)


def memory_map(result: MemoryResult) -> dict[str, Any]:
    """``mem`` as it travels."""
    columns = _MEMORY_COLUMNS | (_LINE_COLUMNS if "line" in result.by else {})
    answer = {
        "by": list(result.by),
        "rows": tables.table(
            len(result.rows), [*_measured(columns, result.rows), *_keys(result.keys)]
        ),
        "groups": result.groups,
        "totals": msgspec.to_builtins(result.totals),
        "accesses": {
            "offered": result.offered,
            "lost": result.lost,
            "kept": result.kept,
            "chosen": result.chosen,
        },
        "quality": result.quality,
        "covered_seconds": result.covered_s,
    }
    return _with(answer, where=result.where, damaged=result.damaged)


def derive_map(result: DeriveResult) -> dict[str, Any]:
    """``derive`` as it travels."""
    columns = {**dict.fromkeys(("samples", "low", "high"), "f64"), "hits": "u64"}
    if result.event.sums:
        columns["mean"] = "f64"
    event = result.event
    answer: dict[str, Any] = {
        "event": event.name,
        "feature": event.flavour.pmu,
        "unit": event.unit,
        **{name: getattr(event, name) for name in ("description", "condition", "valid", "errata")},
        "total": msgspec.to_builtins(result.total),
        "rows": tables.table(
            len(result.rows), [*_measured(columns, result.rows), *_keys(result.keys)]
        ),
        "groups": result.groups,
        "records": {"offered": result.offered, "kept": result.kept, "lost": result.lost},
        "counted": result.counted,
        "quality": result.quality,
        "covered_seconds": result.covered_s,
    }
    return _with(answer, where=result.where, damaged=result.damaged)


def branches_map(result: BranchResult) -> dict[str, Any]:
    """``branches`` as it travels."""
    columns = dict(_BRANCH_COLUMNS)
    if result.by == "symbol":
        del columns["address"], columns["to_address"]
    answer = {
        "by": result.by,
        "rows": tables.table(len(result.rows), _measured(columns, result.rows)),
        "groups": result.groups,
        **{name: getattr(result, name) for name in ("samples", "taken", "mispredicted")},
        "offered": result.offered,
        "lost": result.lost,
        "quality": result.quality,
        "covered_seconds": result.covered_s,
    }
    return _with(answer, where=result.where, damaged=result.damaged)


def _with(answer: dict[str, Any], *, where: str | None, damaged: int) -> dict[str, Any]:
    if where is not None:
        answer["where"] = where
    if damaged:
        answer["damaged"] = damaged
    return answer


def _measured(columns: dict[str, str], rows: Sequence[object]) -> list[dict[str, Any]]:
    return [
        tables.strings(name, [getattr(row, name) for row in rows])
        if kind == "str"
        else tables.numbers(name, kind, [_or_nan(getattr(row, name)) for row in rows])
        if kind == "f64"
        else tables.numbers(name, kind, [getattr(row, name) for row in rows])
        for name, kind in columns.items()
    ]


def _keys(keys: dict[str, list[str] | list[int]]) -> Iterable[dict[str, Any]]:
    for name, values in keys.items():
        if all(isinstance(value, int) for value in values) and values:
            yield tables.numbers(name, "i64", values)  # type: ignore[arg-type]
        else:
            yield tables.strings(name, map(str, values))


def _or_nan(value: float | None) -> float:
    return _NONE if value is None else value

"""What probes came to, as text: tables, CSV, JSON, and the forms that probes offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import output
from opd.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

# As they are unless asked for otherwise: no news in a table.
_USUAL = {"cpus": [], "nice": 0, "fifo": 0, "memory_cap": 0, "time_limit": 600.0}
FORMS = ("table", "json", "csv")


def form_of(arguments: argparse.Namespace) -> str:
    """The form asked for, or a table where it is one of a probe's own."""
    return arguments.format if arguments.format in FORMS else "table"


def print_results(results: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    """Print runs, as the store tells them, with notes, states and verdicts.

    UsageError for a form that neither opctl nor their probe has.
    """
    form = arguments.format
    if form == "json":
        if len(results) == 1:
            output.print_json(results[0])
        else:
            name = results[0]["probe"] if results else ""
            told: dict[str, Any] = {"probe": name, "results": results}
            if any(one["verdict"] for one in results):
                from opd.probes.results import whole_verdict

                told["verdict"] = whole_verdict(results)
            output.print_json(told)
        return
    if form not in FORMS:
        output.write(_as_text(results, form), end="")
        return
    names = ("id", "probe", "parameters", "metric", "unit", "median", "low", "high", "cv", "n")
    varied = differing(results) if form == "table" else None
    rows = [row for one in results for row in rows_of(one, varied)]
    if form == "csv":
        output.print_csv((*names, "void"), rows)
        return
    shown = [name for name in names if name != "parameters" or len(results) > 1]
    rows = [_fine(row) for row in rows]
    output.print_table(shown, rows, right=("id", "median", "low", "high", "cv", "n"))
    for one in results:
        for words in (*one["notes"], _state_text(one)):
            if words:
                output.write(output.clean(f"{one['id']}: {words}"))
        if one["verdict"]:
            whose = f"{one['id']}: " if len(results) > 1 else ""
            output.write(output.clean(whose + _verdict_text(one["verdict"])))


def _state_text(one: Mapping[str, Any]) -> str:
    """What a run has come to, other than to its end."""
    if one["void"]:
        return f"void: {one['void']}"
    return "it runs still" if one["ended_ns"] is None else ""


def _as_text(results: list[dict[str, Any]], form: str) -> str:
    """A form that the probe itself offers. UsageError names those there are."""
    from opd.features.registry import Registry
    from opd.probes.plan import find_probe

    probe = find_probe(Registry(), results[0]["probe"]) if results else None
    if probe is None or form not in probe.texts:
        forms = " ".join((*FORMS, *(probe.texts if probe else ())))
        raise UsageError(f"--format {form!r}: there are: {forms}")
    for one in results:
        if one["ended_ns"] is None and not one["void"]:
            raise UsageError(f"run {one['id']} is not over yet")
    return probe.texts[form](results)


def _verdict_text(verdict: Mapping[str, Any]) -> str:
    low, high = verdict["low"], verdict["high"]
    interval = f" ({low:+.2f} to {high:+.2f} %)" if None not in (low, high) else ""
    metric = f" {verdict['metric']}" if verdict.get("metric") else ""
    advisory = "advisory: " if verdict["advisory"] else ""
    return (
        f"{advisory}{verdict['result']}: {verdict['change_percent']:+.2f} %{interval}"
        f"{metric}: {verdict['reason']}"
    )


def differing(results: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Of each probe the options in which its runs differ: the others are no news in a table."""
    values: dict[tuple[str, str], set[str]] = {}
    for one in results:
        for name, value in one["parameters"].items():
            values.setdefault((one["probe"], name), set()).add(_value_text(value))
    return {key for key, known in values.items() if len(known) > 1}


def rows_of(
    one: Mapping[str, Any], shown: set[tuple[str, str]] | None = None
) -> list[dict[str, Any]]:
    """A row for each metric; one for a run without any. ``shown``: only these options."""
    parameters = ",".join(
        f"{name}={_value_text(value)}"
        for name, value in one["parameters"].items()
        if (_USUAL.get(name, ...) != value if shown is None else (one["probe"], name) in shown)
    )
    state = one["void"] or ("running" if one["ended_ns"] is None else "")
    whole = {
        "id": one["id"],
        "probe": one["probe"],
        "parameters": parameters,
        "time": output.moment_text(one["started_ns"]),
        "state": state,
        "void": one["void"] or "",
    }
    return [
        {**whole, "metric": metric["name"], **{k: v for k, v in metric.items() if k != "name"}}
        for metric in one["metrics"] or [{"name": "-"}]
    ]


def _fine(row: dict[str, Any]) -> dict[str, Any]:
    """The row with ratios as text: they differ in what a table's two decimals do not show."""
    if row.get("unit") != "1":
        return row
    names = [name for name in ("median", "low", "high") if isinstance(row[name], float)]
    return row | {name: f"{row[name]:.4f}" for name in names}


def _value_text(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)

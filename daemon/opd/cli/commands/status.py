"""opctl status: how the daemon does and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import asking, output

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

EXAMPLE = "opctl status --cost\n  opctl status --format json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument(
        "--cost",
        action="store_true",
        help="show what opd itself costs, by stage of a sample's way and by process",
    )


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    with asking.connect(arguments) as client:
        status = client.call("status", {"cost": True} if arguments.cost else {})
    if arguments.format == "json":
        output.print_json(status)
        return 0
    fields = dict(flat(status)) if arguments.format == "csv" else _for_people(status)
    if arguments.format == "csv":
        output.print_csv(
            ["name", "value"], ({"name": name, "value": value} for name, value in fields.items())
        )
    elif arguments.cost:
        _print_cost(status["cost"])
    else:
        output.print_fields(fields)
    return 0


def flat(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """Every leaf of a nested answer under its dotted name."""
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return [(name, value)]
    return [
        leaf for key, inner in items for leaf in flat(inner, f"{name}.{key}" if name else str(key))
    ]


def _for_people(status: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "pid": status["pid"],
        "up": output.span_text(status["uptime_seconds"]),
    }
    if "sampling" in status:
        fields["sampling"] = status["sampling"]
    if status.get("scope") == "own":
        fields["scope"] = _own_text(status["own"])
    fields["events"] = ", ".join(_event_text(event) for event in status["events"]) or "none"
    for name, state in status["features"].items():
        from opd.cli.features import state_text

        fields[f"feature {name}"] = state_text(state)
    for at, step in enumerate(status.get("ladder") or [], 1):
        fields[f"fallback {at}"] = step
    fields["samples"] = status["samples"]
    uptime = status["uptime_seconds"]
    share = f" ({100 * status['cpu_seconds'] / uptime:.2f} % of one core)" if uptime > 0 else ""
    fields["cpu"] = f"{status['cpu_seconds']:.2f} s{share}"
    if status["ns_per_sample"] is not None:
        fields["cost"] = f"{status['ns_per_sample']:.0f} ns a sample"
    fields["memory"] = f"{output.size_text(status['pss_bytes'])} (PSS)"
    fields["messages"] = ", ".join(f"{n} {name}" for name, n in status["messages"].items())
    if burst := status.get("burst"):
        fields["burst"] = f"{burst['session']}, {burst['asked_seconds']:g} s"
    if text := _governor_text(status.get("governor") or {}):
        fields["governor"] = text
    if status.get("problem"):
        fields["problem"] = status["problem"]
    fields["quality"] = output.quality_text(status["quality"])
    return fields


def _governor_text(governor: Mapping[str, Any]) -> str:
    """What it holds back, in a line; "" when nothing and never did."""
    parts = []
    if (share := governor.get("share", 1.0)) < 1:
        parts.append(f"at {100 * share:.1f} % of the rates asked")
    if governor.get("lowered_seconds"):
        parts.append(
            f"lowered for {output.span_text(governor['lowered_seconds'])},"
            f" budget {governor['cpu_percent_budget']:g} % of one core"
        )
    if governor.get("over_seconds"):
        parts.append(f"over it for {output.span_text(governor['over_seconds'])} all the same")
    if governor.get("memory_over"):
        limit = output.size_text(governor["memory_bytes_limit"] or 0)
        parts.append(f"memory over {limit} {governor['memory_over']} times")
    if governor.get("stacks_divided_by", 1) > 1:
        parts.append(f"1/{governor['stacks_divided_by']} of the distinct stacks kept")
    return "; ".join(parts)


def _print_cost(cost: Mapping[str, Any]) -> None:
    rows = [_cost_row(row) for row in cost["stages"]]
    unaccounted = cost["unaccounted_seconds"]
    total = cost["cpu_seconds"]
    share = 100 * unaccounted / total if total else 0.0
    rows.append(_cost_row({"stage": "unaccounted", "cpu_seconds": unaccounted, "percent": share}))
    samples = cost["samples"]
    whole = {"stage": "all", "cpu_seconds": total, "percent": 100.0 if total else 0.0}
    rows.append(_cost_row(whole | {"ns_per_sample": total * 1e9 / samples if samples else None}))
    names = ("cpu s", "percent", "ns/sample", "stage", "process")
    output.print_table(names, rows, right=names[:3])
    output.write(
        f"{samples} samples; {cost['cpu_percent']:.2f} % of one core."
        " ~: estimated from one record in 61, their sum is exact."
    )
    memory = cost["memory"]
    output.write("")
    columns = ("memory", "process", "pid")
    rows = [{**row, "memory": output.size_text(row["pss_bytes"])} for row in memory["processes"]]
    rows += [
        {"memory": output.size_text(size), "process": f"kernel: {name.replace('_', ' ')}"}
        for name, size in memory["kernel"].items()
    ]
    rows.append({"memory": output.size_text(memory["total_bytes"]), "process": "all"})
    output.print_table(columns, rows, right=("memory", "pid"))
    by = memory["cgroup"]["path"] if memory["cgroup"] else "no cgroup of its own: computed"
    output.write(f"Processes by PSS; kernel memory by {by}.")


def _cost_row(row: Mapping[str, Any]) -> dict[str, Any]:
    per_sample = row.get("ns_per_sample")
    return {
        "stage": f"{'~' if row.get('estimate') else ''}{row['stage']}",
        "process": row.get("process", ""),
        "cpu s": f"{row['cpu_seconds']:.3f}",
        "percent": f"{row['percent']:.1f}",
        "ns/sample": "" if per_sample is None else f"{per_sample:.0f}",
    }


def _own_text(own: Mapping[str, Any]) -> str:
    text = f"only processes of uid {own['uid']} ({own['threads']} added threads)"
    if own["left_out"]:
        text += f"; {own['left_out']} left out: the limit on open files"
    if own["refused"]:
        text += f"; {own['refused']} not permitted"
    return text


def _event_text(event: Any) -> str:
    if not isinstance(event, dict):
        return str(event)
    rate = f" at {event['hz']} Hz" if event.get("hz") else ""
    if not rate and event.get("period"):
        rate = f" every {event['period']}"
    source = event.get("source")
    instead = f" (runs as {source})" if source and source != event["name"] else ""
    return f"{event['name']}{rate}{instead}"

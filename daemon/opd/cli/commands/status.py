"""opctl status: how the daemon does and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import asking, output

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

EXAMPLE = "opctl status --format json"


def add_arguments(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    with asking.connect(arguments) as client:
        status = client.call("status")
    if arguments.format == "json":
        output.print_json(status)
        return 0
    fields = dict(flat(status)) if arguments.format == "csv" else _for_people(status)
    if arguments.format == "csv":
        output.print_csv(
            ["name", "value"], ({"name": name, "value": value} for name, value in fields.items())
        )
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
    fields["events"] = ", ".join(_event_text(event) for event in status["events"]) or "none"
    for name, state in status["features"].items():
        fields[f"feature {name}"] = state
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
    fields["quality"] = output.quality_text(status["quality"])
    return fields


def _event_text(event: Any) -> str:
    if not isinstance(event, dict):
        return str(event)
    rate = f" at {event['hz']} Hz" if event.get("hz") else ""
    if not rate and event.get("period"):
        rate = f" every {event['period']}"
    source = event.get("source")
    instead = f" (runs as {source})" if source and source != event["name"] else ""
    return f"{event['name']}{rate}{instead}"

"""Features as text: ``opd --list-features`` and ``opctl features`` show them alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def print_features(form: str) -> None:
    """Show all features of all plugins, as JSON or for people."""
    from opd.features.installed import QUIET
    from opd.features.listing import list_features
    from opd.features.registry import Registry

    output.require_stdout()
    found = list_features(Registry(), QUIET)
    if form == "json":
        output.print_json({"features": found})
        return
    for at, feature in enumerate(found):
        if at:
            output.write("")
        for line in feature_text(feature):
            output.write(output.clean(line))


def feature_text(feature: Mapping[str, Any]) -> Iterator[str]:
    """One feature in lines: what it is, how it does, its options and events."""
    if "broken" in feature:
        yield f"plugin {feature['plugin']} of {feature['package']} is broken: {feature['broken']}"
        return
    yield f"{feature['name']}: {feature['summary']}"
    yield f"  plugin {feature['plugin']} of {feature['package']}"
    yield f"  {_here(feature)}"
    if feature["options"]:
        yield "  options:"
    for option in feature["options"]:
        yield from _option(option)
        default = option["default"] or "nothing"
        if "set" in feature and (value := _text(feature["set"][option["name"]])) != default:
            yield f"        set to {value or 'nothing'}"
    if feature["events"]:
        yield "  events:"
    for event in feature["events"]:
        yield f"    {event['name']} ({event['number']:#x}, {event['unit']}): {event['summary']}"
        for column in event["columns"]:
            yield f"        + {column['name']} ({column['unit']}): {column['summary']}"
    if feature["probes"]:
        yield "  probes:"
    for probe in feature["probes"]:
        yield from _probe(probe)


def _option(option: Mapping[str, Any], indent: str = "    ") -> Iterator[str]:
    yield f"{indent}{option['name']}={option['type']} (default: {option['default'] or 'nothing'})"
    yield f"{indent}    {option['meaning']}"


def _probe(probe: Mapping[str, Any]) -> Iterator[str]:
    yield f"    {probe['name']}: {probe['summary']}"
    # A daemon of before tells no more of them.
    if probe.get("options"):
        yield f"      options (opctl probe run {probe['name']} OPTION=VALUE,…):"
    for option in probe.get("options", ()):
        yield from _option(option, "        ")
    for name, text in probe.get("suites", {}).items():
        yield f"      suite={name}: {text}"
    if probe.get("metrics"):
        yield "      metrics: " + ", ".join(f"{m['name']} ({m['unit']})" for m in probe["metrics"])
    if probe.get("formats"):
        yield f"      formats beside table, json, csv: {' '.join(probe['formats'])}"


def _here(feature: Mapping[str, Any]) -> str:
    if "state" in feature:
        return state_text(feature)
    return "available" if feature["available"] else f"unavailable: {feature['reason']}"


def state_text(state: Mapping[str, Any]) -> str:
    """How a feature does, in a line.

    >>> state_text({"state": "unavailable", "reason": "no such PMU"})
    'unavailable: no such PMU'
    """
    text: str = state["state"]
    if state.get("reason"):
        text += f": {state['reason']}"
    if state.get("session"):
        text += f" as session {state['session']}"
    if state.get("quarantined_seconds"):
        text += f" for {state['quarantined_seconds']:.0f} s"
    if state.get("stuck"):
        text += ", still in a call that cannot be interrupted"
    if state.get("failures"):
        text += f"; failed {state['failures']} times, last {state['last_error']}"
    return text


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "+".join(map(_text, value))
    return str(value)

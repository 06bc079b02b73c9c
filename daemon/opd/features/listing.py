"""What features there are: for ``opd --list-features`` and ``opctl features``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.features.guard import Failed, Guard, Log
from opd.features.options import describe
from opd.features.thread import Budget, BusyError

if TYPE_CHECKING:
    from opd.features.declared import Feature, Probe
    from opd.features.plugins import Plugin
    from opd.features.registry import Registry

_BUDGET = Budget(seconds=1.0, memory_bytes=64 << 20)


def list_features(registry: Registry, log: Log) -> list[dict[str, Any]]:
    """All features of all plugins, and plugins that are broken; each as a map.

    Asks each whether it can run here: ``available``, and else the ``reason``.
    """
    found: list[dict[str, Any]] = []
    for plugin in registry.plugins():
        if plugin.broken:
            found.append(
                {"plugin": plugin.name, "package": plugin.package, "broken": plugin.broken}
            )
        for feature in plugin.features:
            guard = Guard(feature.name, plugin.name, _BUDGET, log)
            try:
                reason = guard.call("unavailable", lambda p=plugin, f=feature: p.unavailable(f))  # type: ignore[misc]
            except (Failed, BusyError) as error:
                reason = f"it could not say: {error}"
            guard.close()
            about = describe_feature(plugin, feature)
            found.append({**about, "available": not reason, "reason": reason})
    return found


def describe_probe(probe: Probe) -> dict[str, Any]:
    """What a probe declares."""
    return {
        "name": probe.name,
        "summary": probe.summary,
        "options": [option._asdict() for option in describe(probe.options)],
        "suites": {
            name: suite if isinstance(suite, str) else suite.summary
            for name, suite in probe.suites.items()
        },
        "metrics": [
            {name: getattr(metric, name) for name in ("name", "unit", "better", "summary")}
            for metric in probe.metrics
        ],
        "formats": list(probe.texts),
    }


def describe_feature(plugin: Plugin, feature: Feature) -> dict[str, Any]:
    """What a feature declares."""
    return {
        "name": feature.name,
        "summary": feature.summary,
        "plugin": plugin.name,
        "package": plugin.package,
        "options": [option._asdict() for option in describe(feature.options)],
        "events": [
            {
                "name": event.name,
                "number": event.number,
                "unit": event.unit,
                "summary": event.summary,
                "minimum": event.minimum,
                "maximum": event.maximum,
                "columns": [
                    {"name": column.name, "unit": column.unit, "summary": column.summary}
                    for column in event.columns
                ],
            }
            for event in feature.events
        ],
        "probes": [describe_probe(probe) for probe in feature.probes],
    }

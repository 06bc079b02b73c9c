"""Whether what a plugin returned is what its contract says. It may be anything."""

from __future__ import annotations

import json
import re
from typing import Any

from opd.features.declared import (
    U64_MOST,
    Column,
    Event,
    Feature,
    Metric,
    Options,
    Probe,
    ProbeOptions,
    Stats,
)

NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
EVENT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
# Columns that reports have of themselves.
RESERVED = {"samples", "weight", "percent", "cores", "time"} | {
    *("event", "comm", "pid", "image", "symbol", "mode"),
    *("thread", "cpu", "cgroup", "unit", "container"),
}
EVENTS_MOST = 512
COLUMNS_MOST = 8
METRICS_MOST = 256
EXAMPLES_MOST = 256
STATS_MOST = 256
TEXT_MOST = 1024
STAT_NAME_MOST = 64
# As JSON: 8,000 CPUs have room.
DOCUMENT_MOST = 4 << 20
NOTES_MOST = 16


class NonsenseError(Exception):
    """What a hook returned breaks its contract; the message says how."""


def check_features(found: Any) -> list[Feature]:
    """What ``opd_ext_features`` returned. Raises NonsenseError."""
    if not isinstance(found, list) or not found:
        raise NonsenseError(f"expected a list of Feature, got {short(found)}")
    names: set[str] = set()
    for feature in found:
        check_feature(feature)
        if feature.name in names:
            raise NonsenseError(f"feature {feature.name} is there twice")
        names.add(feature.name)
    return found


def check_feature(feature: Any) -> None:
    """Raises NonsenseError unless it is a Feature that can be used."""
    if not isinstance(feature, Feature):
        raise NonsenseError(f"expected a Feature, got {short(feature)}")
    if not isinstance(feature.name, str) or not NAME.fullmatch(feature.name):
        raise NonsenseError(
            f"a feature's name is lower case letters, digits and _, got {short(feature.name)}"
        )
    where = f"feature {feature.name}"
    if not _is_text(feature.summary):
        raise NonsenseError(f"{where}: it needs a summary")
    if not (isinstance(feature.options, type) and issubclass(feature.options, Options)):
        raise NonsenseError(f"{where}: options must be a subclass of opd.plugin.Options")
    if not callable(feature.unavailable):
        raise NonsenseError(f"{where}: unavailable must be callable")
    for probe in _tuple(feature.probes, 64, f"{where}: probes"):
        _check_probe(probe, where)
    names: set[str] = set()
    numbers: set[int] = set()
    for event in _tuple(feature.events, EVENTS_MOST, f"{where}: events"):
        _check_event(event, where)
        if event.name in names or event.number in numbers:
            raise NonsenseError(f"{where}: event {event.name}: its name or number is taken")
        names.add(event.name)
        numbers.add(event.number)


def _check_probe(probe: Any, where: str) -> None:
    if not isinstance(probe, Probe) or not _is_text(probe.name, probe.summary):
        raise NonsenseError(f"{where}: expected a Probe, got {short(probe)}")
    where = f"{where}: probe {probe.name[:60]}"
    if not NAME.fullmatch(probe.name):
        raise NonsenseError(f"{where}: its name is lower case letters, digits and _")
    if not (isinstance(probe.options, type) and issubclass(probe.options, ProbeOptions)):
        raise NonsenseError(f"{where}: options must be a subclass of opd.plugin.ProbeOptions")
    if not callable(probe.measure) or not callable(probe.needs):
        raise NonsenseError(f"{where}: measure and needs must be callable")
    names: set[str] = set()
    for metric in _tuple(probe.metrics, METRICS_MOST, f"{where}: metrics"):
        good = isinstance(metric, Metric) and _is_text(metric.name, metric.unit)
        if not good or not NAME.fullmatch(metric.name) or metric.name in names:
            raise NonsenseError(f"{where}: wrong metric {short(metric)}")
        names.add(metric.name)
    if not names:
        raise NonsenseError(f"{where}: it needs a metric")
    _check_texts(probe, where)


def _is_suite(suite: object) -> bool:
    from opd.features.declared import Suite

    return (
        isinstance(suite, Suite)
        and _is_text(suite.summary, *suite.labels)
        and callable(suite.members)
    )


def _check_texts(probe: Probe, where: str) -> None:
    """What stands for options, and other forms of output."""
    for example in _tuple(probe.examples, EXAMPLES_MOST, f"{where}: examples"):
        if not _is_text(example):
            raise NonsenseError(f"{where}: wrong example {short(example)}")
    if not isinstance(probe.suites, dict) or not all(
        _is_text(name) and (_is_text(suite) or _is_suite(suite))
        for name, suite in probe.suites.items()
    ):
        raise NonsenseError(f"{where}: suites are texts of options by name, or each a Suite")
    optional = [one for one in (probe.files, probe.pictures) if one is not None]
    if not all(map(callable, (probe.runs_code, probe.prepare, *optional))):
        raise NonsenseError(f"{where}: runs_code, prepare, files and pictures are functions")
    if not isinstance(probe.texts, dict) or not all(
        _is_text(name) and callable(make) for name, make in probe.texts.items()
    ):
        raise NonsenseError(f"{where}: texts are functions by name")


def _check_event(event: Any, where: str) -> None:
    if not isinstance(event, Event) or not _is_text(event.name, event.summary, event.unit):
        raise NonsenseError(f"{where}: expected an Event, got {short(event)}")
    if not EVENT_NAME.fullmatch(event.name):
        raise NonsenseError(f"{where}: an event's name is letters, digits, _: {short(event.name)}")
    if any(type(n) is not int or n < 0 for n in (event.number, event.minimum, event.maximum)):
        raise NonsenseError(f"{where}: event {event.name}: its numbers must be 0 or more")
    columns: set[str] = set()
    for column in _tuple(event.columns, COLUMNS_MOST, f"{where}: event {event.name}: columns"):
        good = isinstance(column, Column) and _is_text(column.name, column.unit, column.summary)
        if not good or not NAME.fullmatch(column.name) or column.name in columns | RESERVED:
            raise NonsenseError(f"{where}: event {event.name}: wrong column {short(column)}")
        columns.add(column.name)


def check_reason(reason: Any) -> str:
    """What a feature's ``unavailable`` returned. Raises NonsenseError."""
    if not isinstance(reason, str):
        raise NonsenseError(f"expected a reason or an empty text, got {short(reason)}")
    return reason[:TEXT_MOST]


def check_stats(stats: Any) -> Stats:
    """What ``opd_ext_print_stats`` returned. Raises NonsenseError."""
    if not isinstance(stats, Stats) or not isinstance(stats.values, dict):
        raise NonsenseError(f"expected Stats, got {short(stats)}")
    if len(stats.values) > STATS_MOST:
        raise NonsenseError(f"expected at most {STATS_MOST} values, got {len(stats.values)}")
    for name, value in stats.values.items():
        if not _is_text(name) or len(name) > STAT_NAME_MOST:
            raise NonsenseError(f"a wrong name: {short(name)}")
        if isinstance(value, str):
            good = len(value) <= TEXT_MOST
        else:
            good = isinstance(value, (int, float)) and -U64_MOST // 2 <= value <= U64_MOST
        if not good:
            raise NonsenseError(f"{name}: expected a number or a short text, got {short(value)}")
    _check_document(stats)
    return stats


def _check_document(stats: Stats) -> None:
    if not isinstance(stats.document, dict):
        raise NonsenseError(f"document: expected a dict, got {short(stats.document)}")
    try:
        size = len(json.dumps(stats.document, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise NonsenseError(f"document: it is no JSON: {short(str(error))}") from error
    if size > DOCUMENT_MOST:
        raise NonsenseError(f"document: expected at most {DOCUMENT_MOST} bytes, got {size}")
    for note in _tuple(stats.notes, NOTES_MOST, "notes"):
        if not _is_text(note):
            raise NonsenseError(f"notes: expected short texts, got {short(note)}")


def check_nothing(result: Any) -> None:
    """What a hook returned that has nothing to say. Raises NonsenseError."""
    if result is not None:
        raise NonsenseError(f"expected None, got {short(result)}")


def _tuple(value: Any, most: int, what: str) -> tuple[Any, ...]:
    if not isinstance(value, tuple) or len(value) > most:
        raise NonsenseError(f"{what} must be a tuple of at most {most}")
    return value


def _is_text(*values: Any) -> bool:
    return all(isinstance(value, str) and 0 < len(value) <= TEXT_MOST for value in values)


def short(value: Any) -> str:
    """A value in few words, whatever its own __repr__ does: that is foreign code."""
    if type(value) in (str, int, float, bool, type(None)):
        return ascii(str(value)[:60])
    return f"a {type(value).__name__[:40]}"

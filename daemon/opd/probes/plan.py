"""From a text of options to the measurements it asks for: sweeps and suites taken apart."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import msgspec

from opd.config.nearest import did_you_mean
from opd.errors import ConfigError, OpdError, UnknownNameError, UsageError
from opd.features.arguments import parse_pairs, shown, spelled, split
from opd.features.declared import Feature, ProbeOptions
from opd.features.options import fields_of, read_options, texts
from opd.probes import room
from opd.probes.wire import Planned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opd.features.arguments import Argument
    from opd.features.declared import Need, Probe
    from opd.features.registry import Registry

SWEEP_MOST = 512
_SUITE = "suite"


def find_probe(registry: Registry, name: str) -> Probe:
    """The probe of that name, of whichever feature. Raises UnknownNameError with all there are."""
    name = spelled(name)
    try:
        _plugin, feature = registry.find(name)
    except ConfigError:
        feature = None  # a probe need not be called like its feature
    for probe in feature.probes if feature is not None else ():
        if probe.name == name:
            return probe
    probes = {
        probe.name: probe
        for plugin in registry.plugins()
        for other in plugin.features
        for probe in other.probes
    }
    if name not in probes:
        broken = [f"{one.name} ({one.broken})" for one in registry.plugins() if one.broken]
        there = " ".join(sorted(probes)) or "none"
        raise UnknownNameError(
            f"no probe {shown(name)}{did_you_mean(name, probes)}; there are: {there}",
            hint=f"broken plugins, which may offer it: {', '.join(broken)}" if broken else None,
        )
    return probes[name]


def read_all(probe: Probe, text: str) -> list[ProbeOptions]:
    """The options of each measurement, in order. Raises UsageError with the wrong token."""
    try:
        found = []
        for arguments in _combinations(probe, text):
            options = read_options(_as_feature(probe), texts(arguments))
            assert isinstance(options, ProbeOptions)  # noqa: S101 - it is of probe.options
            found.append(options)
    except ConfigError as error:
        raise UsageError(error.message, hint=error.hint) from error
    return found


def _as_feature(probe: Probe) -> Feature:
    return Feature(name=probe.name, summary=probe.summary, options=probe.options)


def _combinations(probe: Probe, text: str) -> Iterator[tuple[Argument, ...]]:
    where = f"probe {probe.name}"
    given = {one.key: one for one in parse_pairs(text, where)}
    if (suite := given.pop(_SUITE, None)) is not None:
        if suite.text not in probe.suites:
            names = " ".join(probe.suites) or "none"
            raise UsageError(f"{where}: no suite {shown(suite.text)}; there are: {names}")
        named = parse_pairs(probe.suites[suite.text], f"{where}: suite {suite.text}")
        given = {one.key: one for one in named} | given
    fields = fields_of(probe.options)
    ways: list[list[Argument]] = []
    for key, one in given.items():
        is_sweep = key in fields and not fields[key].is_list
        items = split(one.text, "+", one.where) if is_sweep else [one.text]
        ways.append([one._replace(text=item) for item in items])
    count = 1
    for way in ways:
        count *= len(way)
    if count > SWEEP_MOST:
        raise UsageError(f"{where}: a sweep of {count} measurements, at most {SWEEP_MOST}")
    return itertools.product(*ways)


def as_parameters(options: ProbeOptions) -> dict[str, Any]:
    """Complete options as a map of JSON's types."""
    return dict(msgspec.to_builtins(options))


def changed_text(options: ProbeOptions) -> str:
    """The options that are not as they are by default, as they are given on a command line."""
    usual = as_parameters(type(options)())
    changed = {key: v for key, v in as_parameters(options).items() if v != usual[key]}
    return ",".join(f"{key}={_value_text(value)}" for key, value in changed.items())


def _value_text(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def from_parameters(probe: Probe, parameters: dict[str, Any]) -> ProbeOptions:
    """The options that as_parameters showed. Raises UsageError."""
    try:
        return msgspec.convert(parameters, probe.options)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"probe {probe.name}: {error}") from error


def plan(registry: Registry, name: str, text: str) -> Planned:
    """What is to be measured, once it is sure that it can be. Raises OpdError."""
    probe = find_probe(registry, name)
    chosen = read_all(probe, text)
    there = room.memory_room()
    notes: dict[str, None] = {}
    needs: list[Need] = []
    for options in chosen:
        try:
            need = probe.needs(options)
            room.check_room(need, options, there)
            room.check_policy(options)
            if note := room.check_threads(need, room.cpus_of(options)):
                notes[note] = None
        except OpdError as error:
            error.message = f"probe {probe.name}: {error.message}"
            raise
        needs.append(need)
    return Planned(
        probe.name,
        [as_parameters(options) for options in chosen],
        [need.memory_bytes for need in needs],
        [(metric.name, metric.unit, metric.better) for metric in probe.metrics],
        list(notes),
    )

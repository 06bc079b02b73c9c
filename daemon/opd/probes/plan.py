"""From a text of options to the measurements it asks for: sweeps and suites taken apart."""

from __future__ import annotations

import itertools
import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import msgspec

from opd.config.nearest import did_you_mean
from opd.errors import (
    ConfigError,
    OpdError,
    OperationFailedError,
    PermissionDeniedError,
    UnknownNameError,
    UsageError,
)
from opd.features.arguments import parse_pairs, shown, spelled, split, unescape
from opd.features.declared import Feature, ProbeOptions, Suite
from opd.features.options import fields_of, read_options, texts
from opd.probes import room
from opd.probes.asker import drop_capabilities
from opd.probes.wire import Planned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from opd.features.arguments import Argument
    from opd.features.declared import Need, Probe
    from opd.features.registry import Registry

SWEEP_MOST = 512
_SUITE = "suite"
# Among the members of suites: by what the suite is for, by their names.
_CHOICES = ("label", "select")


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
        for member in _members(probe, text):
            for arguments in _combinations(probe, member):
                options = read_options(_as_feature(probe), texts(arguments))
                assert isinstance(options, ProbeOptions)  # noqa: S101 - it is of probe.options
                found.append(options)
                if len(found) > SWEEP_MOST:
                    raise UsageError(
                        f"probe {probe.name}: more than {SWEEP_MOST} measurements at once"
                    )
    except ConfigError as error:
        raise UsageError(error.message, hint=error.hint) from error
    return found


def _as_feature(probe: Probe) -> Feature:
    return Feature(name=probe.name, summary=probe.summary, options=probe.options)


def _members(probe: Probe, text: str) -> list[list[Argument]]:
    """The options of each member of the suite that the text names; of no suite, the text's own."""
    where = f"probe {probe.name}"
    given = {one.key: one for one in parse_pairs(text, where)}
    suites = {name: one for name, one in probe.suites.items() if isinstance(one, Suite)}
    asked = {key: given.pop(key) for key in (_SUITE, *(_CHOICES if suites else ())) if key in given}
    if not asked:
        return [list(given.values())]
    name = asked[_SUITE].text if _SUITE in asked else ""
    if _SUITE in asked and name not in probe.suites:
        names = " ".join(probe.suites) or "none"
        raise UsageError(f"{where}: no suite {shown(name)}; there are: {names}")
    whole = probe.suites.get(name)
    if isinstance(whole, str):
        if len(asked) > 1:
            raise UsageError(f"{where}: suite {name} has no members to choose among")
        named = parse_pairs(whole, f"{where}: suite {name}")
        return [list(({one.key: one for one in named} | given).values())]
    chosen = {name: whole} if whole is not None else suites
    return _chosen(where, chosen, asked, given)


def _chosen(
    where: str,
    suites: Mapping[str, Suite],
    asked: Mapping[str, Argument],
    given: Mapping[str, Argument],
) -> list[list[Argument]]:
    """The members that label and select name, each once."""
    labels, patterns = (
        [unescape(item) for item in split(asked[key].text, "+", where)] if key in asked else []
        for key in _CHOICES
    )
    known = sorted({label for suite in suites.values() for label in suite.labels})
    if wrong := [label for label in labels if label not in known]:
        raise UsageError(f"{where}: no label {shown(wrong[0])}; there are: {' '.join(known)}")
    words = {key: one.text for key, one in given.items()}
    found: dict[str, None] = {}
    names: dict[str, None] = {}
    for suite in suites.values():
        if labels and not set(labels) & set(suite.labels):
            continue
        for name, text in suite.members(words):
            names[name] = None
            if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns):
                found[text] = None
    if not found:
        raise UsageError(
            f"{where}: nothing is selected", hint=f"members: {' '.join(names) or 'none'}"
        )
    return [parse_pairs(text, where) for text in found]


def _combinations(probe: Probe, given: list[Argument]) -> Iterator[tuple[Argument, ...]]:
    fields = fields_of(probe.options)
    ways: list[list[Argument]] = []
    for one in given:
        is_sweep = one.key in fields and not fields[one.key].is_list
        items = split(one.text, "+", one.where) if is_sweep else [one.text]
        ways.append([one._replace(text=item) for item in items])
    count = 1
    for way in ways:
        count *= len(way)
    if count > SWEEP_MOST:
        raise UsageError(
            f"probe {probe.name}: a sweep of {count} measurements, at most {SWEEP_MOST}"
        )
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


def plan(registry: Registry, name: str, text: str, *, stranger: str = "") -> Planned:
    """What is to be measured, once it is sure that it can be. Raises OpdError.

    ``stranger``: who asked, when this process cannot become that one: then no
    code of the asker's is run.
    """
    probe = find_probe(registry, name)
    chosen = read_all(probe, text)
    runs = next(filter(None, map(probe.runs_code, chosen)), "")
    if runs and stranger:
        raise PermissionDeniedError(
            f"probe {probe.name}: {runs}, and opd is uid {os.geteuid()}: it cannot do so as"
            f" {stranger}",
            hint="measure it yourself: opctl --session-dir DIRECTORY probe run …",
        )
    if runs:
        # What the daemon may is not for code that somebody else brings, nor for looking at it.
        drop_capabilities()
    there = room.memory_room()
    notes: dict[str, None] = {}
    taken: list[tuple[ProbeOptions, Need]] = []
    missing: dict[str, int] = {}
    for options in chosen:
        try:
            need = probe.needs(options)
            if need.missing:
                missing[need.missing] = missing.get(need.missing, 0) + 1
                continue
            room.check_room(need, options, there)
            room.check_policy(options)
            if note := room.check_threads(need, room.cpus_of(options)):
                notes[note] = None
        except OpdError as error:
            error.message = f"probe {probe.name}: {error.message}"
            raise
        taken.append((options, need))
    if missing and (not taken or not _is_suite(text)):
        raise OperationFailedError(f"probe {probe.name}: {next(iter(missing))}")
    told = [
        f"{count} of {len(chosen)} measurements left out: {reason}"
        for reason, count in missing.items()
    ]
    return Planned(
        probe.name,
        [as_parameters(options) for options, _need in taken],
        [need.memory_bytes for _options, need in taken],
        [(metric.name, metric.unit, metric.better) for metric in probe.metrics],
        [*notes, *told],
        prepares=bool(runs),
    )


def _is_suite(text: str) -> bool:
    return any(one.key in (_SUITE, *_CHOICES) for one in parse_pairs(text, "probe"))


def prepare(
    registry: Registry, name: str, parameters: Sequence[dict[str, Any]], tell: Callable[[str], None]
) -> None:
    """Have the probe make ready what all of the measurements need. Raises OpdError."""
    probe = find_probe(registry, name)
    probe.prepare([from_parameters(probe, one) for one in parameters], tell)

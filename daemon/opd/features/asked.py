"""Which features run and with which options: flags, tables and events, asked of the plugins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from opd.errors import ConfigError
from opd.features.arguments import escape, parse_ext_feature
from opd.features.options import Given, read_options, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from opd.config.settings import Features
    from opd.features.declared import Feature, Options
    from opd.features.plugins import Plugin
    from opd.features.registry import Registry

# In a table [feature.NAME]: false takes back what another file asked for.
_ENABLED = "enabled"
_TABLE = "feature"


class Activation(NamedTuple):
    """A feature that is to run."""

    plugin: Plugin
    feature: Feature
    options: Options


class PulledIn(msgspec.Struct, frozen=True):
    """An event asked for whose line in the events file names a feature (``ext:WORD``).

    ``count`` 0: none was given. ``options`` are what its unit mask sets.
    ``where`` is for messages.
    """

    feature: str
    event: str
    count: int = 0
    where: str = "--event"
    options: dict[str, str] = {}


class _Mistakes:
    """Collects errors, to tell them all at once."""

    def __init__(self) -> None:
        self._messages: list[str] = []
        self._hints: list[str] = []

    def __enter__(self) -> None:
        """Begin something that may raise ConfigError."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, ConfigError):
            return False
        self._messages.append(error.message)
        self._hints += [error.hint] if error.hint else []
        return True

    def tell(self) -> None:
        """Raise them as one, if there are any."""
        if self._messages:
            hint = "\n".join(dict.fromkeys(self._hints)) or None
            raise ConfigError("\n".join(self._messages), hint=hint)


def resolve(
    asked: Features, registry: Registry, pulled: Iterable[PulledIn] = ()
) -> list[Activation]:
    """The features to run, in order: tables, flags, events.

    A flag's option wins over a table's. Raises one ConfigError with all
    mistakes: the token, and what is valid.
    """
    given: dict[str, dict[str, Given]] = {}
    activations: list[Activation] = []
    mistakes = _Mistakes()
    for name, table in asked.tables.items():
        with mistakes:
            _take_table(name, table, given)
    for flag in asked.flags:
        with mistakes:
            _take_flag(flag, given)
    for one in pulled:
        with mistakes:
            _pull_in(one, given.setdefault(one.feature, {}))
    for name, options in given.items():
        with mistakes:
            activations.append(_activate(name, options, registry))
    mistakes.tell()
    return activations


def _take_table(
    name: str, table: Mapping[str, tuple[Any, str]], given: dict[str, dict[str, Given]]
) -> None:
    enabled, where = table.get(_ENABLED, (True, ""))
    if not isinstance(enabled, bool):
        raise ConfigError(f"{where}: {_TABLE}.{name}.{_ENABLED}: expected true or false")
    if enabled:
        given[name] = {
            key: Given(value, f"{where}: [{_TABLE}.{name}]", is_text=False)
            for key, (value, where) in table.items()
            if key != _ENABLED
        }


def _take_flag(flag: str, given: dict[str, dict[str, Given]]) -> None:
    for one in parse_ext_feature(flag):
        options = given.setdefault(one.name, {})
        for key, value in texts(one.arguments).items():
            before = options.get(key)
            if before is not None and before.is_text:
                raise ConfigError(f"{value.where}: {key} is already set by {before.where}")
            options[key] = value


def _pull_in(one: PulledIn, options: dict[str, Given]) -> None:
    """Add the event, and its count, to what the feature was asked with."""
    events = options.get("events")
    if events is None:
        options["events"] = Given(escape(one.event), one.where, is_text=True)
    elif events.is_text:
        if one.event not in events.value.split("+"):
            options["events"] = events._replace(value=f"{events.value}+{escape(one.event)}")
    elif isinstance(events.value, list) and one.event not in events.value:
        options["events"] = events._replace(value=[*events.value, one.event])
    wanted = {"count": str(one.count)} if one.count else {}
    for key, value in (wanted | one.options).items():
        before = options.get(key)
        if before is not None and str(before.value) != value:
            raise ConfigError(
                f"{one.where}: {one.event}: {key} {value}, but {before.where} has {before.value}",
                hint=f"all events of {one.feature} share one {key}",
            )
        options[key] = Given(value, one.where, is_text=True)


def _activate(name: str, given: dict[str, Given], registry: Registry) -> Activation:
    plugin, feature = registry.find(name)
    try:
        options = read_options(feature, given)
    except ValueError as error:  # its options cannot be used at all
        raise ConfigError(f"feature {name}: plugin {plugin.name} is broken: {error}") from error
    replay = getattr(options, "replay", "")
    if replay:
        _check_readable(replay, f"feature {name}: replay")
    return Activation(plugin, feature, options)


def _check_readable(path: str, what: str) -> None:
    file = Path(path)
    try:
        if not file.is_file() and file.exists():
            raise ConfigError(f"{what}: {path}: expected a perf.data file, it is no file")
        file.open("rb").close()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{what}: {path}: cannot read it: {reason}") from error

"""Reads opd.toml, then conf.d/*.toml in name order, $OPD_ENDPOINT, then the flags.

Later wins, key by key; a list replaces a list. Every layer is checked whole,
so that one run tells all mistakes, also those that a later layer hides.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from opd.config.nearest import did_you_mean
from opd.config.problems import Problem, raise_problems
from opd.config.settings import SECTIONS, Config, Features, Origin
from opd.errors import OpdError
from opd.service import paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Tables [feature.NAME], and the override that holds every --ext-feature.
FEATURE_TABLE = "feature"
DEFAULT_PATH = "/etc/opd/opd.toml"
_FILE_BYTES_MOST = 1 << 20


class Override(NamedTuple):
    """One setting from the command line: the flag as typed, and its value."""

    flag: str
    value: Any


class _Field(NamedTuple):
    type: Any
    expected: str
    check: Any


def _fields() -> dict[str, dict[str, _Field]]:
    table: dict[str, dict[str, _Field]] = {}
    for section, struct in SECTIONS.items():
        table[section] = {}
        for key, hint in get_type_hints(struct, include_extras=True).items():
            extra = get_args(hint)[1].extra
            table[section][key] = _Field(hint, extra["expected"], extra["check"])
    return table


_FIELDS = _fields()


def load(
    overrides: Mapping[str, Override] | None = None,
    config_path: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """All settings, from ``config_path`` (default: /etc/opd/opd.toml where it exists).

    ``overrides`` maps ``section.key`` to what the command line gave. Raises one
    ConfigError that names every mistake: file or flag, key, what was expected,
    what was there, the closest valid key.
    """
    environ = os.environ if environ is None else environ
    overrides = dict(overrides or {})
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    tables: dict[str, dict[str, tuple[Any, str]]] = {}
    for source, table in _layers(config_path, problems):
        _take_features(source, table.pop(FEATURE_TABLE, {}), tables, problems)
        for name, value in _checked(source, table, problems):
            values[name] = value
            sources[name] = source
    if endpoint := environ.get("OPD_ENDPOINT"):
        overrides = {"daemon.endpoint": Override("OPD_ENDPOINT", endpoint), **overrides}
    for name, override in overrides.items():
        if name == FEATURE_TABLE:
            continue
        problem, value = _flag(name, override)
        if problem is not None:
            problems.append(problem)
            continue
        values[name] = value
        sources[name] = override.flag
    _fill_in(values, environ, problems)
    raise_problems(problems)
    sections = {
        section: struct(
            **{key: values[f"{section}.{key}"] for key in fields if f"{section}.{key}" in values}
        )
        for (section, struct), fields in zip(SECTIONS.items(), _FIELDS.values(), strict=True)
    }
    origin = Origin(path=config_path, overrides=overrides, sources=sources)
    asked = overrides.get(FEATURE_TABLE)
    features = Features(flags=tuple(asked.value) if asked else (), tables=tables)
    return msgspec.structs.replace(Config(), origin=origin, features=features, **sections)


def reload(config: Config, *, environ: Mapping[str, str] | None = None) -> Config:
    """The same files and flags read again. Raises ConfigError; ``config`` stays valid."""
    return load(config.origin.overrides, config.origin.path, environ=environ)


def changed_keys(old: Config, new: Config) -> list[str]:
    """``section.key`` of each setting whose value differs."""
    return [
        f"{section}.{key}"
        for section, fields in _FIELDS.items()
        for key in fields
        if getattr(getattr(old, section), key) != getattr(getattr(new, section), key)
    ]


def _layers(
    config_path: str | None, problems: list[Problem]
) -> Iterator[tuple[str, dict[str, Any]]]:
    main = Path(DEFAULT_PATH if config_path is None else config_path)
    files = [main] if config_path is not None or main.exists() else []
    try:
        files += sorted(main.parent.joinpath("conf.d").glob("*.toml"))
    except OSError as error:
        problems.append(Problem(f"{main.parent / 'conf.d'}", "", f"{error.strerror}"))
    for file in files:
        try:
            # A bound, and no waiting on a FIFO: a setting file is a small regular file.
            if not file.is_file() and file.exists():
                problems.append(Problem(f"{file}", "", "expected a TOML file, it is none"))
                continue
            with file.open("rb") as stream:
                text = stream.read(_FILE_BYTES_MOST + 1)
            if len(text) > _FILE_BYTES_MOST:
                problems.append(Problem(f"{file}", "", "larger than 1 MiB"))
                continue
            import tomllib  # only where there is a file: start-up has a budget

            yield f"{file}", tomllib.loads(text.decode())
        except OSError as error:
            problems.append(Problem(f"{file}", "", f"cannot read it: {error.strerror}"))
        except UnicodeDecodeError as error:
            problems.append(Problem(f"{file}", "", f"expected UTF-8, byte {error.start} is not"))
        except (RecursionError, ValueError) as error:  # TOMLDecodeError is a ValueError
            problems.append(Problem(f"{file}", "", f"expected TOML: {error}"))


def _checked(
    source: str, table: dict[str, Any], problems: list[Problem]
) -> Iterator[tuple[str, Any]]:
    for section, content in table.items():
        fields = _FIELDS.get(section)
        if fields is None:
            problems.append(Problem(source, section, _no_such_section(section)))
        elif not isinstance(content, dict):
            message = f"expected a table [{section}], got {_shown(content)}"
            problems.append(Problem(source, section, message))
        else:
            for key, raw in content.items():
                name = f"{section}.{key}"
                if key not in fields:
                    problems.append(Problem(source, name, _no_such_key(section, key)))
                    continue
                message, value = _converted(fields[key], raw, strict=True)
                if message:
                    problems.append(Problem(source, name, message))
                else:
                    yield name, value


def _take_features(
    source: str,
    content: Any,
    tables: dict[str, dict[str, tuple[Any, str]]],
    problems: list[Problem],
) -> None:
    """Tables [feature.NAME]; what their keys mean their plugins know."""
    if not isinstance(content, dict):
        message = f"expected tables [{FEATURE_TABLE}.NAME], got {_shown(content)}"
        problems.append(Problem(source, FEATURE_TABLE, message))
        return
    for name, values in content.items():
        if not isinstance(values, dict):
            message = f"expected a table [{FEATURE_TABLE}.{name}], got {_shown(values)}"
            problems.append(Problem(source, f"{FEATURE_TABLE}.{name}", message))
            continue
        table = tables.setdefault(name.strip().replace("-", "_"), {})
        table.update({key.replace("-", "_"): (value, source) for key, value in values.items()})


def _flag(name: str, override: Override) -> tuple[Problem | None, Any]:
    section, key = name.split(".")
    field = _FIELDS[section][key]
    # A shell's unset variable must not silently mean the default.
    if override.value == "":
        return Problem(override.flag, "", f"expected {field.expected}, got nothing"), None
    message, value = _converted(field, override.value, strict=False)
    return (Problem(override.flag, "", message), None) if message else (None, value)


def _converted(field: _Field, raw: Any, *, strict: bool) -> tuple[str, Any]:
    """``(what is wrong, None)`` or ``("", value)``."""
    expected = f"expected {field.expected}, got {_shown(raw)}"
    try:
        value = msgspec.convert(raw, field.type, strict=strict)
    except (msgspec.ValidationError, ValueError, OverflowError):
        words = _choices(field.type)
        items = raw if isinstance(raw, (list, tuple)) else [raw]
        wrong = [item for item in items if isinstance(item, str) and item not in words]
        return expected + (did_you_mean(wrong[0], words) if wrong else ""), None
    reason = field.check(value) if field.check else ""
    return (f"{expected}: {reason}", None) if reason else ("", value)


def _choices(hint: Any) -> list[str]:
    """The words of a ``Literal`` inside ``hint``, at any depth."""
    words: list[str] = []
    for part in get_args(hint):
        if isinstance(part, str):
            words.append(part)
        elif get_origin(part) is not None:
            words += _choices(part)
    return words


def _no_such_section(section: str) -> str:
    homes = [name for name, fields in _FIELDS.items() if section in fields]
    if homes:
        return f"no such table; did you mean {section} under [{homes[0]}]?"
    close = did_you_mean(section, [*SECTIONS, FEATURE_TABLE])
    return f"no such table; expected one of {', '.join(SECTIONS)}, feature.NAME{close}"


def _no_such_key(section: str, key: str) -> str:
    homes = [name for name, fields in _FIELDS.items() if key in fields]
    if homes:
        return f"no such key here; did you mean {key} under [{homes[0]}]?"
    close = did_you_mean(key, _FIELDS[section])
    return f"no such key; expected one of {', '.join(_FIELDS[section])}{close}"


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _fill_in(values: dict[str, Any], environ: Mapping[str, str], problems: list[Problem]) -> None:
    """Where opd listens and keeps, when nobody said."""
    defaults = {"endpoint": paths.daemon_endpoint, "session_dir": paths.state_dir}
    for key, default in defaults.items():
        if not values.get(f"daemon.{key}"):
            try:
                values[f"daemon.{key}"] = default(environ)
            except OpdError as error:
                problems.append(Problem("", f"daemon.{key}", error.message, error.hint))
    if "daemon.session_dir" in values:
        values["daemon.session_dir"] = str(Path(values["daemon.session_dir"]).absolute())

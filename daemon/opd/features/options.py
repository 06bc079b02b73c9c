"""Options of a feature: from text or TOML to its struct, and what there are, for listings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeGuard, get_args, get_origin

import msgspec

from opd.config.nearest import did_you_mean
from opd.errors import ConfigError
from opd.features.arguments import shown, split, unescape
from opd.features.declared import SIZE, U64_MOST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opd.features.arguments import Argument
    from opd.features.declared import Feature, Options

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")
_SUFFIXES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE_MOST = (1 << 63) - 1
_I64_LEAST = -(1 << 63)
_SIZE = re.compile(r"([0-9]+)([kmg])(?:i?b)?", re.IGNORECASE | re.ASCII)
_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


class Given(NamedTuple):
    """An option with its value of a file (any of TOML's types) or of the command line."""

    value: Any
    where: str
    is_text: bool


class OptionInfo(NamedTuple):
    """One option as listed: its type in words, its default as text, what it means."""

    name: str
    type: str
    default: str
    meaning: str


class _Field(NamedTuple):
    """How an option's text is read: an atom's type, whether several by +, its bounds."""

    atom: Any
    is_list: bool
    is_size: bool
    hint: Any
    meta: msgspec.Meta | None


class OptionsDeclarationError(ValueError):
    """A plugin's options struct cannot be used; the message says which field, and why."""


def fields_of(struct: type[Options]) -> dict[str, _Field]:
    """The options of a struct by name. Raises OptionsDeclarationError."""
    from typing import get_type_hints

    try:
        hints = get_type_hints(struct, include_extras=True)
    except Exception as error:
        # Annotations are evaluated: foreign code.
        raise OptionsDeclarationError(f"{struct.__name__}: {error!r}") from error
    fields = {}
    for info in msgspec.structs.fields(struct):
        if info.required:
            raise OptionsDeclarationError(f"option {info.name} has no default")
        fields[info.name] = _field(info.name, hints[info.name])
    return fields


def _field(name: str, hint: Any) -> _Field:
    meta, kind = None, hint
    if hasattr(hint, "__metadata__"):
        kind = hint.__origin__
        meta = next((m for m in hint.__metadata__ if isinstance(m, msgspec.Meta)), None)
    if meta is None or not meta.description:
        raise OptionsDeclarationError(f"option {name}: needs Annotated[…, about(its meaning)]")
    is_list = get_origin(kind) is tuple
    atom = get_args(kind)[0] if is_list else kind
    if hasattr(atom, "__metadata__"):
        atom = atom.__origin__
    if atom not in _PLAIN and get_origin(atom) is not Literal:
        raise OptionsDeclarationError(
            f"option {name}: expected int, float, bool, str, Literal or a tuple of one"
        )
    extra = meta.extra or {}
    return _Field(atom, is_list, extra.get("unit") == SIZE, hint, meta)


def read_options(feature: Feature, given: Mapping[str, Given]) -> Options:
    """Options of what was given. Raises ConfigError with one line a mistake."""
    fields = fields_of(feature.options)
    values: dict[str, Any] = {}
    problems: list[str] = []
    for key, one in given.items():
        if key not in fields:
            valid = " ".join(fields) or "none"
            close = did_you_mean(key, fields)
            problems.append(f"{one.where}: no option {shown(key)}{close}; valid: {valid}")
            continue
        try:
            values[key] = _value(fields[key], one)
        except ConfigError as error:
            problems.append(error.message)
        except ValueError as error:
            reason = f": {error}" if str(error) else ""
            problems.append(
                f"{one.where}: {key}: expected {expected(fields[key])}, got"
                f" {shown(str(one.value))}{reason}"
            )
    if problems:
        raise ConfigError("\n".join(problems))
    try:
        options = feature.options(**values)
    except (ValueError, TypeError) as error:
        where = next(iter({one.where for one in given.values()}), feature.name)
        raise ConfigError(f"{where}: {error}") from error
    except Exception as error:
        # What else a plugin's check raises says that the plugin is wrong, not the user.
        raise ConfigError(f"{feature.name}: its check of the options broke: {error!r}") from error
    # What the struct says of it is more than this can.
    if problems := _exclusive(feature.options, given, values):
        raise ConfigError("\n".join(problems))
    return options


def _exclusive(
    struct: type[Options], given: Mapping[str, Given], values: Mapping[str, Any]
) -> list[str]:
    """A line for each pair of which one is to be given, and both are."""
    usual = {field.name: field.default for field in msgspec.structs.fields(struct)}
    return [
        f"{given[first].where}: {first} and {second}: give one of them, got"
        f" {first}={_plain(values[first])} and {second}={_plain(values[second])}"
        for first, second in struct.exclusive
        if first in values and second in values and values[second] != usual[second]
    ]


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def texts(arguments: tuple[Argument, ...]) -> dict[str, Given]:
    """Options of the command line."""
    return {one.key: Given(one.text, one.where, is_text=True) for one in arguments}


def _value(field: _Field, given: Given) -> Any:
    """The checked value. Raises ValueError with a reason, or without."""
    value = given.value
    if given.is_text:
        if field.is_list:
            value = tuple(_atom(field, unescape(item)) for item in split(value, "+", given.where))
        else:
            split(value, ",", given.where)  # for the backslash at its end
            value = _atom(field, unescape(value))
    elif field.is_size and isinstance(value, str):
        value = _atom(field, value)
    try:
        return msgspec.convert(value, field.hint, strict=True)
    except msgspec.ValidationError as error:
        reason = str(error)
        raise ValueError("" if reason.startswith("Expected") else reason) from error


def _atom(field: _Field, text: str) -> Any:
    atom = field.atom
    if atom is str:
        if not text and field.is_list:
            raise ValueError("an item is empty")
        return text
    if get_origin(atom) is Literal:
        return _word(get_args(atom), text)
    if atom is bool:
        if text.lower() not in _TRUE + _FALSE:
            raise ValueError
        return text.lower() in _TRUE
    return _number(field, text)


def _number(field: _Field, text: str) -> int | float:
    try:
        if field.atom is float:
            return float(text)
        if field.is_size and (size := _SIZE.fullmatch(text)):
            number = int(size[1]) * _SUFFIXES[size[2].lower()]
        else:
            number = int(text, 0)
    except ValueError:
        raise ValueError from None
    if field.is_size and number > _SIZE_MOST:
        raise ValueError("no machine has so much")
    if not _I64_LEAST <= number <= U64_MOST:
        raise ValueError("it takes more than 64 bits")
    return number


def _word(words: tuple[Any, ...], text: str) -> Any:
    for word in words:
        if str(word) == text:
            return word
    close = did_you_mean(text, [str(word) for word in words])
    raise ValueError(close.removeprefix("; "))


def expected(field: _Field) -> str:
    """The type in words, with its bounds."""
    if get_origin(field.atom) is Literal:
        words = " or ".join(str(word) for word in get_args(field.atom))
    elif field.is_size:
        words = "a size such as 64k, 256m, 1g"
    else:
        words = _PLAIN[field.atom]
    meta = field.meta
    if _is_bounded(meta):
        if meta.ge is not None and meta.le is not None:
            words += (
                f" from {meta.ge:g} to {meta.le:g}"
                if meta.le < 1e6
                else (f" from {meta.ge} to {meta.le}")
            )
        else:
            words += f" of {meta.ge} or more" if meta.ge is not None else f" of at most {meta.le}"
    return f"a list by + of: {words}" if field.is_list else words


def _is_bounded(meta: msgspec.Meta | None) -> TypeGuard[msgspec.Meta]:
    return meta is not None and (meta.ge is not None or meta.le is not None)


def describe(struct: type[Options]) -> list[OptionInfo]:
    """All options of a struct, for a listing. Raises OptionsDeclarationError."""
    defaults = struct()
    return [
        OptionInfo(
            name,
            expected(field),
            _as_argument(getattr(defaults, name)),
            (field.meta.description or "") if field.meta else "",
        )
        for name, field in fields_of(struct).items()
    ]


def _as_argument(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "+".join(map(_as_argument, value))
    return str(value)

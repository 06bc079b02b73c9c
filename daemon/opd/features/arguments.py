r"""``NAME[:ARGS]`` as it stands on the command line, before its options' types are known.

ARGS is ``key=value`` pairs by commas; a list's items are divided by ``+``; ``\``
takes the next character as it is. In names and keys ``-`` and ``_`` are the
same. oprofile's ``ibs:fetch:EV,..:COUNT:UM|op:EV,..:COUNT:UM`` is understood.
"""

from __future__ import annotations

from typing import NamedTuple

from opd.errors import ConfigError
from opd.features.checks import NAME

ARGS_MOST = 1 << 16
_HINT = "--ext-feature NAME[:KEY=VALUE,…], a list's items by +; opd --list-features shows them"
_PROBE_HINT = "opctl probe run PROBE KEY=VALUE,…, a list's items by +; opctl features shows them"


class Argument(NamedTuple):
    """One option as typed: ``text`` still has its backslashes."""

    key: str
    text: str
    where: str  # for messages: what set it


class AskedFeature(NamedTuple):
    """A feature asked for on the command line."""

    name: str
    arguments: tuple[Argument, ...]


def parse_ext_feature(text: str, *, flag: str = "--ext-feature") -> list[AskedFeature]:
    """The features that one ``--ext-feature`` asks for: one, or two in oprofile's spelling.

    Raises ConfigError that names the token. Whether there is such a feature
    or option is asked later.
    """
    if len(text) > ARGS_MOST:
        raise ConfigError(f"{flag}: longer than {ARGS_MOST} characters")
    require_utf8(text, flag)
    where = f"{flag} {shown(text)}"
    name, colon, args = text.partition(":")
    if name.strip() == "ibs":
        from opd.features.legacy import parse_ibs  # few spell it so

        return parse_ibs(args, where)
    name = spelled(name)
    if not NAME.fullmatch(name):
        raise ConfigError(f"{where}: expected a feature's name, got {shown(name)}", hint=_HINT)
    del colon  # "NAME:" is NAME without options
    return [AskedFeature(name, tuple(_pairs(args, where)))]


def spelled(name: str) -> str:
    """The one spelling of a name or key."""
    return name.strip().replace("-", "_")


def shown(text: str) -> str:
    """A token in quotes, on one line, not too long."""
    quoted = ascii(text) if not text.isprintable() else repr(text)
    return quoted if len(quoted) <= 120 else f"{quoted[:116]}...'"


def require_utf8(text: str, where: str) -> None:
    """ConfigError: the command line had bytes here that are no text; it shows the first of them."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        before = text[: error.start][-60:]
        # As surrogateescape (PEP 383) brings it: U+DC80 to U+DCFF.
        byte = ord(text[error.start]) & 0xFF
        raise ConfigError(
            f"{where}: byte 0x{byte:02x} after {shown(before)} is no UTF-8",
            hint="names and values of options are text in UTF-8",
        ) from error


def parse_pairs(args: str, where: str) -> list[Argument]:
    """``key=value,key=value`` of a probe. Raises ConfigError with the token."""
    return _pairs(args, where, hint=_PROBE_HINT)


def _pairs(args: str, where: str, *, hint: str = _HINT) -> list[Argument]:
    if not args:
        return []
    found: list[Argument] = []
    for pair in split(args, ",", where):
        key, text = _divide(pair)
        if text is None:
            raise ConfigError(f"{where}: expected KEY=VALUE, got {shown(pair)}", hint=hint)
        key = spelled(unescape(key))
        if not NAME.fullmatch(key):
            raise ConfigError(f"{where}: expected an option's name, got {shown(key)}", hint=hint)
        if any(key == other.key for other in found):
            raise ConfigError(f"{where}: {key} is given twice", hint="a list's items go by +")
        found.append(Argument(key, text, where))
    return found


def _divide(pair: str) -> tuple[str, str | None]:
    """Key and value at the first ``=`` that is not escaped."""
    at = 0
    while at < len(pair):
        if pair[at] == "\\":
            at += 1
        elif pair[at] == "=":
            return pair[:at], pair[at + 1 :]
        at += 1
    return pair, None


def split(text: str, by: str, where: str = "") -> list[str]:
    r"""Divide at ``by`` where it is not escaped; the parts keep their backslashes.

    >>> split(r"a+b\\+c", "+")
    ['a', 'b\\\\', 'c']

    Raises ConfigError for a backslash at the end, which escapes nothing.
    """
    parts, begin, at = [], 0, 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
            if at == len(text):
                raise ConfigError(f"{where}: the \\ at the end of {shown(text)} escapes nothing")
        elif text[at] == by:
            parts.append(text[begin:at])
            begin = at + 1
        at += 1
    parts.append(text[begin:])
    return parts


def unescape(text: str) -> str:
    r"""The text without its escapes.

    >>> unescape(r"a\\,b")
    'a\\,b'
    """
    plain, at = [], 0
    while at < len(text):
        at += text[at] == "\\"
        plain.append(text[at : at + 1])
        at += 1
    return "".join(plain)


def escape(text: str) -> str:
    r"""What ``unescape`` gives back as ``text``, as a value or as an item of a list.

    >>> escape("a,b")
    'a\\,b'
    """
    return "".join(f"\\{c}" if c in ",+\\=" else c for c in text)

"""Triggers: what is written in opd.toml, and the condition that it holds.

``[[burst.trigger]]`` tables. ``when`` is one comparison of something the
kernel tells of the whole machine or of one unit with a number.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from opd.config.nearest import did_you_mean
from opd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMS = (
    "psi.cpu.some.avg10 > 40 (cpu, memory, io; some, full; avg10, avg60, avg300; percent),"
    " load1 > 8 (load1, load5, load15), unit:nginx.service cpu > 1.5 (cores),"
    " cgroup:/path cpu > 1.5"
)
TRIGGERS_MOST = 16
_WHEN = re.compile(r"\s*(?P<what>.*?)\s*(?P<operator><=|>=|<|>)\s*(?P<number>\S+)\s*")
_PSI = re.compile(r"psi\.(cpu|memory|io)\.(some|full)\.(avg10|avg60|avg300)")
_LOAD = re.compile(r"load(1|5|15)")
_OF_GROUP = re.compile(r"(unit|cgroup):(\S+)\s+cpu")
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|d)?")
_UNITS = {None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN_MOST = 86400.0


class Condition(msgspec.Struct, frozen=True):
    """``what`` compared with ``number``.

    ``kind`` psi: ``subject`` is cpu, memory or io, ``detail`` (some or full,
    avg…); load: ``detail`` is the field of /proc/loadavg; unit, cgroup:
    ``subject`` names it, and the value is cores.
    """

    kind: Literal["psi", "load", "unit", "cgroup"]
    subject: str
    detail: tuple[str, ...]
    operator: Literal["<", "<=", ">", ">="]
    number: float
    text: str

    def holds(self, value: float) -> bool:
        """Whether a value meets it."""
        return {
            "<": value < self.number,
            "<=": value <= self.number,
            ">": value > self.number,
            ">=": value >= self.number,
        }[self.operator]


class Trigger(msgspec.Struct, frozen=True):
    """One trigger: when, and what burst. Times in seconds."""

    when: Condition
    hold: float = 3.0
    seconds: float = 30.0
    rate: int = 4999
    cooldown: float = 600.0
    most_per_day: int = 12
    events: tuple[str, ...] = ("cycles:p",)
    comms: tuple[str, ...] = ()


def parse_condition(text: str) -> Condition:
    """Read ``when``. ConfigError says what is wrong and what is right."""
    match = _WHEN.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r} is no comparison; such as {FORMS}")
    what, operator = match["what"], match["operator"]
    detail: tuple[str, ...] = ()
    try:
        number = float(match["number"])
    except ValueError:
        number = float("nan")
    if not 0 <= number < float("inf"):
        raise ConfigError(f"{match['number']!r} is not a number of 0 or more")
    shown = f"{what} {operator} {match['number']}"
    if found := _PSI.fullmatch(what):
        kind, subject, detail = "psi", found[1], (found[2], found[3])
    elif found := _LOAD.fullmatch(what):
        kind, subject, detail = "load", "", (found[1],)
    elif found := _OF_GROUP.fullmatch(what):
        kind, subject = found[1], found[2]
        if kind == "cgroup" and not subject.startswith("/"):
            raise ConfigError(f"cgroup:{subject}: the path begins with / below the mount")
    else:
        close = did_you_mean(what, ("psi.cpu.some.avg10", "psi.io.some.avg10", "load1"))
        raise ConfigError(f"nothing is called {what!r}{close}; such as {FORMS}")
    parts = {"kind": kind, "subject": subject, "detail": detail}
    parts |= {"operator": operator, "number": number, "text": shown}
    return msgspec.convert(parts, Condition)


def parse_trigger(table: dict[str, Any]) -> Trigger:
    """Read one table. ConfigError names the key that is wrong and what is right."""
    readers = {
        "when": ("when", _text(parse_condition)),
        "hold": ("hold", _span(0)),
        "for": ("seconds", _span(1)),
        "rate": ("rate", _whole(1)),
        "cooldown": ("cooldown", _span(0)),
        "most_per_day": ("most_per_day", _whole(1)),
        "events": ("events", _texts),
        "comm": ("comms", _texts),
    }
    values: dict[str, Any] = {}
    for key, raw in table.items():
        if key not in readers:
            close = did_you_mean(key, readers)
            raise ConfigError(f"no such key {key!r}{close}; expected {', '.join(readers)}")
        name, read = readers[key]
        try:
            values[name] = read(raw)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from error
    if "when" not in values:
        raise ConfigError(f"it has no `when`; such as {FORMS}")
    return Trigger(**values)


def parse_triggers(tables: Sequence[dict[str, Any]]) -> tuple[Trigger, ...]:
    """Read all of them. ConfigError names the first that is wrong by its number."""
    if len(tables) > TRIGGERS_MOST:
        raise ConfigError(f"at most {TRIGGERS_MOST} triggers")
    triggers = []
    for number, table in enumerate(tables, 1):
        try:
            triggers.append(parse_trigger(table))
        except ConfigError as error:
            raise ConfigError(f"trigger {number}: {error}") from error
    return tuple(triggers)


def _text(read: Any) -> Any:
    def check(raw: Any) -> Any:
        if not isinstance(raw, str):
            raise ConfigError(f"expected a text, got {raw!r}")
        return read(raw)

    return check


def _span(least: float) -> Any:
    def check(raw: Any) -> float:
        text = str(raw) if isinstance(raw, int | float) else raw
        match = _SPAN.fullmatch(text) if isinstance(text, str) else None
        seconds = float(match[1]) * _UNITS[match[2]] if match else -1.0
        if not least <= seconds <= _SPAN_MOST:
            raise ConfigError(f"expected a time from {least:g}s to 24h such as 30s, got {raw!r}")
        return seconds

    return check


def _whole(least: int) -> Any:
    def check(raw: Any) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or raw < least:
            raise ConfigError(f"expected a whole number from {least}, got {raw!r}")
        return raw

    return check


def _texts(raw: Any) -> tuple[str, ...]:
    texts = (raw,) if isinstance(raw, str) else raw
    if not isinstance(texts, list | tuple) or not texts:
        raise ConfigError(f"expected a text or a list of them, got {raw!r}")
    if not all(isinstance(text, str) and text for text in texts):
        raise ConfigError(f"expected texts, got {raw!r}")
    return tuple(texts)

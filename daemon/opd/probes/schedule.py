"""Probes that run by themselves: ``PROBE:OPTIONS,every=1h,when=idle,jitter=5m``."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from opd.errors import ConfigError
from opd.features.arguments import parse_pairs, shown, spelled

SCHEDULES_MOST = 64
EVERY_LEAST = 10.0
_EVERY_MOST = 366 * 86_400.0
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h|d)?")
_UNITS = {None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
KEYS = ("every", "when", "jitter")


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """``every`` 0: once, at the start. Seconds. ``when`` idle: only while others use no CPU.

    ``jitter``: each turn comes up to so much later, so that many machines do
    not do it at once.
    """

    probe: str
    options: str
    every: float = 0.0
    when: Literal["always", "idle"] = "always"
    jitter: float = 0.0
    text: str = ""


def parse_schedule(text: str) -> Schedule:
    """Read one. ConfigError names what is wrong and what is right."""
    name, _, options = text.strip().partition(":")
    probe = spelled(name)
    if not _NAME.fullmatch(probe):
        raise ConfigError(f"expected PROBE:OPTIONS,every=1h, got {shown(text)}")
    rest, own = [], {}
    for one in parse_pairs(options, f"probe {probe}"):
        if one.key in KEYS:
            own[one.key] = one.text
        else:
            rest.append(f"{one.key}={one.text}")
    every = parse_span("every", own["every"], EVERY_LEAST) if "every" in own else 0.0
    jitter = parse_span("jitter", own["jitter"], 0.0) if "jitter" in own else 0.0
    when = own.get("when", "always")
    if when not in ("always", "idle"):
        raise ConfigError(f"when: expected idle or always, got {shown(when)}")
    if every and jitter > every:
        raise ConfigError(f"jitter {own['jitter']} is more than every {own['every']}")
    return Schedule(
        probe=probe,
        options=",".join(rest),
        every=every,
        when="idle" if when == "idle" else "always",
        jitter=jitter,
        text=text.strip(),
    )


def parse_schedules(texts: tuple[str, ...]) -> tuple[Schedule, ...]:
    """Read all of them. ConfigError names the first that is wrong by its number."""
    if len(texts) > SCHEDULES_MOST:
        raise ConfigError(f"at most {SCHEDULES_MOST} schedules")
    found = []
    for number, text in enumerate(texts, 1):
        try:
            found.append(parse_schedule(text))
        except ConfigError as error:
            raise ConfigError(f"schedule {number}: {error}") from error
    return tuple(found)


def parse_span(what: str, text: str, least: float) -> float:
    """Seconds of ``30s``, ``5m``, ``1h``, ``1d``. Raises ConfigError."""
    match = _SPAN.fullmatch(text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else -1.0
    if not least <= seconds <= _EVERY_MOST:
        raise ConfigError(
            f"{what}: expected a time from {least:g}s to 366d such as 1h, got {shown(text)}"
        )
    return seconds

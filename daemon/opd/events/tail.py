"""What follows an event's name: modifiers, count, unit mask, oprofile's KERNEL and USER."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from opd.errors import EventError
from opd.events.catalogue import DEFAULT_HZ, PERIOD_MOST

if TYPE_CHECKING:
    from opd.events.request import EventRequest

MODS = re.compile("[ukhpPI]+")
COUNT = re.compile("([0-9]+)(hz)?", re.IGNORECASE)
FORM = "NAME[:mods][:COUNT[:UNITMASK[:KERNEL[:USER]]]]"
_MASK = re.compile("0x[0-9a-f]+|[0-9]+", re.IGNORECASE)
_MASK_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)
_DIGITS_MOST = 20
_PRECISE_MOST = 3
_RATE_FALLBACK = 100_000


class Tail(NamedTuple):
    """What was said, or its default; ``mask`` is the unit mask as typed, "" when none was."""

    mods: str = ""
    hz: int | None = None
    period: int | None = None
    precise_ip: int = 0
    exclude_user: bool = False
    exclude_kernel: bool = False
    exclude_hv: bool = False
    exclude_idle: bool = False
    mask: str = ""

    @property
    def levels(self) -> str:
        """The letters of the levels that count, such as "u" or "kh"; "" when all do."""
        if not (self.exclude_user or self.exclude_kernel or self.exclude_hv):
            return ""
        excluded = (("u", self.exclude_user), ("k", self.exclude_kernel), ("h", self.exclude_hv))
        return "".join(letter for letter, out in excluded if not out)


def with_tail(request: EventRequest, tail: Tail) -> EventRequest:
    """``request`` at the rate or period that was said, of the levels that were."""
    return replace(
        request,
        hz=tail.hz,
        period=tail.period,
        exclude_user=tail.exclude_user,
        exclude_kernel=tail.exclude_kernel,
        exclude_hv=tail.exclude_hv,
        exclude_idle=tail.exclude_idle,
    )


def read_tail(
    text: str,
    rest: list[str],
    *,
    least: int,
    most: int = PERIOD_MOST,
    default_period: int | None,
    proc: str,
) -> Tail:
    """The tokens behind the name of event ``text``.

    COUNT is within ``least`` and ``most``; where it is missing,
    ``default_period`` is taken, or 99 Hz when that is None. Raises EventError
    naming the token and what would be right.
    """
    tail = Tail()
    tokens = list(rest)
    if tokens and MODS.fullmatch(tokens[0]):
        tail = read_mods(text, tokens.pop(0))
    if tokens:
        tail = _read_count(text, tokens.pop(0), (least, most), proc, tail)
    if tail.hz is None and tail.period is None:
        hz = None if default_period else min(DEFAULT_HZ, rate_most(proc))
        tail = tail._replace(hz=hz, period=default_period)
    if tokens:
        mask = tokens.pop(0)
        if not _MASK.fullmatch(mask) and not _MASK_NAME.fullmatch(mask):
            raise EventError(f"event {text!r}: expected a unit mask, got {mask[:40]!r}")
        tail = tail._replace(mask=mask)
    if len(tokens) > 2:
        raise EventError(f"event {text!r}: {tokens[2]!r} is too much", hint=FORM)
    return _read_oprofile_levels(text, tokens, tail) if tokens else tail


def without_mask(text: str, tail: Tail) -> Tail:
    """``tail`` of an event that has no unit masks. Raises EventError for one that is not 0."""
    if not tail.mask:
        return tail
    if not _MASK.fullmatch(tail.mask):
        raise EventError(f"event {text!r}: expected a unit mask, got {tail.mask!r}")
    if tail.mask.lower().strip("0x"):
        raise EventError(
            f"event {text!r}: unit mask {tail.mask[:40]!r}: this event has none, only 0 is right"
        )
    return tail


def read_mods(text: str, mods: str) -> Tail:
    """Perf's modifiers. Raises EventError for one that is there too often."""
    precise = _PRECISE_MOST if "P" in mods else mods.count("p")
    if precise > _PRECISE_MOST or ("P" in mods and "p" in mods):
        raise EventError(f"event {text!r}: modifier {mods!r}: precision is p, pp, ppp or P")
    doubled = sorted({letter for letter in mods if letter != "p" and mods.count(letter) > 1})
    if doubled:
        raise EventError(f"event {text!r}: modifier {mods!r}: {doubled[0]} stands there twice")
    levels = any(letter in mods for letter in "ukh")
    return Tail(
        mods=mods,
        precise_ip=precise,
        exclude_user=levels and "u" not in mods,
        exclude_kernel=levels and "k" not in mods,
        exclude_hv=levels and "h" not in mods,
        exclude_idle="I" in mods,
    )


def _read_count(text: str, token: str, limits: tuple[int, int], proc: str, tail: Tail) -> Tail:
    match = COUNT.fullmatch(token)
    if match is None:
        if token and all(letter.isascii() and letter.isalpha() for letter in token):
            raise EventError(
                f"event {text!r}: unknown modifier {token!r}", hint="modifiers are u k h p P I"
            )
        raise EventError(f"event {text!r}: expected a count such as 100000 or 999hz, got {token!r}")
    # Not converted when it is too long: that is wrong anyway, and Python refuses thousands.
    number = int(match[1]) if len(match[1]) <= _DIGITS_MOST else PERIOD_MOST + 1
    if match[2]:
        return tail._replace(hz=check_rate(text, token, number, proc))
    return tail._replace(period=check_period(text, token, number, *limits))


def check_rate(text: str, token: str, number: int, proc: str) -> int:
    """``number`` samples a second. Raises EventError beyond what the kernel takes."""
    most = rate_most(proc)
    if not 1 <= number <= most:
        raise EventError(
            f"event {text!r}: rate {token!r}: expected 1hz to {most}hz",
            hint=f"the kernel's limit is the sysctl kernel.perf_event_max_sample_rate ({most})",
        )
    return number


def check_period(text: str, token: str, number: int, least: int, most: int = PERIOD_MOST) -> int:
    """``number`` occurrences. Raises EventError that names the limit."""
    if number < least:
        raise EventError(
            f"event {text!r}: count {token[:40]!r} is below the minimum: expected {least} to {most}"
        )
    if number > most:
        raise EventError(
            f"event {text!r}: count {token[:40]!r} is above the maximum: expected {least} to {most}"
        )
    return number


def _read_oprofile_levels(text: str, tokens: list[str], tail: Tail) -> Tail:
    for token, what in zip(tokens, ("KERNEL", "USER"), strict=False):
        if token not in {"0", "1"}:
            raise EventError(f"event {text!r}: {what}: expected 0 or 1, got {token!r}")
    kernel = tokens[0] == "1"
    user = tokens[1:] != ["0"]
    if not kernel and not user:
        raise EventError(f"event {text!r}: KERNEL and USER are both 0, nothing is left to sample")
    if tail.levels:
        raise EventError(
            f"event {text!r}: levels are given twice, as {tail.levels!r} and as KERNEL:USER"
        )
    if kernel and user:
        return tail
    return tail._replace(
        mods=tail.mods + ("k" if kernel else "u"),
        exclude_kernel=not kernel,
        exclude_user=not user,
        exclude_hv=True,
    )


def rate_most(proc: str) -> int:
    """Samples a second that the kernel takes at most."""
    try:
        text = Path(proc, "sys/kernel/perf_event_max_sample_rate").read_text().strip()
        return max(1, int(text)) if len(text) <= _DIGITS_MOST else _RATE_FALLBACK
    except (OSError, ValueError):
        return _RATE_FALLBACK

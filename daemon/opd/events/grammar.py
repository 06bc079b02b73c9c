r"""Reads event specifications.

``NAME[:mods][:COUNT[:UNITMASK[:KERNEL[:USER]]]]`` or ``sys:name`` with the
same tail. ``mods`` are perf's letters: ``u k h`` the levels that count, ``p``
(up to three) or ``P`` how precise, ``I`` leave idle CPUs out. COUNT is a
period, or a rate as ``999hz``. KERNEL and USER are 0 or 1 (oprofile's).

Without COUNT: clocks and hardware events sample at 99 Hz; counted software
events (page-faults, context-switches, …) and tracepoints every occurrence.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

from msgspec.structs import replace

from opd.config.nearest import did_you_mean
from opd.config.problems import Problem, raise_problems
from opd.errors import EventError
from opd.events.catalogue import (
    BY_NAME,
    CATALOGUE,
    DEFAULT_HZ,
    PERF_TYPE_TRACEPOINT,
    PERIOD_MOST,
    Known,
)
from opd.events.request import EventRequest
from opd.events.tracepoints import (
    MOUNT_HINT,
    WORD,
    find_tracefs,
    tracepoint_id,
    unknown_tracepoint,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Idle = Literal["exclude", "irq"]

_MODS = re.compile("[ukhpPI]+")
_COUNT = re.compile("([0-9]+)(hz)?", re.IGNORECASE)
_MASK = re.compile("0x[0-9a-f]+|[0-9]+", re.IGNORECASE)
_SPEC_MOST = 256
_DIGITS_MOST = 20
_PRECISE_MOST = 3
_RATE_FALLBACK = 100_000


class _Tail(NamedTuple):
    """What follows the name."""

    mods: str = ""
    hz: int | None = None
    period: int | None = None
    precise_ip: int = 0
    exclude_user: bool = False
    exclude_kernel: bool = False
    exclude_hv: bool = False
    exclude_idle: bool = False

    @property
    def levels(self) -> str:
        """The letters of the levels that count, such as "u" or "kh"; "" when all do."""
        if not (self.exclude_user or self.exclude_kernel or self.exclude_hv):
            return ""
        excluded = (("u", self.exclude_user), ("k", self.exclude_kernel), ("h", self.exclude_hv))
        return "".join(letter for letter, out in excluded if not out)


def parse_event(
    text: str,
    *,
    sysfs: str = "/sys",
    proc: str = "/proc",
    tracefs: str | None = None,
    idle: Idle = "exclude",
) -> EventRequest:
    """One SPEC as what to open; opens nothing itself.

    ``tracefs`` None: looked up. ``idle`` "irq" keeps idle CPUs in clock events
    that do not say ``I``. Raises EventError naming the token that is wrong and
    the valid ones near it; PermissionDeniedError when the tracepoint's number
    is not readable for this user.
    """
    if not text or len(text) > _SPEC_MOST:
        raise EventError(
            f"expected an event of 1 to {_SPEC_MOST} characters, got {len(text)}: {text[:40]!r}"
        )
    head, *rest = text.split(":")
    known = BY_NAME.get(head)
    if known is not None:
        tail = _read_tail(text, rest, known.period_least, known.default_period, proc)
        return _named(known, head, tail, idle)
    if rest and WORD.fullmatch(head) and WORD.fullmatch(rest[0]):
        if tracefs is None:
            tracefs = find_tracefs(sysfs=sysfs, proc=proc)
        number = tracepoint_id(head, rest[0], tracefs)
        if number is not None:
            tail = _read_tail(text, rest[1:], 1, 1, proc)
            return EventRequest(
                name=f"{head}:{rest[0]}" + (f":{tail.mods}" if tail.mods else ""),
                type=PERF_TYPE_TRACEPOINT,
                config=number,
                unit="count",
                hz=tail.hz,
                period=tail.period,
                exclude_user=tail.exclude_user,
                exclude_kernel=tail.exclude_kernel,
                exclude_hv=tail.exclude_hv,
                exclude_idle=tail.exclude_idle,
            )
        if not (_MODS.fullmatch(rest[0]) or _COUNT.fullmatch(rest[0])):
            _refuse_pair(head, rest[0], tracefs)
    return _refuse_name(text, head)


def parse_events(
    specs: Sequence[str],
    *,
    source: str = "",
    sysfs: str = "/sys",
    proc: str = "/proc",
    tracefs: str | None = None,
    idle: Idle = "exclude",
) -> tuple[EventRequest, ...]:
    """All of ``specs``; ``source`` (a file or flag) is named in errors.

    Raises one EventError that lists every mistake, also two events that
    reports could not tell apart.
    """
    requests: dict[str, EventRequest] = {}
    problems: list[Problem] = []
    for spec in specs:
        try:
            request = parse_event(spec, sysfs=sysfs, proc=proc, tracefs=tracefs, idle=idle)
        except EventError as error:
            problems.append(Problem(source, "", error.message, error.hint, is_event=True))
            continue
        if request.name in requests:
            message = f"event {request.name!r} is asked for twice"
            problems.append(Problem(source, "", message, is_event=True))
        requests[request.name] = request
    raise_problems(problems)
    return tuple(requests.values())


def _named(known: Known, head: str, tail: _Tail, idle: Idle) -> EventRequest:
    clock = known.unit == "ns"
    hardware = known.kind == "hardware"
    request = EventRequest(
        name=head + (f":{tail.mods}" if tail.mods else ""),
        type=known.type,
        config=known.config,
        unit=known.unit,
        hz=tail.hz,
        period=tail.period,
        exclude_user=tail.exclude_user,
        exclude_kernel=tail.exclude_kernel,
        exclude_hv=tail.exclude_hv,
        # Core PMUs ignore it or refuse it; only the timers heed it.
        exclude_idle=tail.exclude_idle or (clock and idle == "exclude"),
        # The kernel takes a precision for software events too, without effect.
        precise_ip=tail.precise_ip if hardware else 0,
    )
    return replace(request, fallbacks=_ladder(head, request, tail, idle)) if hardware else request


def _ladder(head: str, request: EventRequest, tail: _Tail, idle: Idle) -> tuple[EventRequest, ...]:
    """Less and less precise, then the timer, which every machine has."""
    rest = "".join(letter for letter in tail.mods if letter not in "pP")
    rungs = []
    for precise in range(request.precise_ip - 1, -1, -1):
        mods = rest + "p" * precise
        name = head + (f":{mods}" if mods else "")
        rungs.append(replace(request, name=name, precise_ip=precise))
    # A count of cycles or misses says nothing in nanoseconds: the default rate then.
    timer = _Tail(
        mods=tail.levels,
        hz=tail.hz or DEFAULT_HZ,
        exclude_user=tail.exclude_user,
        exclude_kernel=tail.exclude_kernel,
        exclude_hv=tail.exclude_hv,
        exclude_idle=tail.exclude_idle,
    )
    rungs.append(_named(CATALOGUE["cpu-clock"], "cpu-clock", timer, idle))
    return tuple(rungs)


def _read_tail(
    text: str, rest: list[str], least: int, default_period: int | None, proc: str
) -> _Tail:
    tail = _Tail()
    tokens = list(rest)
    if tokens and _MODS.fullmatch(tokens[0]):
        tail = _read_mods(text, tokens.pop(0))
    tail = _read_count(text, tokens.pop(0), least, proc, tail) if tokens else tail
    if tail.hz is None and tail.period is None:
        hz = None if default_period else min(DEFAULT_HZ, _rate_most(proc))
        tail = tail._replace(hz=hz, period=default_period)
    if tokens:
        mask = tokens.pop(0)
        if not _MASK.fullmatch(mask):
            raise EventError(f"event {text!r}: expected a unit mask, got {mask!r}")
        if mask.lower().strip("0x"):
            raise EventError(
                f"event {text!r}: unit mask {mask!r}: this event has none, only 0 is right"
            )
    if len(tokens) > 2:
        raise EventError(
            f"event {text!r}: {tokens[2]!r} is too much",
            hint="NAME[:mods][:COUNT[:UNITMASK[:KERNEL[:USER]]]]",
        )
    return _read_oprofile_levels(text, tokens, tail) if tokens else tail


def _read_mods(text: str, mods: str) -> _Tail:
    precise = _PRECISE_MOST if "P" in mods else mods.count("p")
    if precise > _PRECISE_MOST or ("P" in mods and "p" in mods):
        raise EventError(f"event {text!r}: modifier {mods!r}: expected p, pp, ppp or P")
    doubled = sorted({letter for letter in mods if letter != "p" and mods.count(letter) > 1})
    if doubled:
        raise EventError(f"event {text!r}: modifier {mods!r}: {doubled[0]} stands there twice")
    levels = any(letter in mods for letter in "ukh")
    return _Tail(
        mods=mods,
        precise_ip=precise,
        exclude_user=levels and "u" not in mods,
        exclude_kernel=levels and "k" not in mods,
        exclude_hv=levels and "h" not in mods,
        exclude_idle="I" in mods,
    )


def _read_count(text: str, token: str, least: int, proc: str, tail: _Tail) -> _Tail:
    match = _COUNT.fullmatch(token)
    if match is None:
        if token and all(letter.isascii() and letter.isalpha() for letter in token):
            raise EventError(
                f"event {text!r}: unknown modifier {token!r}", hint="modifiers are u k h p P I"
            )
        raise EventError(f"event {text!r}: expected a count such as 100000 or 999hz, got {token!r}")
    # Not converted when it is too long: that is wrong anyway, and Python refuses thousands.
    number = int(match[1]) if len(match[1]) <= _DIGITS_MOST else PERIOD_MOST + 1
    if match[2]:
        most = _rate_most(proc)
        if not 1 <= number <= most:
            raise EventError(
                f"event {text!r}: rate {token!r}: expected 1hz to {most}hz",
                hint=f"the kernel's limit is the sysctl kernel.perf_event_max_sample_rate ({most})",
            )
        return tail._replace(hz=number)
    if not least <= number <= PERIOD_MOST:
        raise EventError(f"event {text!r}: count {token[:40]!r}: expected {least} to {PERIOD_MOST}")
    return tail._replace(period=number)


def _read_oprofile_levels(text: str, tokens: list[str], tail: _Tail) -> _Tail:
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


def _rate_most(proc: str) -> int:
    try:
        text = Path(proc, "sys/kernel/perf_event_max_sample_rate").read_text().strip()
        return max(1, int(text)) if len(text) <= _DIGITS_MOST else _RATE_FALLBACK
    except (OSError, ValueError):
        return _RATE_FALLBACK


def _refuse_pair(system: str, name: str, tracefs: str | None) -> NoReturn:
    """``word:word`` that is no tracepoint here."""
    if tracefs is not None:
        raise unknown_tracepoint(system, name, tracefs)
    near = did_you_mean(system, BY_NAME)
    if near:
        raise EventError(f"unknown event {system!r}{near}", hint=_valid())
    raise EventError(
        f"event {system + ':' + name!r}: tracepoints cannot be read, tracefs is not mounted",
        hint=MOUNT_HINT,
    )


def _refuse_name(text: str, head: str) -> NoReturn:
    if "," in text and "/" not in text:
        raise EventError(f"unknown event {text!r}", hint="give one event each: --event A --event B")
    near = did_you_mean(head, BY_NAME)
    raise EventError(f"unknown event {head!r}{near}", hint=_valid())


def _valid() -> str:
    names = ", ".join(CATALOGUE)
    return f"valid: {names}, tracepoints as sys:name; opd --list-events shows those here"

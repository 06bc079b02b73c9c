"""Reads ``pmu/term=value,…/[mods][:COUNT]``.

A term is a field of the PMU's format in sysfs, a whole word (``config``,
``config1``, ``config2``), a named event of the PMU, ``period=N``, ``freq=N``
or ``name=WORD``. A term without a value is 1.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from opd.config.nearest import did_you_mean
from opd.errors import EventError
from opd.events.catalogue import PERF_TYPE_NONE, PERF_TYPE_SOFTWARE
from opd.events.pmu import Field, Pmu, pmu_names, read_pmu
from opd.events.request import EventRequest
from opd.events.tail import check_period, check_rate, read_tail, with_tail, without_mask

if TYPE_CHECKING:
    from opd.events.tail import Tail

FORM = "pmu/term=value,.../[mods][:COUNT]"
_EVENT = re.compile(r"([A-Za-z0-9_][\w.-]{0,63})/([^/]*)/(.*)", re.ASCII | re.DOTALL)
_WORDS = ("config", "config1", "config2")
_VALUE = re.compile("0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}")
_NAME = re.compile(r"[A-Za-z_][\w:.-]{0,127}", re.ASCII)
_OTHERS = ("period", "freq", "name")
_DEPTH_MOST = 4


class _Terms:
    """What the terms of an event add up to."""

    def __init__(self, text: str, pmu: Pmu, proc: str) -> None:
        self.words = dict.fromkeys(_WORDS, 0)
        self.period: int | None = None
        self.hz: int | None = None
        self.name = ""
        self.open: set[str] = set()
        self._text, self._pmu, self._proc = text, pmu, proc
        self._said: dict[str, int] = {}

    def add(self, term: str, depth: int = 0) -> None:
        """One ``term`` or ``term=value``. Raises EventError."""
        key, equals, typed = term.partition("=")
        if key == "name" and equals:
            if not _NAME.fullmatch(typed):
                raise EventError(f"event {self._text!r}: name: expected a word, got {typed[:40]!r}")
            self.name = typed
        elif key in self._pmu.events and not equals and key not in self._pmu.fields:
            self._add_event(key, depth)
        elif key in {"period", "freq"}:
            self._add_rate(key, self._value(key, typed if equals else "1"))
        else:
            self._add_field(key, self._value(key, typed if equals else "1"))

    def _add_event(self, key: str, depth: int) -> None:
        if depth >= _DEPTH_MOST:
            raise EventError(f"event {self._text!r}: PMU event {key!r} leads to itself")
        for inner in self._pmu.events[key].split(","):
            inner_key, _, value = inner.partition("=")
            if value != "?":
                self.add(inner, depth + 1)
            elif inner_key not in self._said:
                self.open.add(inner_key)

    def _add_field(self, key: str, value: int) -> None:
        field = self._pmu.fields.get(key)
        if field is None and key in _WORDS:
            field = Field(key, ((0, 63),))
        if field is None:
            self._refuse(key)
        about = f"event {self._text!r}: term {key!r}"
        if field.word not in self.words:
            raise EventError(f"{about} is in {field.word}, which opd cannot set")
        try:
            bits = field.put(value)
        except ValueError as error:
            raise EventError(f"{about}: {error} ({field})") from error
        if self._said.setdefault(key, value) != value:
            raise EventError(f"{about} is there twice")
        self.open.discard(key)
        self.words[field.word] |= bits

    def _value(self, key: str, typed: str) -> int:
        about = f"event {self._text!r}: term {key[:40]!r}"
        if not _VALUE.fullmatch(typed):
            raise EventError(f"{about}: expected a number such as 1 or 0x3c, got {typed[:40]!r}")
        value = int(typed, 16 if typed[:2].lower() == "0x" else 10)
        if value >> 64:
            raise EventError(f"{about}: {typed} has more than 64 bits")
        return value

    def _add_rate(self, key: str, value: int) -> None:
        if self.period is not None or self.hz is not None:
            raise EventError(f"event {self._text!r}: term {key!r}: how often is said twice")
        if key == "period":
            self.period = check_period(self._text, f"{value}", value, 1)
        else:
            self.hz = check_rate(self._text, f"{value}hz", value, self._proc)

    def _refuse(self, key: str) -> NoReturn:
        pmu = self._pmu
        near = did_you_mean(key, [*pmu.fields, *pmu.events, *_WORDS, *_OTHERS])
        shown = ", ".join(f"{term} ({field})" for term, field in pmu.fields.items())
        events = f"; events: {', '.join(pmu.events)}" if pmu.events else ""
        raise EventError(
            f"event {self._text!r}: unknown term {key[:40]!r} of PMU {pmu.name!r}{near}",
            hint=f"terms: {shown or 'none of its own'}; {', '.join((*_WORDS, *_OTHERS))}{events}",
        )


class PmuEvent(NamedTuple):
    """What to open, whether the PMU is a core's, and what was said behind it."""

    request: EventRequest
    core: bool
    tail: Tail


def pmu_event(text: str, *, sysfs: str, proc: str) -> PmuEvent:
    """An event of a PMU. Raises EventError naming the term, and the valid ones."""
    match = _EVENT.fullmatch(text)
    if match is None:
        raise EventError(f"event {text!r}: expected {FORM}: two slashes", hint=FORM)
    name, inside, behind = match[1], match[2], match[3]
    pmu = read_pmu(name, sysfs=sysfs)
    if pmu is None:
        there = pmu_names(sysfs=sysfs)
        raise EventError(
            f"event {text!r}: there is no PMU {name!r}{did_you_mean(name, there)}",
            hint=f"PMUs here: {', '.join(there) or 'none'}",
        )
    terms = _Terms(text, pmu, proc)
    for term in inside.split(",") if inside else []:
        terms.add(term)
    if terms.open:
        missing = ", ".join(sorted(terms.open))
        raise EventError(f"event {text!r}: {missing}: expected a value, as {missing}=N")
    if behind and behind[0] == ":":
        behind = behind[1:]
    default = terms.period
    tail = read_tail(
        text, behind.split(":") if behind else [], least=1, default_period=default, proc=proc
    )
    tail = without_mask(text, tail)
    if terms.hz is not None and tail.period is None:
        tail = tail._replace(hz=terms.hz)
    shown = terms.name or f"{name}/{inside}/"
    request = with_tail(
        EventRequest(
            name=shown + (f"{'' if shown.endswith('/') else ':'}{tail.mods}" if tail.mods else ""),
            type=PERF_TYPE_NONE if pmu.type is None else pmu.type,
            config=terms.words["config"],
            config1=terms.words["config1"],
            config2=terms.words["config2"],
            unit="ns" if pmu.type == PERF_TYPE_SOFTWARE and terms.words["config"] < 2 else "count",
            precise_ip=tail.precise_ip,
        ),
        tail,
    )
    return PmuEvent(request, core=_is_core(pmu), tail=tail)


def _is_core(pmu: Pmu) -> bool:
    """Whether it counts what cores do: where the kernel has none such, a timer is next best."""
    names = ("cpu_", "ibs_", "armv")
    return pmu.type is None or pmu.name == "cpu" or pmu.name.startswith(names)

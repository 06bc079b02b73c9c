r"""Reads event specifications, in this order.

``uprobe:/path:symbol`` and ``uretprobe:…``; ``pmu/term=value,…/[mods]``; a
tracepoint ``sys:name`` where it exists; then
``NAME[:mods][:COUNT[:UNITMASK[:KERNEL[:USER]]]]`` with perf's names and those
of the CPU's events files. ``mods`` are perf's letters: ``u k h`` the levels
that count, ``p`` (up to three) or ``P`` how precise, ``I`` leave idle CPUs out.
COUNT is a period, or a rate as ``999hz``. UNITMASK is a number or an entry's
name. KERNEL and USER are 0 or 1 (oprofile's).

Without COUNT: clocks and counters sample at 99 Hz; counted software events
(page-faults, context-switches, …), tracepoints and probes every occurrence;
events of a feature as often as it is set to.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NoReturn

from msgspec.structs import replace

from opd.config.nearest import did_you_mean
from opd.config.problems import Problem, raise_problems
from opd.errors import EventError, PermissionDeniedError
from opd.events.catalogue import (
    BY_NAME,
    CATALOGUE,
    DEFAULT_HZ,
    PERF_TYPE_TRACEPOINT,
    Known,
)
from opd.events.cpucatalogue import Catalogue
from opd.events.request import EventRequest
from opd.events.tail import COUNT, MODS, Tail, read_tail, with_tail, without_mask
from opd.events.tracepoints import (
    MOUNT_HINT,
    WORD,
    find_tracefs,
    tracepoint_id,
    unknown_tracepoint,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.events.cpuevents import CpuEvent

Idle = Literal["exclude", "irq"]

_SPEC_MOST = 256
# A path and a mangled name.
_PROBE_MOST = 4096 + 4096
_PROBES = ("uprobe:", "uretprobe:")
_PMU = re.compile(r"[A-Za-z0-9_][\w.-]{0,63}/", re.ASCII)


class _Reader:
    """Where events are looked for."""

    def __init__(
        self, *, sysfs: str, proc: str, tracefs: str | None, idle: Idle, catalogue: Catalogue | None
    ) -> None:
        self.sysfs, self.proc, self.idle = sysfs, proc, idle
        self.catalogue = catalogue or Catalogue(proc=proc)
        self._tracefs = tracefs

    def read(self, text: str) -> EventRequest:
        """One SPEC."""
        is_probe = text.startswith(_PROBES)
        most = _PROBE_MOST if is_probe else _SPEC_MOST
        if not text or len(text) > most:
            raise EventError(
                f"expected an event of 1 to {most} characters, got {len(text)}: {text[:40]!r}"
            )
        if is_probe:
            from opd.events.probes import probe_event

            return probe_event(text, sysfs=self.sysfs, proc=self.proc)
        if _PMU.match(text):
            return self._of_pmu(text)
        head, *rest = text.split(":")
        known = BY_NAME.get(head)
        if known is not None:
            return self._of_perf(text, head, known, rest)
        request = self._tracepoint(text, head, rest)
        if request is not None:
            return request
        variants = self.catalogue.events.by_name.get(head)
        if variants is not None:
            return self._of_files(text, variants, rest)
        return self._refuse(text, head, rest)

    def _of_pmu(self, text: str) -> EventRequest:
        from opd.events.pmuevents import pmu_event

        found = pmu_event(text, sysfs=self.sysfs, proc=self.proc)
        return self._with_ladder(found.request, found.tail) if found.core else found.request

    def _of_perf(self, text: str, head: str, known: Known, rest: list[str]) -> EventRequest:
        tail = read_tail(
            text,
            rest,
            least=known.period_least,
            default_period=known.default_period,
            proc=self.proc,
        )
        return _named(known, head, without_mask(text, tail), self.idle)

    def _of_files(self, text: str, variants: list[CpuEvent], rest: list[str]) -> EventRequest:
        from opd.events.named import named_request

        request, tail = named_request(text, variants, rest, self.catalogue, self.proc)
        if request.feature:
            return request
        if request.unit == "ns":
            idle = tail.exclude_idle or self.idle == "exclude"
            return replace(request, exclude_idle=idle, precise_ip=0)
        return self._with_ladder(request, tail)

    def _with_ladder(self, request: EventRequest, tail: Tail) -> EventRequest:
        """Less and less precise, then the timer, which every machine has."""
        rungs = [
            replace(request, name=_less_precise(request.name, tail, precise), precise_ip=precise)
            for precise in range(request.precise_ip - 1, -1, -1)
        ]
        rungs.append(_timer(tail, self.idle))
        return replace(request, fallbacks=tuple(rungs))

    def _tracepoint(self, text: str, head: str, rest: list[str]) -> EventRequest | None:
        if not rest or not WORD.fullmatch(head) or not WORD.fullmatch(rest[0]):
            return None
        try:
            if self._tracefs is None:
                self._tracefs = find_tracefs(sysfs=self.sysfs, proc=self.proc)
            number = tracepoint_id(head, rest[0], self._tracefs)
        except PermissionDeniedError:
            if head in self.catalogue.events.by_name:
                return None
            raise
        if number is None:
            return None
        tail = read_tail(text, rest[1:], least=1, default_period=1, proc=self.proc)
        tail = without_mask(text, tail)
        return with_tail(
            EventRequest(
                name=f"{head}:{rest[0]}" + (f":{tail.mods}" if tail.mods else ""),
                type=PERF_TYPE_TRACEPOINT,
                config=number,
                unit="count",
            ),
            tail,
        )

    def _refuse(self, text: str, head: str, rest: list[str]) -> NoReturn:
        if rest and WORD.fullmatch(head) and WORD.fullmatch(rest[0]):
            like_tail = MODS.fullmatch(rest[0]) or COUNT.fullmatch(rest[0])
            if not like_tail:
                self._refuse_pair(head, rest[0])
        if "," in text:
            raise EventError(
                f"unknown event {text!r}", hint="give one event each: --event A --event B"
            )
        from opd.events.named import refuse_unknown

        refuse_unknown(head, self.catalogue, _valid(self.catalogue))

    def _refuse_pair(self, system: str, name: str) -> None:
        """``word:word`` that is no tracepoint here; returns when it is no better known."""
        if self._tracefs is not None:
            raise unknown_tracepoint(system, name, self._tracefs)
        near = did_you_mean(system, (*BY_NAME, *self.catalogue.events.by_name))
        if near:
            raise EventError(f"unknown event {system!r}{near}", hint=_valid(self.catalogue))
        raise EventError(
            f"event {system + ':' + name!r}: tracepoints cannot be read, tracefs is not mounted",
            hint=MOUNT_HINT,
        )


def parse_event(
    text: str,
    *,
    sysfs: str = "/sys",
    proc: str = "/proc",
    tracefs: str | None = None,
    idle: Idle = "exclude",
    catalogue: Catalogue | None = None,
) -> EventRequest:
    """One SPEC as what to open; opens nothing itself.

    ``tracefs`` None: looked up. ``idle`` "irq" keeps idle CPUs in clock events
    that do not say ``I``. ``catalogue`` None: the events files of this machine.
    Raises EventError naming the token that is wrong and the valid ones near it;
    ConfigError for broken events files; PermissionDeniedError when the
    tracepoint's number is not readable for this user.
    """
    return _Reader(sysfs=sysfs, proc=proc, tracefs=tracefs, idle=idle, catalogue=catalogue).read(
        text
    )


def parse_events(
    specs: Sequence[str],
    *,
    source: str = "",
    sysfs: str = "/sys",
    proc: str = "/proc",
    tracefs: str | None = None,
    idle: Idle = "exclude",
    catalogue: Catalogue | None = None,
) -> tuple[EventRequest, ...]:
    """All of ``specs``; ``source`` (a file or flag) is named in errors.

    Raises one EventError that lists every mistake, also two events that
    reports could not tell apart, and more than the CPU has counters for.
    """
    reader = _Reader(sysfs=sysfs, proc=proc, tracefs=tracefs, idle=idle, catalogue=catalogue)
    requests: dict[tuple[str, str], EventRequest] = {}
    problems: list[Problem] = []
    for spec in specs:
        try:
            request = reader.read(spec)
        except EventError as error:
            problems.append(Problem(source, "", error.message, error.hint, is_event=True))
            continue
        # One event of the files may be counted at several counts.
        key = (request.name, f"{request.hz} {request.period}" if request.cpu_event else "")
        if key in requests:
            message = f"event {request.name!r} is asked for twice"
            problems.append(Problem(source, "", message, is_event=True))
        requests[key] = request
    found = tuple(requests.values())
    if not problems and any(request.cpu_event for request in found):
        from opd.events.named import check_together

        try:
            found = check_together(found, reader.catalogue)
        except EventError as error:
            problems.append(Problem(source, "", error.message, error.hint, is_event=True))
    raise_problems(problems)
    return found


def _named(known: Known, head: str, tail: Tail, idle: Idle) -> EventRequest:
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


def _ladder(head: str, request: EventRequest, tail: Tail, idle: Idle) -> tuple[EventRequest, ...]:
    """Less and less precise, then the timer, which every machine has."""
    rest = "".join(letter for letter in tail.mods if letter not in "pP")
    rungs = []
    for precise in range(request.precise_ip - 1, -1, -1):
        mods = rest + "p" * precise
        name = head + (f":{mods}" if mods else "")
        rungs.append(replace(request, name=name, precise_ip=precise))
    return (*rungs, _timer(tail, idle))


def _less_precise(name: str, tail: Tail, precise: int) -> str:
    """``NAME:upp`` as ``NAME:up``, ``pmu/a=1/p`` as ``pmu/a=1/``."""
    mods = "".join(letter for letter in tail.mods if letter not in "pP") + "p" * precise
    before, sign, behind = name.rpartition(f":{tail.mods}")
    if sign:
        return before + (f":{mods}" if mods else "") + behind
    return name.removesuffix(tail.mods) + mods


def _timer(tail: Tail, idle: Idle) -> EventRequest:
    # A count of cycles or misses says nothing in nanoseconds: the default rate then.
    timer = Tail(
        mods=tail.levels,
        hz=tail.hz or DEFAULT_HZ,
        exclude_user=tail.exclude_user,
        exclude_kernel=tail.exclude_kernel,
        exclude_hv=tail.exclude_hv,
        exclude_idle=tail.exclude_idle,
    )
    return _named(CATALOGUE["cpu-clock"], "cpu-clock", timer, idle)


def _valid(catalogue: Catalogue) -> str:
    names = ", ".join(CATALOGUE)
    return (
        f"valid: {names}, those of {catalogue.cpu_type}, tracepoints as sys:name,"
        " uprobe:/path:symbol, pmu/term=value/; opd --list-events shows those here"
    )

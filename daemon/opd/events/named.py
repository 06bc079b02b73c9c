"""Events of the CPU's events files, as what to open."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from opd.config.nearest import did_you_mean
from opd.errors import EventError
from opd.events import cputype
from opd.events.allocation import map_events_to_counters
from opd.events.catalogue import (
    BY_NAME,
    PERF_TYPE_HARDWARE,
    PERF_TYPE_NONE,
    PERF_TYPE_RAW,
    PERF_TYPE_SOFTWARE,
    PERIOD_MOST,
)
from opd.events.request import EventRequest
from opd.events.tail import COUNT, Tail, read_tail, with_tail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.events.cpucatalogue import Catalogue
    from opd.events.cpuevents import CpuEvent

# How far the counters of IBS go: MaxCnt has 20 bits, that of ops 27 since family 12h.
_EXTENDED_MOST = {"ibs_fetch": (1 << 20) - 1, "ibs_op": (1 << 27) - 1}
_OP_MOST_FAMILY10 = (1 << 20) - 1
# What the kernel calls the events that every x86-64 has.
_GENERALIZED = {0x76: 0, 0xC0: 1, 0xC2: 4, 0xC3: 5}


def maximum(cpu_type: str, event: CpuEvent) -> int:
    """The greatest count of an event."""
    if event.ext == "ibs_op" and cpu_type == "x86-64/family10":
        return _OP_MOST_FAMILY10
    return _EXTENDED_MOST.get(event.ext, PERIOD_MOST)


def named_request(
    text: str, variants: Sequence[CpuEvent], rest: list[str], catalogue: Catalogue, proc: str
) -> tuple[EventRequest, Tail]:
    """An event of the files and what was said behind its name; fallbacks are the caller's.

    ``variants``: the events of that name, which differ by their masks. Raises
    EventError for a count or a mask that the event does not take.
    """
    event, mask, extra = variants[0], 0, 0
    tail = read_tail(
        text,
        rest,
        least=max(1, min(each.minimum for each in variants)),
        most=maximum(catalogue.cpu_type, event),
        default_period=None,
        proc=proc,
    )
    counted = any(COUNT.fullmatch(token) for token in rest[:2])
    if event.ext and not counted:
        tail = tail._replace(hz=None)  # how often is the feature's to say
    reasons = []
    for event in variants:
        try:
            mask, extra = event.mask.choose(tail.mask)
            break
        except ValueError as error:
            reasons.append(str(error))
    else:
        raise EventError(f"event {text!r}: {reasons[0]}")
    _check_count(text, event, tail, catalogue)
    words = [event.name, tail.mods]
    # Masks are told apart in reports; the usual one needs no word.
    if (mask, extra) != variants[0].mask.choose(""):
        words.append(_mask_word(event, mask, extra))
    kind, config = _how(event, mask, extra, catalogue)
    request = with_tail(
        EventRequest(
            name=":".join(word for word in words if word),
            type=kind,
            config=config,
            unit="ns" if kind == PERF_TYPE_SOFTWARE else "count",
            precise_ip=tail.precise_ip,
            cpu_event=event.name,
            counters=event.counters,
            feature=event.ext,
            number=event.number,
            unit_mask=mask,
        ),
        tail,
    )
    return request, tail


def _check_count(text: str, event: CpuEvent, tail: Tail, catalogue: Catalogue) -> None:
    if event.ext and tail.hz is not None:
        raise EventError(
            f"event {text!r}: rate '{tail.hz}hz': {event.ext} takes a count, of"
            f" {event.minimum} to {maximum(catalogue.cpu_type, event)}"
        )
    if tail.period is not None and tail.period < event.minimum:
        most = maximum(catalogue.cpu_type, event)
        raise EventError(
            f"event {text!r}: count '{tail.period}' is below the minimum:"
            f" expected {event.minimum} to {most}"
        )


def _mask_word(event: CpuEvent, mask: int, extra: int) -> str:
    for entry in event.mask.entries:
        if (entry.value, entry.extra) == (mask, extra) and entry.name:
            return entry.name
    return f"{mask:#04x}"


def _how(event: CpuEvent, mask: int, extra: int, catalogue: Catalogue) -> tuple[int, int]:
    """``type`` and ``config`` of perf_event_attr."""
    if event.ext:
        return PERF_TYPE_NONE, event.number
    if catalogue.cpu_type == cputype.TIMER:
        return PERF_TYPE_SOFTWARE, 0
    if not event.counters:
        return PERF_TYPE_NONE, event.number
    if catalogue.cpu_type == cputype.GENERIC:
        number = _GENERALIZED.get(event.number)
        if number is not None:
            return PERF_TYPE_HARDWARE, number
        # The others have AMD's numbers, but for those of a file of one's own.
        if event.place.startswith(f"{cputype.shipped()}/") and not catalogue.amd:
            return PERF_TYPE_NONE, event.number
    low, high = event.number & 0xFF, event.number >> 8 & 0xF
    config = low | (mask & 0xFF) << 8 | high << 32 | extra
    # Another CPU counts something else by that number: there it is not asked for.
    return (PERF_TYPE_NONE if catalogue.foreign else PERF_TYPE_RAW), config


def check_counters(requests: Sequence[EventRequest], catalogue: Catalogue) -> list[int]:
    """The counter of each event, -1 where it needs none.

    Raises EventError when there are too few, naming the first that finds none.
    """
    wanted = [request.counters for request in requests]
    counters = map_events_to_counters(wanted)
    if counters is not None:
        return counters
    last = next(i for i in range(1, len(wanted) + 1) if map_events_to_counters(wanted[:i]) is None)
    need = [request.name for request in requests[:last] if request.counters]
    have = catalogue.events.counters
    event = requests[last - 1]
    if len(need) > have:
        reason = f"{catalogue.cpu_type} has {have} counters"
    else:
        reason = f"it is counted only by {_join(event.counters)}, which others need"
    raise EventError(
        f"too many events for the counters: none is left for {event.name!r}: {reason}",
        hint=f"these need one each: {', '.join(need)}; ask for fewer, events of ext:WORD need none",
    )


def _join(counters: Sequence[int]) -> str:
    word = "counter" if len(counters) == 1 else "counters"
    return f"{word} {', '.join(map(str, counters))}"


def check_together(
    requests: Sequence[EventRequest], catalogue: Catalogue
) -> tuple[EventRequest, ...]:
    """Events that can be sampled together, under names that reports tell apart.

    Raises EventError where they are too many for the counters, or TIMER is beside others.
    """
    apart = counted_apart(requests)
    check_timer(apart)
    check_counters(apart, catalogue)
    return apart


def check_timer(requests: Sequence[EventRequest]) -> None:
    """Raise EventError where TIMER is asked for beside another event."""
    timers = [each for each in requests if each.cpu_event and each.type == PERF_TYPE_SOFTWARE]
    if timers and len(requests) > 1:
        raise EventError(
            f"{timers[0].name!r} stands alone: it cannot be mixed with other events",
            hint="take cpu-clock, which can",
        )


def refuse_unknown(name: str, catalogue: Catalogue, hint: str) -> NoReturn:
    """Raise EventError for a name that is no event: the nearest ones, or where it is one."""
    names = list(catalogue.events.by_name)
    folded = {each.casefold(): each for each in (*names, *BY_NAME)}
    same = folded.get(name.casefold())
    near = f"; did you mean {same}?" if same else did_you_mean(name, (*BY_NAME, *names))
    where = "" if same else ", ".join(catalogue.others_with(name))
    if where:
        raise EventError(
            f"unknown event {name!r}: {catalogue.cpu_type} has no such event; it is one of {where}",
            hint=hint,
        )
    raise EventError(f"unknown event {name!r}{near}", hint=hint)


def counted_apart(requests: Sequence[EventRequest]) -> tuple[EventRequest, ...]:
    """Give events of one name that differ by their count names with it."""
    names = [request.name for request in requests]
    return tuple(
        replace(request, name=f"{request.name}:{_count_word(request)}")
        if request.cpu_event and names.count(request.name) > 1
        else request
        for request in requests
    )


def _count_word(request: EventRequest) -> str:
    return f"{request.hz}hz" if request.hz is not None else f"{request.period}"

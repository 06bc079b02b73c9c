"""``opd --check-events``: which counter each event gets, before anything is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from opd.config.problems import Problem, raise_problems
from opd.errors import EventError
from opd.events import cputype, named
from opd.events.allocation import NO_COUNTER
from opd.events.catalogue import PERF_TYPE_SOFTWARE
from opd.events.grammar import parse_events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.events.cpucatalogue import Catalogue
    from opd.events.request import EventRequest

TIMER_TOKEN = "timer"  # noqa: S105 - a word of the answer
NOTHING = "N/A"
_CLOCKS = (0, 1)  # PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK


class CheckedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event as it would be counted.

    ``token`` is its counter, its ext word, ``timer``, or ``N/A``; ``counter``
    is -1 where it takes none.
    """

    spec: str
    name: str
    token: str
    counter: int
    ext: str = ""
    period: int | None = None
    hz: int | None = None
    unit_mask: int = 0


def check_events(
    specs: Sequence[str],
    *,
    catalogue: Catalogue,
    source: str = "",
    sysfs: str = "/sys",
    proc: str = "/proc",
    tracefs: str | None = None,
) -> list[CheckedEvent]:
    """Give each SPEC its counter, in order. Raises what ``parse_events`` raises.

    perf's hardware events count on any counter.
    """
    requests = parse_events(
        specs, source=source, sysfs=sysfs, proc=proc, tracefs=tracefs, catalogue=catalogue
    )
    everyone = [_on_any_counter(request, catalogue) for request in requests]
    try:
        counters = named.check_counters(everyone, catalogue)
    except EventError as error:
        raise_problems([Problem(source, "", error.message, error.hint, is_event=True)])
        raise
    return [
        CheckedEvent(
            spec=spec,
            name=request.name,
            token=_token(request, counter, catalogue),
            counter=counter,
            ext=request.feature,
            period=request.period,
            hz=request.hz,
            unit_mask=request.unit_mask,
        )
        for spec, request, counter in zip(specs, everyone, counters, strict=True)
    ]


def _on_any_counter(request: EventRequest, catalogue: Catalogue) -> EventRequest:
    if request.cpu_event or not request.fallbacks:
        return request
    return msgspec.structs.replace(request, counters=tuple(range(catalogue.events.counters)))


def _token(request: EventRequest, counter: int, catalogue: Catalogue) -> str:
    if request.feature:
        return request.feature
    if counter != NO_COUNTER:
        return f"{counter}"
    # A counter's event on a CPU without counters is sampled by the timer.
    fallen = bool(request.fallbacks) and not request.cpu_event
    clock = request.type == PERF_TYPE_SOFTWARE and request.config in _CLOCKS
    timer = request.cpu_event and catalogue.cpu_type == cputype.TIMER
    return TIMER_TOKEN if fallen or clock or timer else NOTHING

"""What is asked of perf_event_open for one event."""

from __future__ import annotations

from typing import Literal

import msgspec


class EventRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One event to open, and what to try next where this machine has none such.

    ``name`` is NAME with its modifiers, without the count: what reports call
    it. ``type``, ``config`` to ``config2`` and the flags go into
    ``perf_event_attr`` as they are; with ``path`` config1 is the address of
    that text instead (uprobes). Exactly one of ``hz`` (samples a second) and
    ``period`` (nanoseconds for clocks, else occurrences) is set.
    ``exclude_idle`` already honours the setting ``sampling.idle``.
    ``fallbacks`` are tried in order when the kernel has no such event; each is
    a whole request, without fallbacks of its own. ``raw``: samples carry the
    PMU's own record (1), and data address, physical address, source and weight
    (2).

    Of the events files: ``cpu_event`` is the event's name there, ``counters``
    those that can count it, ``unit_mask`` what was chosen. With ``feature`` the
    event is that feature's and not opened by itself: ``number`` is its code,
    ``period`` (None: the feature's own default) and ``unit_mask`` are what the
    feature is to be set to.
    """

    name: str
    type: int
    config: int
    config1: int = 0
    config2: int = 0
    path: str = ""
    unit: Literal["ns", "count"]
    hz: int | None = None
    period: int | None = None
    exclude_user: bool = False
    exclude_kernel: bool = False
    exclude_hv: bool = False
    exclude_idle: bool = False
    precise_ip: int = 0
    raw: int = 0
    fallbacks: tuple[EventRequest, ...] = ()
    cpu_event: str = ""
    counters: tuple[int, ...] = ()
    feature: str = ""
    number: int = 0
    unit_mask: int = 0

"""What is asked of perf_event_open for one event."""

from __future__ import annotations

from typing import Literal

import msgspec


class EventRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One event to open, and what to try next where this machine has none such.

    ``name`` is NAME with its modifiers, without the count: what reports call
    it. ``type``, ``config``, ``config1`` and the flags go into
    ``perf_event_attr`` as they are. Exactly one of ``hz`` (samples a second)
    and ``period`` (nanoseconds for clocks, else occurrences) is set.
    ``exclude_idle`` already honours the setting ``sampling.idle``.
    ``fallbacks`` are tried in order when the kernel has no such event; each is
    a whole request, without fallbacks of its own.
    """

    name: str
    type: int
    config: int
    config1: int = 0
    unit: Literal["ns", "count"]
    hz: int | None = None
    period: int | None = None
    exclude_user: bool = False
    exclude_kernel: bool = False
    exclude_hv: bool = False
    exclude_idle: bool = False
    precise_ip: int = 0
    fallbacks: tuple[EventRequest, ...] = ()

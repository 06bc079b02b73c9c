"""The events that the settings ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.events.cpucatalogue import Catalogue
from opd.events.grammar import parse_events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.config import SamplingSettings
    from opd.events.request import EventRequest


def catalogue_of(sampling: SamplingSettings) -> Catalogue:
    """The events files that the settings choose; nothing is read yet."""
    return Catalogue(cpu_type=sampling.cpu_type, events_dir=sampling.events_dir)


def requests_of(sampling: SamplingSettings, *, source: str = "") -> tuple[EventRequest, ...]:
    """All events that are asked for, also those of features. Raises as ``parse_events``."""
    return parse_events(
        sampling.events, source=source, idle=sampling.idle, catalogue=catalogue_of(sampling)
    )


def opened(requests: Sequence[EventRequest]) -> tuple[EventRequest, ...]:
    """Those that the sampler opens: all but the features' own."""
    return tuple(request for request in requests if not request.feature)


def extended(requests: Sequence[EventRequest]) -> dict[str, list[EventRequest]]:
    """The events that features have, by feature; each is to be enabled for them."""
    found: dict[str, list[EventRequest]] = {}
    for request in requests:
        if request.feature:
            found.setdefault(request.feature, []).append(request)
    return found

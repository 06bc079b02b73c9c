"""Features that events ask for: those whose line in the events file has ``ext:WORD``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.features.asked import PulledIn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opd.events import EventRequest

# Bits of the unit mask of ops, as in the events files.
_OP_BITS = {"cnt_ctl": 1, "memaccess": 2, "branch_target": 4}
_OP_DEFAULT = 1


def pulled_in(requests: Iterable[EventRequest], where: str = "--event") -> list[PulledIn]:
    """What the events of features ask of them; other events ask nothing."""
    return [
        PulledIn(
            feature=request.feature,
            event=request.cpu_event,
            count=request.period or 0,
            where=where,
            options=_options(request),
        )
        for request in requests
        if request.feature
    ]


def _options(request: EventRequest) -> dict[str, str]:
    """A unit mask that somebody chose, as options of the feature."""
    if request.feature != "ibs_op" or request.unit_mask == _OP_DEFAULT:
        return {}
    return {name: str(int(bool(request.unit_mask & bit))) for name, bit in _OP_BITS.items()}

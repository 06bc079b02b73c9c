"""Features that events ask for: those whose line in the events file has ``ext:WORD``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.errors import ConfigError
from opd.features.asked import PulledIn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.events import EventRequest

# Bits of the unit mask of ops, as in the events files.
_OP_BITS = {"cnt_ctl": 1, "memaccess": 2, "branch_target": 4}
_OP_DEFAULT = 1
# IBS counts in steps of 16: what is above the last one still means it.
_STEP = 16


def pulled_in(requests: Sequence[EventRequest], where: str = "--event") -> list[PulledIn]:
    """What the events of features ask of them; other events ask nothing.

    Raises ConfigError where events of one feature want other levels (user,
    kernel): it samples once for all of them.
    """
    theirs = [request for request in requests if request.feature]
    _check_levels(theirs, where)
    return [
        PulledIn(
            feature=request.feature,
            event=request.cpu_event,
            count=_count(request),
            where=where,
            options=_options(request),
        )
        for request in theirs
    ]


def _count(request: EventRequest) -> int:
    count = request.period or 0
    return count - count % _STEP if request.feature.startswith("ibs_") else count


def _options(request: EventRequest) -> dict[str, str]:
    """What a unit mask and levels that somebody chose mean to the feature."""
    options = {}
    if request.exclude_user:
        options["user"] = "0"
    if request.exclude_kernel:
        options["kernel"] = "0"
    if request.feature == "ibs_op" and request.unit_mask != _OP_DEFAULT:
        bits = {name: request.unit_mask & bit for name, bit in _OP_BITS.items()}
        options |= {name: str(int(bool(bit))) for name, bit in bits.items()}
    return options


def _check_levels(requests: Sequence[EventRequest], where: str) -> None:
    first: dict[str, EventRequest] = {}
    for request in requests:
        before = first.setdefault(request.feature, request)
        if _levels(request) != _levels(before):
            raise ConfigError(
                f"{where}: {request.name} samples {_levels(request)}, but {before.name}"
                f" {_levels(before)}",
                hint=f"all events of {request.feature} share one choice of user and kernel",
            )


def _levels(request: EventRequest) -> str:
    if request.exclude_user:
        return "the kernel alone"
    return "users alone" if request.exclude_kernel else "user and kernel"

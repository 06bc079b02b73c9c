"""Which events there are, and whether this machine has them; opens none."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from opd.errors import PermissionDeniedError
from opd.events.catalogue import CATALOGUE, DEFAULT_HZ, Kind
from opd.events.tracepoints import MOUNT_HINT, find_tracefs, tracepoint_names


class EventListing(msgspec.Struct, frozen=True, kw_only=True):
    """One event that can be asked for.

    ``default`` is the count used when none is given: ``99hz`` or a period.
    ``available`` says whether sysfs has its PMU; ``reason`` why not, else "".
    """

    name: str
    aliases: tuple[str, ...] = ()
    kind: Kind
    unit: Literal["ns", "count"]
    default: str
    available: bool
    reason: str = ""
    summary: str = ""


def core_pmus(*, sysfs: str = "/sys") -> list[str]:
    """Names of the PMUs that count a core's cycles, such as cpu, cpu_core, armv8_pmuv3_0."""
    place = f"{sysfs}/bus/event_source/devices"
    try:
        names = sorted(os.listdir(place))  # noqa: PTH208
    except OSError:
        return []
    # A core PMU that covers some of the CPUs only has "cpus"; uncore ones have "cpumask".
    return [name for name in names if name == "cpu" or os.path.exists(f"{place}/{name}/cpus")]  # noqa: PTH110


def list_events(
    *, sysfs: str = "/sys", proc: str = "/proc", tracefs: str | None = None
) -> list[EventListing]:
    """Every event by name, then the tracepoints of this machine in order of name.

    Where tracepoints cannot be read, one entry ``sys:name`` says why.
    """
    has_core = bool(core_pmus(sysfs=sysfs))
    listings = []
    for event in CATALOGUE.values():
        available = has_core or event.kind != "hardware"
        listings.append(
            EventListing(
                name=event.name,
                aliases=event.aliases,
                kind=event.kind,
                unit=event.unit,
                default=str(event.default_period or f"{DEFAULT_HZ}hz"),
                available=available,
                reason="" if available else "no core PMU here; falls back to cpu-clock",
                summary=event.summary,
            )
        )
    return listings + _tracepoints(sysfs, proc, tracefs)


def _tracepoints(sysfs: str, proc: str, tracefs: str | None) -> list[EventListing]:
    def entry(name: str, reason: str = "") -> EventListing:
        return EventListing(
            name=name,
            kind="tracepoint",
            unit="count",
            default="1",
            available=not reason,
            reason=reason,
        )

    try:
        tracefs = tracefs or find_tracefs(sysfs=sysfs, proc=proc)
    except PermissionDeniedError as error:
        return [entry("sys:name", str(error))]
    if tracefs is None:
        return [entry("sys:name", f"tracefs is not mounted; {MOUNT_HINT}")]
    return [entry(name) for name in tracepoint_names(tracefs)]

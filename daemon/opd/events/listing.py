"""Which events there are, and whether this machine has them; opens none."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from opd.errors import PermissionDeniedError
from opd.events import cputype
from opd.events.catalogue import CATALOGUE, DEFAULT_HZ, Kind
from opd.events.cpucatalogue import Catalogue
from opd.events.named import maximum
from opd.events.pmu import pmu_names
from opd.events.tracepoints import MOUNT_HINT, find_tracefs, tracepoint_names
from opd.events.unitmasks import MaskEntry  # noqa: TC001 - msgspec reads it


class EventListing(msgspec.Struct, frozen=True, kw_only=True):
    """One event that can be asked for.

    ``default`` is the count used when none is given: ``99hz``, a period, or
    ``as FEATURE``.
    ``available`` says whether sysfs has its PMU; ``reason`` why not, else "".
    Those of the events files have a ``number`` too, the ``counters`` that count
    them or the feature ``ext``, the least and the greatest count, and the masks,
    of which ``unit_mask`` is the default.
    """

    name: str
    aliases: tuple[str, ...] = ()
    kind: Kind
    unit: Literal["ns", "count"]
    default: str
    available: bool
    reason: str = ""
    summary: str = ""
    number: int | None = None
    counters: tuple[int, ...] = ()
    ext: str = ""
    minimum: int | None = None
    maximum: int | None = None
    unit_mask_type: str = ""
    unit_mask: int | None = None
    unit_masks: tuple[MaskEntry, ...] = ()


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
    *,
    sysfs: str = "/sys",
    proc: str = "/proc",
    tracefs: str | None = None,
    catalogue: Catalogue | None = None,
    tracepoints: bool = True,
) -> list[EventListing]:
    """Perf's events, those of the events files, then this machine's tracepoints by name.

    Where tracepoints cannot be read, one entry ``sys:name`` says why. Raises
    ConfigError for broken events files or an unknown CPU type.
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
    listings += _of_files(catalogue or Catalogue(proc=proc), sysfs, has_core=has_core)
    return listings + (_tracepoints(sysfs, proc, tracefs) if tracepoints else [])


def _of_files(catalogue: Catalogue, sysfs: str, *, has_core: bool) -> list[EventListing]:
    pmus = pmu_names(sysfs=sysfs)
    cpu_type = catalogue.cpu_type
    listings = []
    for event in catalogue.events.events:
        reason = ""
        if event.ext:
            reason = "" if event.ext in pmus else f"no {event.ext} PMU here"
        elif catalogue.foreign:
            reason = f"this machine is {catalogue.here}"
        elif event.counters and not has_core:
            reason = "no core PMU here; falls back to cpu-clock"
        timer = cpu_type == cputype.TIMER
        mask, _ = event.mask.choose("")
        listings.append(
            EventListing(
                name=event.name,
                kind="extended" if event.ext else "counter" if event.counters else "other",
                unit="ns" if timer else "count",
                default=f"as {event.ext}" if event.ext else f"{DEFAULT_HZ}hz",
                available=not reason,
                reason=reason,
                summary=event.text,
                number=event.number,
                counters=event.counters,
                ext=event.ext,
                minimum=event.minimum,
                maximum=maximum(cpu_type, event),
                unit_mask_type=event.mask.type,
                unit_mask=mask,
                unit_masks=event.mask.entries,
            )
        )
    return listings


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

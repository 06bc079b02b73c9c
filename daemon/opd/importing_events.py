"""The events of an imported recording, those derived of its IBS records among them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from opd.sampling.window import EventInfo
from opd.store.database import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from opd_native.importer import Importer
    from opd_native.perfdata import EventAttr

_PERF_TYPE_SOFTWARE = 1
_CLOCKS = (0, 1)  # PERF_COUNT_SW_CPU_CLOCK, _TASK_CLOCK
_SW_DUMMY = 9


def event_infos(attrs: Sequence[EventAttr], importer: Importer) -> list[EventInfo]:
    """Give the events in order of their numbers, without perf's trailing dummy ones."""
    events = importer.events()
    while len(events) > 1 and _is_dummy(attrs[events[-1].attr]):
        events.pop()
    infos = []
    for event in events:
        attr, derived = attrs[event.attr], event.derived
        name = printable(attr.name)  # bytes of a file
        infos.append(
            EventInfo(
                name=derived.name if derived else name,
                source=name,
                unit=derived.unit if derived else "ns" if _is_clock(attr) else "count",
                hz=attr.sample_period if attr.frequency else None,
                period=None if attr.frequency else attr.sample_period,
                feature=derived.flavour.pmu if derived else "",
            )
        )
    return infos


def _is_clock(attr: EventAttr) -> bool:
    return attr.type == _PERF_TYPE_SOFTWARE and attr.config in _CLOCKS


def _is_dummy(attr: EventAttr) -> bool:
    return attr.type == _PERF_TYPE_SOFTWARE and attr.config == _SW_DUMMY


def ibs_pmus(importer: Importer) -> dict[int, str]:
    """Give the PMU of each event with IBS records, by the event's number."""
    pmus = {}
    for number, event in enumerate(importer.events()):
        found = importer.ibs_attr(event.attr)
        if found and event.derived is None:
            pmus[number] = found[0].pmu
    return pmus


class IbsTotals:
    """What became of the IBS records of all windows."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()

    def update(self, counts: Mapping[int, Mapping[str, int]]) -> None:
        """Add a window's."""
        for one in counts.values():
            self._sums.update(one)

    def notes(self) -> Iterator[str]:
        """Say what a reader of the numbers should know."""
        sums = self._sums
        if sums["incomplete"]:
            caps = f" ({sums['unknown_caps']} of unknown caps)" if sums["unknown_caps"] else ""
            yield f"{sums['incomplete']} of {sums['records']} IBS records incomplete{caps}"
        if sums["inexact"]:
            yield f"{sums['inexact']} IBS samples without an address, kept at the interrupt's"
        if sums["ignored"]:
            yield f"{sums['ignored']} IBS records ignored by erratum 1197"
        if sums["mismatched"]:
            yield (
                f"{sums['mismatched']} of {sums['compared']} data sources are not what"
                " the registers say"
            )


def bare_notes(attrs: Sequence[EventAttr], importer: Importer) -> Iterator[str]:
    """Name the IBS events of which nothing can be derived."""
    for index, attr in enumerate(attrs):
        found = importer.ibs_attr(index)
        if found and not found[1]:
            name = printable(attr.name)
            yield f"{name}: recorded without --raw-samples, so nothing is derived of it"

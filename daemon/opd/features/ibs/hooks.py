"""The hooks of ibs_fetch and ibs_op."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from opd.features.declared import Event, Feature, Options, Stats, UnavailableError
from opd.features.hookspecs import hookimpl
from opd.features.ibs.options import FETCH_MOST, OP_MOST, FetchOptions, OpOptions
from opd.features.ibs.pmu import DEVICES, PmuError, missing, read_machine, read_pmu
from opd.features.ibs.requests import LackingError, plan
from opd_native.ibs import MINIMUM_COUNT, Flavour, Machine, derived_events

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opd.features.context import Context
    from opd.features.ibs.options import IbsOptions
    from opd_native.sampler import Sampler

# Different (sample file, stack, bucket) of a window; different branches of one.
LATENCIES = 1 << 16
BRANCHES = 1 << 14
_OPTIONS: dict[Flavour, type[Options]] = {Flavour.FETCH: FetchOptions, Flavour.OP: OpOptions}
_SUMMARIES = {
    Flavour.FETCH: "AMD Instruction-Based Sampling of fetches: caches, TLBs, latency",
    Flavour.OP: "AMD Instruction-Based Sampling of ops: branches, memory, data source, latency",
}


class Ibs:
    """One of the two features, from its init to its deinit."""

    def __init__(self, flavour: Flavour, options: IbsOptions, context: Context) -> None:
        self.flavour = flavour
        self.options = options
        self.context = context
        self.source = ""  # what really runs
        self._sampler: Sampler | None = None
        self._index = 0
        self._ids: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        """The derived events that are wanted."""
        mine = [event.name for event in derived_events() if event.flavour is self.flavour]
        return list(dict.fromkeys(self.options.events)) or mine

    def begin(self, devices: str) -> None:
        """Ask for the event. Raises UnavailableError."""
        try:
            pmu = read_pmu(self.flavour.pmu, devices)
            if pmu is None:
                raise UnavailableError(missing(self.flavour.pmu))
            planned = plan(pmu, self.options)
        except (PmuError, LackingError) as error:
            raise UnavailableError(str(error)) from error
        for remark in planned.remarks:
            self.context.log(remark)
        self.context.use_events(self.names)
        self.context.add_kernel_event(planned.request, opened=self.opened)

    def opened(self, sampler: Sampler, index: int, ids: Mapping[str, int]) -> None:
        """Tell the native sampler what to make of the event's records."""
        options = self.options
        self._sampler, self._index = sampler, index
        self._ids = {name: ids[name] for name in self.names}
        machine = read_machine(release=os.uname().release) or Machine()
        sampler.keep_payload(
            latencies=LATENCIES,
            records=options.records,
            accesses=getattr(options, "accesses", 0) if _has(options, "memaccess") else 0,
            branches=BRANCHES if _has(options, "branch_target") else 0,
        )
        sampler.set_ibs(
            index,
            self.flavour,
            machine,
            self._ids,
            user=options.user,
            kernel=options.kernel,
        )

    def stats(self) -> Stats:
        """What became of the records so far."""
        sampler = self._sampler
        if sampler is None:
            return Stats({})
        values: dict[str, Any] = dict(sampler.ibs_counts(self._index))
        values["lost"] = sampler.lost(self._index)
        whole = sampler.stats()
        values["throttles"] = whole["throttles"]
        values["throttled_seconds"] = whole["throttled_ns"] / 1e9
        counted = sampler.event_samples()
        values |= {
            name: counted[number] for name, number in self._ids.items() if number < len(counted)
        }
        return Stats(values)


def _has(options: IbsOptions, name: str) -> bool:
    return bool(getattr(options, name, False))


_running: dict[str, Ibs] = {}
# Tests look elsewhere.
devices = DEVICES


def _flavour_of(feature: Feature) -> Flavour:
    return Flavour.OP if feature.name == Flavour.OP.pmu else Flavour.FETCH


def _feature(flavour: Flavour) -> Feature:
    def unavailable() -> str:
        try:
            return "" if read_pmu(flavour.pmu, devices) is not None else missing(flavour.pmu)
        except PmuError as error:
            return str(error)

    return Feature(
        name=flavour.pmu,
        summary=_SUMMARIES[flavour],
        options=_OPTIONS[flavour],
        events=tuple(
            Event(
                name=event.name,
                number=event.number,
                summary=event.description,
                unit=event.unit,
                minimum=MINIMUM_COUNT,
                maximum=OP_MOST if flavour is Flavour.OP else FETCH_MOST,
            )
            for event in derived_events()
            if event.flavour is flavour
        ),
        unavailable=unavailable,
    )


@hookimpl
def opd_ext_features() -> list[Feature]:
    """Both; they share everything but the PMU."""
    return [_feature(Flavour.FETCH), _feature(Flavour.OP)]


@hookimpl
def opd_ext_init(feature: Feature, options: IbsOptions, context: Context) -> None:
    """Find the PMU and ask for its event, or read the recording."""
    one = Ibs(_flavour_of(feature), options, context)
    one.begin(devices)
    _running[feature.name] = one


@hookimpl
def opd_ext_deinit(feature: Feature) -> None:
    """Let go of the sampler."""
    _running.pop(feature.name, None)


@hookimpl
def opd_ext_print_stats(feature: Feature) -> Stats:
    """Records, what was wrong with them, and samples of each event."""
    one = _running.get(feature.name)
    return one.stats() if one is not None else Stats({})

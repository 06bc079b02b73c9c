"""The options of ibs_fetch and ibs_op, checked before anything of the machine is asked."""

from __future__ import annotations

from typing import Annotated

from opd.config.nearest import did_you_mean
from opd.features.declared import ReplayOptions, about
from opd_native.ibs import MINIMUM_COUNT, Flavour, derived_event, derived_events

COUNT = 1_000_000
# Of the hardware; a count counts in steps of 16.
FETCH_MOST = 0xFFFF0
OP_MOST = 0x7FFFFF0
_STEP = 128  # cycles, of the thresholds of latencies


class _Shared(ReplayOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What both have."""

    events: Annotated[
        tuple[str, ...],
        about("The derived events to count, all of the feature's when left out."),
    ] = ()
    l3missonly: Annotated[
        bool, about("Have the CPU sample only what misses L3 (Zen4 on); rates mean nothing then.")
    ] = False
    swfilt: Annotated[
        bool,
        about(
            "With user or kernel off: let the kernel drop the other samples where it can (6.14 on)."
        ),
    ] = True
    user: Annotated[bool, about("Count samples of user mode.")] = True
    kernel: Annotated[bool, about("Count samples of kernel mode.")] = True
    records: Annotated[
        int,
        about(
            "Raw records kept of a window, a fair draw, for events that are asked for later.",
            ge=0,
            le=65536,
        ),
    ] = 256

    def __post_init__(self) -> None:
        """What types cannot say."""
        if not (self.user or self.kernel):
            raise ValueError("user=false,kernel=false leaves nothing to sample")


class FetchOptions(_Shared, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ibs_fetch."""

    count: Annotated[
        int,
        about(
            "Fetches from one sample to the next, in steps of 16.", ge=MINIMUM_COUNT, le=FETCH_MOST
        ),
    ] = COUNT
    rand: Annotated[bool, about("Have the CPU vary the count a little.")] = True
    fetchlat: Annotated[
        int,
        about("Sample only fetches of at least so many cycles (Zen6 on); 0: all.", ge=0, le=1920),
    ] = 0

    def __post_init__(self) -> None:
        """What types cannot say."""
        super().__post_init__()
        check_events(self.events, Flavour.FETCH)
        check_threshold("fetchlat", self.fetchlat)


class OpOptions(_Shared, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ibs_op."""

    count: Annotated[
        int,
        about(
            "Ops (or cycles) from one sample to the next, in steps of 16.",
            ge=MINIMUM_COUNT,
            le=OP_MOST,
        ),
    ] = COUNT
    cnt_ctl: Annotated[
        int, about("What count counts: 1 dispatched ops, 0 clock cycles.", ge=0, le=1)
    ] = 1
    ldlat: Annotated[
        int,
        about(
            "Sample only loads that waited at least so many cycles (Zen5 on); 0: all.",
            ge=0,
            le=2048,
        ),
    ] = 0
    memaccess: Annotated[bool, about("Keep accesses to memory, for opctl mem.")] = False
    accesses: Annotated[
        int, about("Accesses kept of a window, a fair draw of all.", ge=1, le=1 << 20)
    ] = 4096
    branch_target: Annotated[bool, about("Keep where branches went, for opctl branches.")] = False

    def __post_init__(self) -> None:
        """What types cannot say."""
        super().__post_init__()
        check_events(self.events, Flavour.OP)
        check_threshold("ldlat", self.ldlat)


IbsOptions = FetchOptions | OpOptions


def check_events(names: tuple[str, ...], flavour: Flavour) -> None:
    """Raises ValueError for what is no event of this feature, with the close and all valid ones."""
    valid = [event.name for event in derived_events() if event.flavour is flavour]
    for name in names:
        if name in valid:
            continue
        event = derived_event(name)
        if event is not None:
            raise ValueError(
                f"events: {name} is an event of {event.flavour.pmu}, not of {flavour.pmu}"
            )
        raise ValueError(
            f"events: no event {name[:100]!r}{did_you_mean(name, valid)}"
            f" ({flavour.pmu} has: {' '.join(valid)})"
        )


def check_threshold(option: str, cycles: int) -> None:
    """Raises ValueError for a threshold that the CPU cannot be set to."""
    if cycles % _STEP:
        low = cycles // _STEP * _STEP
        near = f"{low} or {low + _STEP}" if low else f"{_STEP}"
        raise ValueError(f"{option}: {cycles} is no multiple of {_STEP}; near it: {near}")

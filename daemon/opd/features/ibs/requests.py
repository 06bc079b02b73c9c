"""What is asked of perf_event_open for an IBS feature, and what next when it is refused.

Facts: config bits come from sysfs; a bit that the kernel does not know,
exclude_idle, exclude_host and exclude_guest are refused with EINVAL;
exclude_user and exclude_kernel too, unless swfilt is set (6.14 on); so are a
period whose low four bits are set (before 6.15 or so) and sample types newer
than the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from opd.events.request import EventRequest
from opd.features.ibs.options import FetchOptions, OpOptions

if TYPE_CHECKING:
    from opd.features.ibs.options import IbsOptions
    from opd.features.ibs.pmu import Pmu

RAW_RECORD, RAW_MEMORY = 1, 2

# What a field needs, in words.
_NEEDS = {
    "l3missonly": "Zen4 on, Linux 6.0",
    "ldlat": "Zen5 on, Linux 6.12",
    "fetchlat": "Zen6 on",
}
# Without these it goes on.
_SPARED = {
    "rand_en": "this PMU varies no count: rand does nothing",
    "cnt_ctl": "this CPU counts no dispatched ops: count is in clock cycles",
}


class LackingError(Exception):
    """The machine lacks what an option asks for; the message is the reason."""


class Plan(NamedTuple):
    """The request, with what to try after it, and what is not as asked, for the log."""

    request: EventRequest
    remarks: tuple[str, ...]


def plan(pmu: Pmu, options: IbsOptions) -> Plan:
    """What to open. Raises LackingError for an option that this machine cannot do."""
    words, remarks = _words(pmu, options)
    count = options.count & ~15
    if count != options.count:
        remarks.append(f"count {options.count} is {count}: it goes in steps of 16")
    plain = EventRequest(
        name=pmu.name,
        type=pmu.type,
        config=words["config"],
        config1=words["config1"],
        config2=words["config2"],
        unit="count",
        period=count,
        raw=RAW_MEMORY,
    )
    rungs = [plain, msgspec.structs.replace(plain, raw=RAW_RECORD)]
    if not (options.user and options.kernel):
        # Where the kernel does not filter, every sample comes and opd drops those not wanted.
        closed = {"exclude_user": not options.user, "exclude_kernel": not options.kernel}
        if options.swfilt and "swfilt" in pmu.fields:
            field = pmu.fields["swfilt"]
            closed[field.word] = getattr(plain, field.word) | field.place(1)
        if options.swfilt:
            rungs.insert(0, msgspec.structs.replace(plain, **closed))
    first, *rest = rungs
    named = [msgspec.structs.replace(rung, name=_name(rung)) for rung in rest]
    return Plan(msgspec.structs.replace(first, fallbacks=tuple(named)), tuple(remarks))


def _words(pmu: Pmu, options: IbsOptions) -> tuple[dict[str, int], list[str]]:
    """The attr's words, and what is not as asked."""
    words = {"config": 0, "config1": 0, "config2": 0}
    remarks: list[str] = []
    for name, value in _wanted(options).items():
        field = pmu.fields.get(name)
        if field is not None:
            try:
                words[field.word] |= field.place(value)
            except ValueError as error:
                raise LackingError(f"{pmu.name} here takes no {name}={value}: {error}") from error
        elif name in _SPARED:
            remarks.append(_SPARED[name])
        else:
            raise LackingError(f"{pmu.name} here has no {name} (it needs {_NEEDS[name]})")
    return words, remarks


def _wanted(options: IbsOptions) -> dict[str, int]:
    """Format fields and their values, as far as they are not 0."""
    fields = {"l3missonly": int(options.l3missonly)}
    if isinstance(options, FetchOptions):
        fields |= {"rand_en": int(options.rand), "fetchlat": options.fetchlat}
    elif isinstance(options, OpOptions):
        fields |= {"cnt_ctl": options.cnt_ctl, "ldlat": options.ldlat}
    return {name: value for name, value in fields.items() if value}


def _name(request: EventRequest) -> str:
    """What a rung is called in the log; the first one's is the event's name in the run."""
    terms = [
        f"{word}={value:#x}"
        for word in ("config", "config1", "config2")
        if (value := getattr(request, word))
    ]
    terms += [word for word in ("exclude_user", "exclude_kernel") if getattr(request, word)]
    if request.raw == RAW_RECORD:
        terms.append("raw record only")
    return f"{request.name}/{','.join(terms)}/" if terms else f"{request.name}//"

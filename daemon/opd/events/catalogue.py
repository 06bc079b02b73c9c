"""The events that perf knows by a name on every machine."""

from __future__ import annotations

from typing import Literal, NamedTuple

PERF_TYPE_HARDWARE = 0
PERF_TYPE_SOFTWARE = 1
PERF_TYPE_TRACEPOINT = 2
PERF_TYPE_RAW = 4
# No PMU has it: perf_event_open says ENOENT, and the next rung is tried.
PERF_TYPE_NONE = 0xFFFFFFFF

DEFAULT_HZ = 99
# The kernel's timer takes no shorter one: it would silently sample at this.
CLOCK_PERIOD_LEAST_NS = 10_000
# Below it, a counter of common events would interrupt without end.
HARDWARE_PERIOD_LEAST = 500
# perf_event_open refuses the top bit.
PERIOD_MOST = (1 << 63) - 1

Kind = Literal["software", "hardware", "tracepoint", "counter", "extended", "other"]


class Known(NamedTuple):
    """A named event: ``default_period`` None means a rate of 99 Hz."""

    name: str
    kind: Kind
    config: int
    summary: str
    unit: Literal["ns", "count"] = "count"
    default_period: int | None = None
    aliases: tuple[str, ...] = ()

    @property
    def type(self) -> int:
        """The PMU's number in ``perf_event_attr``."""
        return PERF_TYPE_HARDWARE if self.kind == "hardware" else PERF_TYPE_SOFTWARE

    @property
    def period_least(self) -> int:
        """The shortest period that may be asked for."""
        if self.unit == "ns":
            return CLOCK_PERIOD_LEAST_NS
        return HARDWARE_PERIOD_LEAST if self.kind == "hardware" else 1


_EVENTS = (
    Known("cpu-clock", "software", 0, "time on each CPU, by a timer", "ns"),
    Known("task-clock", "software", 1, "time of running tasks, by a timer", "ns"),
    Known("page-faults", "software", 2, "page faults", "count", 1, ("faults",)),
    Known("minor-faults", "software", 5, "page faults that need no input", "count", 1),
    Known("major-faults", "software", 6, "page faults that read from a device", "count", 1),
    Known("context-switches", "software", 3, "switches of task", "count", 1, ("cs",)),
    Known(
        "cpu-migrations", "software", 4, "tasks moved to another CPU", "count", 1, ("migrations",)
    ),
    Known("alignment-faults", "software", 7, "unaligned accesses the kernel mended", "count", 1),
    Known("emulation-faults", "software", 8, "instructions the kernel emulated", "count", 1),
    Known("cycles", "hardware", 0, "cycles of the core", aliases=("cpu-cycles",)),
    Known("instructions", "hardware", 1, "instructions retired"),
    Known("cache-references", "hardware", 2, "accesses of the last-level cache"),
    Known("cache-misses", "hardware", 3, "misses of the last-level cache"),
    Known("branches", "hardware", 4, "branches retired", aliases=("branch-instructions",)),
    Known("branch-misses", "hardware", 5, "branches predicted wrongly"),
    Known("bus-cycles", "hardware", 6, "cycles of the bus"),
    Known(
        "stalled-cycles-frontend",
        "hardware",
        7,
        "cycles in which no instruction could be issued",
        aliases=("idle-cycles-frontend",),
    ),
    Known(
        "stalled-cycles-backend",
        "hardware",
        8,
        "cycles in which no instruction could retire",
        aliases=("idle-cycles-backend",),
    ),
    Known("ref-cycles", "hardware", 9, "cycles at the nominal clock"),
)

CATALOGUE: dict[str, Known] = {event.name: event for event in _EVENTS}
BY_NAME: dict[str, Known] = {
    name: event for event in _EVENTS for name in (event.name, *event.aliases)
}

"""Events: the grammar, what there is here, and on which CPUs."""

from opd.events.cpus import online_cpus, parse_cpu_list, select_cpus
from opd.events.grammar import parse_event, parse_events
from opd.events.listing import EventListing, list_events
from opd.events.request import EventRequest

__all__ = [
    "EventListing",
    "EventRequest",
    "list_events",
    "online_cpus",
    "parse_cpu_list",
    "parse_event",
    "parse_events",
    "select_cpus",
]

"""Events: the grammar, what there is here, and on which CPUs."""

from opd.events.check import CheckedEvent, check_events
from opd.events.cpus import online_cpus, parse_cpu_list, select_cpus
from opd.events.grammar import parse_event, parse_events
from opd.events.listing import EventListing, list_events
from opd.events.named import Catalogue, extended, opened
from opd.events.request import EventRequest
from opd.events.wanted import catalogue_of, requests_of

__all__ = [
    "Catalogue",
    "CheckedEvent",
    "EventListing",
    "EventRequest",
    "catalogue_of",
    "check_events",
    "extended",
    "list_events",
    "online_cpus",
    "opened",
    "parse_cpu_list",
    "parse_event",
    "parse_events",
    "requests_of",
    "select_cpus",
]

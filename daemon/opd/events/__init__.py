"""Events: the grammar, what there is here, and on which CPUs.

What is seldom needed at start-up (``listing``, ``check``, the events files) is
imported from its own module.
"""

from opd.events.cpucatalogue import Catalogue
from opd.events.cpus import online_cpus, parse_cpu_list, select_cpus
from opd.events.grammar import parse_event, parse_events
from opd.events.request import EventRequest
from opd.events.wanted import catalogue_of, extended, opened, requests_of

__all__ = [
    "Catalogue",
    "EventRequest",
    "catalogue_of",
    "extended",
    "online_cpus",
    "opened",
    "parse_cpu_list",
    "parse_event",
    "parse_events",
    "requests_of",
    "select_cpus",
]

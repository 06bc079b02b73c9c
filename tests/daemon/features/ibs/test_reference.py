"""docs/ibs.md beside what it describes."""

import re

from opd.features.ibs.options import FetchOptions, OpOptions
from opd.features.ibs.reference import filled
from opd.store.precise.definitions import METRICS
from opd_native.ibs import derived_events
from places import DATA

PAGE = (DATA.parent.parent / "docs" / "ibs.md").read_text()


def test_its_tables_are_those_of_the_code():
    """``python -m opd.features.ibs.reference docs/ibs.md`` changes nothing."""
    assert filled(PAGE) == PAGE


def test_it_tells_of_every_event_metric_and_option():
    """Each by its name."""
    named = set(re.findall(r"`([\w]+)`", PAGE))
    assert {event.name for event in derived_events()} <= named
    assert METRICS.keys() <= named
    assert {*FetchOptions.__struct_fields__, *OpOptions.__struct_fields__} <= named

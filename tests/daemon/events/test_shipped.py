"""The events files that opd brings: whole, and equal to what decodes their events."""

import pytest

from opd.events import Catalogue
from opd.events.check import check_events
from opd.events.cputype import known_types, search_path
from opd_native import ibs

FAMILIES = [name for name in known_types(search_path()) if "family" in name]
# What oprofile had on every family with IBS, and one page size that it left out.
OF_OPROFILE = 61


def derived(name):
    """The events of features of a CPU type."""
    return {event.name: event for event in Catalogue(cpu_type=name).events.events if event.ext}


def test_the_events_of_ibs_are_those_of_the_decoder():
    """Name, number, feature, least count and exact bits; each in some family's file."""
    table = {event.name: event for event in ibs.derived_events()}
    found = {}
    for family in FAMILIES:
        found |= derived(family)
    assert set(found) == set(table)
    for name, event in found.items():
        decoded = table[name]
        assert (event.number, event.ext) == (decoded.number, decoded.flavour.pmu), name
        assert event.minimum == ibs.MINIMUM_COUNT == 50000
        assert f"Bits: {decoded.condition}." in event.text, name
        assert event.text.startswith(decoded.description), name


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_has_what_oprofile_had_and_zen_has_more(family):
    """60 events, the page of 1 GiB, and from Zen on what its registers tell beside."""
    events = derived(family)
    of_oprofile = [each for each in events.values() if each.number in range(0xF000, 0xF010)]
    of_oprofile += [each for each in events.values() if each.number in range(0xF100, 0xF10A)]
    of_oprofile += [each for each in events.values() if each.number in range(0xF200, 0xF21A)]
    of_oprofile += [each for each in events.values() if each.number in range(0xF240, 0xF24D)]
    assert len(of_oprofile) == OF_OPROFILE
    assert "IBS_FETCH_1G_PAGE" in events
    zen = family[-2:] in {"17", "19", "1a"}
    assert ("IBS_OP_L2_MISS" in events) == zen
    ops = events["IBS_OP_ALL"].mask
    masks = [0, 1, 2] if family.endswith("10") else [0, 1, 2, 4]
    assert ([entry.value for entry in ops.entries], ops.default) == (masks, 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_event_of_each_family_can_be_asked_for(family):
    """At its least count, with each of its masks by number and by name; every line explains."""
    catalogue = Catalogue(cpu_type=family)
    for event in catalogue.events.events:
        assert event.text, event.place
        for entry in event.mask.entries:
            for mask in (f"{entry.value:#x}", entry.name):
                spec = f"{event.name}:{event.minimum}" + (f":{mask}" if mask else "")
                checked = check_events([spec], catalogue=catalogue)[0]
                assert (checked.counter >= 0) == bool(event.counters)


@pytest.mark.parametrize(
    ("family", "counters"),
    [("10", 4), ("12", 4), ("14", 4), ("15", 6), ("17", 6), ("19", 6), ("1a", 6)],
)
def test_how_many_counters(family, counters):
    """A core's counters of each family."""
    assert Catalogue(cpu_type=f"x86-64/family{family}").events.counters == counters


def test_breadth():
    """Each family has the cycles, instructions, branches, caches, TLBs, FP and dispatch."""
    for family in FAMILIES:
        counted = [e for e in Catalogue(cpu_type=family).events.events if e.counters]
        numbers = {event.number for event in counted}
        assert {0x76, 0xC0, 0xC1, 0xC2, 0xC3, 0xCB, 0x85} <= numbers
        assert len(counted) > 60

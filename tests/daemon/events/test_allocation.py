"""Counters: every arrangement that there is, is found, the lowest first."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from opd.events.allocation import map_events_to_counters

WANTED = st.lists(st.sets(st.integers(0, 4)).map(sorted), max_size=6)


def search(wanted):
    """The first arrangement, by trying them all in order."""
    for chosen in product(*(counters or [-1] for counters in wanted)):
        real = [counter for counter in chosen if counter >= 0]
        if len(real) == len(set(real)):
            return list(chosen)
    return None


@given(WANTED)
def test_it_finds_what_trying_all_finds(wanted):
    """The same counters as by trying every arrangement, or none where there is none."""
    assert map_events_to_counters(wanted) == search(wanted)


def test_a_choice_is_taken_back():
    """The first event leaves the lowest counter to the one that has no other."""
    assert map_events_to_counters([(0, 1, 2), (0,), (), (1,)]) == [2, 0, -1, 1]
    assert map_events_to_counters([(0,), (1,), (0, 1)]) is None
    assert map_events_to_counters([]) == []


def test_a_long_list_takes_no_time():
    """One event too many for as many counters as there may be, is no search without end."""
    counters = tuple(range(32))
    assert map_events_to_counters([counters] * 32) == list(counters)
    assert map_events_to_counters([counters] * 33) is None

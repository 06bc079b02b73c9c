"""Which event gets which counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# What an event that needs no counter has in the map.
NO_COUNTER = -1


def map_events_to_counters(wanted: Sequence[Sequence[int]]) -> list[int] | None:
    """For each event, of the counters that can count it, one that no other has.

    The lowest first, in the order of the events; a choice that leaves a later
    event without a counter is taken back. An event that lists none gets -1 and
    takes none. None when they cannot all be counted at once.

    >>> map_events_to_counters([(0, 1), (), (0,)])
    [1, -1, 0]
    >>> map_events_to_counters([(0,), (0,)])
    """
    # Backtracking, with a look ahead instead of a way back: a counter is chosen
    # only where the events behind still find theirs, so nothing is tried twice
    # and no list of events takes long.
    chosen: list[int] = []
    taken: set[int] = set()
    for i, counters in enumerate(wanted):
        if not counters:
            chosen.append(NO_COUNTER)
            continue
        for counter in sorted(counters):
            if counter not in taken and _fit(wanted[i + 1 :], taken | {counter}):
                chosen.append(counter)
                taken.add(counter)
                break
        else:
            return None
    return chosen


def _fit(wanted: Sequence[Sequence[int]], taken: set[int]) -> bool:
    """Whether all of ``wanted`` find a counter among those that are not taken."""
    owner: dict[int, int] = {}

    def place(event: int, asked: set[int]) -> bool:
        """Give it a free counter, or one whose owner can move."""
        for counter in wanted[event]:
            if counter in taken or counter in asked:
                continue
            asked.add(counter)
            if counter not in owner or place(owner[counter], asked):
                owner[counter] = event
                return True
        return False

    return all(not counters or place(i, set()) for i, counters in enumerate(wanted))

"""The tables of program counters from Python: what went in comes out, numbers are checked."""

import pytest

from opd_native.errors import NativeError
from opd_native.pc_hash import PcHash, Tap, Target


def make(**changed):
    """Two CPUs, 1,000 slots of the buffer."""
    shape = {"slots": 64, "ways": 64, "policy": "flush", "nodes": [0, -1], "length": 1000}
    return PcHash(**{**shape, **changed})


@pytest.mark.parametrize("policy", ["flush", "evict", "none"])
def test_hits_in_are_hits_out(policy):
    """By every policy, whatever the tables had no room for."""
    hashed = make(policy=policy, slots=8, ways=4)
    for cpu in (0, 1):
        hashed.add(cpu, [*range(1000), 0, 0, 999])
    slots, hits = hashed.read()
    assert list(slots) == list(range(1000))
    assert sum(hits) == 2 * 1003
    assert (hits[0], hits[1], hits[999]) == (6, 2, 4)
    stats = hashed.stats()
    assert stats.hits == 2 * 1003
    assert stats.shared_updates <= stats.hits
    assert stats.flips == 1
    assert (stats.flushes > 0) == (policy == "flush")
    assert (stats.evictions > 0) == (policy == "evict")
    assert set(hashed.stats_by_cpu()) == {0, 1}


def test_more_slots_than_first_thought_are_all_read():
    """The room grows."""
    hashed = make(length=20_000, slots=1 << 15, ways=1 << 15)
    hashed.add(0, range(20_000))
    slots, hits = hashed.read()
    assert list(slots) == list(range(20_000))
    assert set(hits) == {1}


def test_a_reset_empties_the_buffer_and_counts_on():
    """The counters are since the beginning."""
    hashed = make()
    hashed.add(0, [1, 1, 2])
    hashed.reset()
    assert list(hashed.read()[0]) == []
    assert hashed.stats().hits == 3
    assert hashed.stats_by_cpu()[0].shared_updates == 2


def test_what_cannot_be_is_refused():
    """Shapes, CPUs, slots, targets."""
    with pytest.raises(NativeError, match="48 slots"):
        make(slots=48)
    with pytest.raises(NativeError):
        make(ways=128)
    hashed = make()
    for cpu, slot in ((2, 0), (-1, 0), (0, 1000), (0, -1)):
        with pytest.raises(ValueError, match="no such CPU or slot"):
            hashed.add(cpu, [slot])
    assert Tap(hashed, 0, Target(0x1000, 0x1000 + 1000, 0)).outside() == 0
    with pytest.raises(NativeError):
        Tap(hashed, 0, Target(0x1000, 0x1000 + 1001, 0))
    with pytest.raises(NativeError):
        Tap(hashed, 0, Target(0, 1000, 0, segments=((0, 1, 0),) * 17))


def test_a_target_knows_its_slots():
    """The last one may be a part."""
    assert Target(0x1000, 0x1010, 4).length == 1
    assert Target(0x1000, 0x1011, 4).length == 2

"""The tables in C beside a model of the header's words: every counter, and every word."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opd_native._core import ffi, lib
from opd_native.pc_hash import POLICIES, Tap, Target
from pc_hash_model import WORD, Model

COUNTERS = ("hits", "shared_updates", "flushes", "evictions", "wraps", "flips", "probe_max")


class Tables:
    """The tables in C, with a buffer that can be looked at between flushes."""

    def __init__(self, *, slots, ways, policy, cpus, buffer):
        self.buffer = ffi.new("uint32_t[]", buffer)
        options = ffi.new("struct opd_pc_options *")
        options.shape = (slots, ways, POLICIES.index(policy))
        options.cpus, options.length, options.buffer = cpus, len(buffer), self.buffer
        made = lib.opd_pc_hash_create(options)
        assert made != ffi.NULL
        self.pointer = ffi.gc(made, lib.opd_pc_hash_destroy)

    def read(self):
        """The slots that have hits, in order."""
        room = len(self.buffer)
        slots, hits = ffi.new("uint32_t[]", room), ffi.new("uint32_t[]", room)
        found = lib.opd_pc_hash_read(self.pointer, slots, hits, room)
        return list(zip(slots[0:found], hits[0:found], strict=True))

    def stats(self):
        """Of all CPUs."""
        out = ffi.new("struct opd_pc_stats *")
        lib.opd_pc_hash_stats(self.pointer, out)
        return {name: getattr(out, name) for name in COUNTERS}

    def stats_cpu(self, cpu):
        """Of one."""
        out = ffi.new("struct opd_pc_stats *")
        lib.opd_pc_hash_stats_cpu(self.pointer, cpu, out)
        return {name: getattr(out, name) for name in COUNTERS}


@dataclass
class Pair:
    """Both, and what an address is a hit of."""

    tables: Tables
    model: Model
    tap: Tap
    target: Target
    outside: int = 0

    def hit(self, cpu, pc):
        """One sample at an address."""
        lib.opd_pc_tap_kernel(self.tap.pointer, cpu, pc)
        if self.target.start <= pc < self.target.end and cpu < len(self.model.cpus):
            self.model.add(cpu, (pc - self.target.start) // 2**self.target.shift)
        else:
            self.outside += 1

    def hit_all(self, cpu, pcs):
        """Samples one by one, or in one call when all are in the range."""
        start, end, shift = self.target[:3]
        if cpu >= len(self.model.cpus) or not all(start <= pc < end for pc in pcs):
            for pc in pcs:
                self.hit(cpu, pc)
            return
        slots = [(pc - start) // 2**shift for pc in pcs]
        lib.opd_pc_hash_add(self.tables.pointer, cpu, slots, len(slots))
        for slot in slots:
            self.model.add(cpu, slot)

    def act(self, what, cpu):
        """What a reader does."""
        if what == "offline":
            lib.opd_pc_hash_flush_cpu(self.tables.pointer, cpu)
            self.model.flush_cpu(cpu)
        elif what == "flip":
            lib.opd_pc_hash_flush(self.tables.pointer)
            self.model.flush()
        elif what == "reset":
            lib.opd_pc_hash_reset(self.tables.pointer)
            self.model.reset()
        else:
            assert self.tables.read() == self.model.read()

    def check(self):
        """Nothing differs, also between two flushes."""
        assert list(self.tables.buffer) == self.model.buffer
        assert self.tables.stats() == self.model.stats()
        for cpu in range(len(self.model.cpus)):
            assert self.tables.stats_cpu(cpu) == self.model.stats_cpu(cpu)
        assert self.tap.outside() == self.outside


def make_pair(*, slots, ways, policy, cpus, start, size, shift, ticks):
    """Over [start, start + size); each slot of the buffer begins at one of `ticks`, in turn."""
    target = Target(start, start + size, shift)
    buffer = [ticks[at % len(ticks)] for at in range(target.length)]
    shape = {"slots": slots, "ways": ways, "policy": policy, "cpus": cpus, "buffer": buffer}
    tables = Tables(**shape)
    return Pair(tables, Model(**shape), Tap(tables, 0, target), target)


def addresses(kind, target, count, seed):
    """A stream: spread, skewed to its first addresses, in order, in one group, or all over."""
    rng = random.Random(seed)
    size = target.end - target.start
    for at in range(count):
        if kind == "uniform":
            inside = rng.randrange(size)
        elif kind == "zipf":
            inside = min(int(rng.paretovariate(0.9)) - 1, size - 1) * 2654435761 % size
        elif kind == "walk":
            inside = (seed + at << target.shift) % size
        elif kind == "stride":
            inside = (rng.randrange(40) * 64 + seed % 3 << target.shift) % size
        else:
            inside = rng.randrange(-size, 2 * size)
        yield max(0, target.start + inside)


@st.composite
def shapes(draw):
    """Shapes of tables and targets; small, so that there is little room."""
    slots = draw(st.integers(0, 7))
    shift = draw(st.integers(0, 8))
    return {
        "slots": 1 << slots,
        "ways": 1 << draw(st.integers(0, slots)),
        "policy": draw(st.sampled_from(POLICIES)),
        "cpus": draw(st.integers(1, 3)),
        "start": draw(st.sampled_from([0, 0x1000, 0xFFFFFFFF81000000])) + draw(st.integers(0, 9)),
        "size": draw(st.integers(1, 900 << shift)),
        "shift": shift,
        "ticks": draw(st.lists(st.sampled_from([0, 0, 1, WORD - 1, WORD - 40]), min_size=1)),
    }


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["uniform", "zipf", "walk", "stride", "beside"]),
        st.integers(0, 3),  # the CPU; one that there is not, too
        st.integers(0, 400),
        st.integers(0, 1 << 20),
        st.sampled_from(["flip", "offline", "read", "reset", "", ""]),
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=200)
@given(shapes(), STEPS)
def test_the_tables_are_as_their_header_says(shape, steps):
    """Hits, updates, flushes, flips, evictions, longest probe, and the buffer word by word."""
    pair = make_pair(**shape)
    for kind, cpu, count, seed, then in steps:
        pair.hit_all(cpu, list(addresses(kind, pair.target, count, seed)))
        pair.check()
        if then:
            pair.act(then, cpu)
            pair.check()
    pair.act("read", 0)
    pair.check()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("slots", "ways"), [(512, 512), (512, 8), (64, 32), (8, 8), (16, 2)])
def test_a_long_skewed_stream_is_counted_as_the_model_counts(policy, slots, ways):
    """Each policy at its work: tables that are full many times."""
    shape = {"slots": slots, "ways": ways, "policy": policy, "cpus": 2, "ticks": [0]}
    pair = make_pair(**shape, start=0xFFFFFFFF81000000, size=1 << 16, shift=2)
    for turn in range(6):
        for kind in ("zipf", "uniform"):
            for pc in addresses(kind, pair.target, 1000, turn):
                pair.hit(turn % 2, pc)
        pair.act(("offline", "flip", "read")[turn % 3], turn % 2)
        pair.check()
    stats = pair.model.stats()
    assert stats["hits"] == sum(pair.model.buffer) == 12_000
    assert (stats["flushes"] > 0) == (policy == "flush")
    assert (stats["evictions"] > 0) == (policy == "evict")
    assert stats["probe_max"] == ways

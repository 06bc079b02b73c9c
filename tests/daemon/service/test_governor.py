"""The governor's control in simulated time, against loads of fixed and of sampled cost."""

from __future__ import annotations

import itertools
import random

from opd.service.governor import HOLD_SECONDS, Governor

TICK = 4.0
BUDGET = 0.01


class Machine:
    """A load in CPU seconds a second: ``fixed`` and, at the full rate, ``sampled``."""

    def __init__(self, governor, *, lump=0.0):
        self.governor = governor
        self.now = 1000.0
        self.cpu = 5.0
        self.lump = lump
        self.waiting = 0.0
        self.changes = []

    def run(self, seconds, *, fixed=0.0, sampled=0.0):
        """Let time pass; gives the shares after each tick."""
        shares = []
        for _ in range(round(seconds / TICK)):
            used = TICK * (fixed + sampled * self.governor.share)
            self.now += TICK
            if self.lump:  # half of the work comes once a lump
                self.waiting += used / 2
                used /= 2
                if self.now % self.lump < TICK:
                    used, self.waiting = used + self.waiting, 0.0
            self.cpu += used
            share = self.governor.observe(self.now, self.cpu)
            if share is not None:
                assert share == self.governor.share
                self.changes.append((self.now, share))
            shares.append(self.governor.share)
        return shares


def test_a_load_within_the_budget_is_left_alone():
    """Nothing changes for an hour at nine tenths of the budget, in lumps."""
    machine = Machine(Governor(BUDGET, 0.1), lump=10.0)
    machine.run(3600, fixed=0.001, sampled=0.008)
    assert machine.changes == []
    assert machine.governor.lowered_seconds == 0


def test_what_the_start_costs_is_given():
    """Half a second of CPU in the first seconds lowers nothing."""
    machine = Machine(Governor(BUDGET, 0.1))
    machine.run(8, sampled=0.08)
    machine.run(600, sampled=0.002)
    assert machine.changes == []


def test_a_short_burst_is_let_through():
    """A few seconds at ten times the budget lower nothing once they are over."""
    machine = Machine(Governor(BUDGET, 0.1))
    machine.run(3600, sampled=0.001)
    for _ in range(5):
        machine.run(4, sampled=0.06)
        machine.run(60, sampled=0.001)
    assert machine.changes == []


def test_an_overload_is_brought_under_the_budget_within_a_minute():
    """Five times the budget: lowered quickly, then held without flapping."""
    machine = Machine(Governor(BUDGET, 0.05), lump=10.0)
    machine.run(600, sampled=0.002)
    machine.run(60, sampled=0.05)
    before = machine.cpu
    assert machine.governor.share < 0.25
    machine.run(1200, sampled=0.05)
    assert (machine.cpu - before) / 1200 <= BUDGET
    assert len(machine.changes) <= 4
    assert machine.governor.over_seconds == 0


def test_a_heavier_overload_is_lowered_further():
    """A step is bounded; the next one follows after a window."""
    machine = Machine(Governor(BUDGET, 0.001))
    machine.run(120, sampled=1.0)
    before = machine.cpu
    machine.run(300, sampled=1.0)
    assert (machine.cpu - before) / 300 <= BUDGET


def test_the_rate_comes_back_in_steps_after_the_load():
    """Each step waits, the last one is the rate asked for, and it stays."""
    machine = Machine(Governor(BUDGET, 0.05))
    machine.run(120, sampled=0.1)
    low = machine.governor.share
    assert low < 0.2
    down = len(machine.changes)
    machine.run(600, sampled=0.002)
    ups = machine.changes[down:]
    assert ups[-1][1] == 1.0
    assert all(b[1] <= a[1] * 1.51 for a, b in itertools.pairwise(ups))
    assert all(b[0] - a[0] >= HOLD_SECONDS for a, b in itertools.pairwise(ups))
    assert machine.run(3600, sampled=0.002) == [1.0] * 900


def test_what_does_not_depend_on_the_rate_is_not_fought_with_it():
    """A fixed load over the budget costs one step, and the time over it is counted."""
    machine = Machine(Governor(BUDGET, 0.001))
    machine.run(600, fixed=0.03, sampled=0.001)
    assert [share for _, share in machine.changes] == [machine.governor.share]
    assert machine.governor.share >= 0.2
    assert machine.governor.over_seconds > 400
    machine.run(1200, fixed=0.001, sampled=0.001)
    assert machine.governor.share == 1.0


def test_a_load_of_both_kinds_goes_as_far_down_as_it_helps():
    """The rate is lowered until what is left is not due to it."""
    machine = Machine(Governor(BUDGET, 0.001))
    machine.run(590, fixed=0.02, sampled=0.5)
    assert 0.001 < machine.governor.share < 0.05
    assert machine.governor.usage < 0.045


def test_the_floor_is_never_passed():
    """However heavy the load, the least share stays, and the time over the budget is counted."""
    machine = Machine(Governor(BUDGET, 0.1))
    machine.run(600, sampled=10.0)
    assert machine.governor.share == 0.1
    assert machine.governor.over_seconds > 300


def test_a_load_at_the_edge_does_not_flap():
    """A load that fits only just at a lower rate changes it ever more rarely."""
    noise = random.Random(7)
    machine = Machine(Governor(BUDGET, 0.05))
    for _ in range(6 * 60):
        machine.run(60, fixed=0.002 * noise.random(), sampled=0.012 + 0.01 * noise.random())
    early = sum(at < 1000 + 3600 for at, _ in machine.changes)
    late = sum(at > 1000 + 5 * 3600 for at, _ in machine.changes)
    assert late <= max(early, 10)
    assert len(machine.changes) <= 20


def test_time_that_nobody_watched_is_not_load():
    """After a pause the CPU time of between is not judged."""
    governor = Governor(BUDGET, 0.1)
    machine = Machine(governor)
    machine.run(600, sampled=0.002)
    machine.cpu += 100
    governor.forget()
    machine.run(60, sampled=0.002)
    assert machine.changes == []


def test_a_clock_that_stands_still_changes_nothing():
    """Two observations at one time, and one with less CPU than before, are no load."""
    governor = Governor(BUDGET, 0.1)
    for now, cpu in ((10.0, 1.0), (10.0, 50.0), (14.0, 0.5)):
        assert governor.observe(now, cpu) is None
    assert governor.usage == 0.0

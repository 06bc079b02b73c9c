"""Schedules of the daemon: when their turns come, and what a reload keeps."""

import threading
import time
from types import SimpleNamespace

import pytest

from opd.config.settings import ProbeSettings
from opd.errors import OperationFailedError, UsageError
from opd.probes import machine, running
from opd.probes.schedule import SCHEDULES_MOST, Schedule
from opd.service import probing
from opd.service.probing import Probing


class Log:
    """Keeps what is logged."""

    def __init__(self):
        self.lines = []

    def info(self, event, **values):
        """Keep it."""
        self.lines.append((event, values))

    error = warning = info


@pytest.fixture
def begun(monkeypatch):
    """Give what was begun; nothing is measured."""
    found = []

    def begin(_self, words, origin, _planned, *, wait, asker):
        assert (origin, wait) == ("schedule", True)
        found.append(words)
        job = probing._Job(len(found), words, origin, asker)
        job.ended.set()
        return job

    monkeypatch.setattr(running, "plan", lambda *_, **__: object())
    monkeypatch.setattr(Probing, "_begin", begin)
    monkeypatch.setattr(probing, "_IDLE_SECONDS", 0.001)
    monkeypatch.setattr(probing, "_AGAIN_SECONDS", 0.01)
    return found


@pytest.fixture
def schedules(begun):
    """Give a Probing of a daemon that only logs."""
    assert begun == []
    made = Probing(SimpleNamespace(log=Log(), loop=None, state_lock=threading.Lock()))
    yield made
    made.close()
    if made._clock is not None:
        made._clock.join(10)
        assert not made._clock.is_alive()


@pytest.fixture
def load(monkeypatch):
    """Give a switch for what others use: CPUs."""
    others = {"cpus": 0.0, "looks": 0}

    def moment():
        others["looks"] += 1
        at = time.monotonic()
        return machine.Moment(at, 5.0 + at * others["cpus"], 0.0, 1.0, {})

    monkeypatch.setattr(machine, "moment", moment)
    return others


def wait_for(condition):
    """Wait until it holds."""
    until = time.monotonic() + 20
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.005)
    return found


def test_when_idle_waits_for_the_others_to_rest(schedules, begun, load):
    """It looks again and again, and runs as soon as they do."""
    load["cpus"] = 64.0
    schedules.start(ProbeSettings(schedule=("calibrate:every=1h,when=idle",)))
    wait_for(lambda: load["looks"] >= 6)
    assert begun == []
    load["cpus"] = 0.0
    wait_for(lambda: begun == ["calibrate:every=1h,when=idle"])
    (turn,) = wait_for(lambda: [one for one in schedules._turns.values() if one.runs])
    assert (turn.runs, turn.skipped) == (1, 0)
    assert turn.due > time.monotonic() + 3000


def test_a_turn_that_never_finds_rest_is_skipped(schedules, begun, load):
    """Its time is over when the next one comes: counted, logged, not made up for."""
    load["cpus"] = 64.0
    schedules.start(ProbeSettings(schedule=("calibrate:every=1h,when=idle",)))
    wait_for(lambda: load["looks"] >= 2)
    (turn,) = schedules._turns.values()
    turn.until = time.monotonic()
    wait_for(lambda: turn.skipped == 1)
    assert begun == []
    assert turn.due > time.monotonic() + 3000
    assert schedules._daemon.log.lines[-1][0] == "probe.skipped"


def test_jitter_puts_a_turn_off(schedules, begun):
    """By no more than was asked for."""
    schedules.start(ProbeSettings(schedule=("calibrate:every=1h,jitter=30m",)))
    (turn,) = schedules._turns.values()
    assert turn.due <= time.monotonic() + 1800
    assert begun == [] or turn.runs


def test_what_cannot_be_planned_is_counted_and_told(schedules, begun, monkeypatch):
    """The next turn comes all the same."""

    def refuse(*_, **__):
        raise UsageError("no option wat")

    monkeypatch.setattr(running, "plan", refuse)
    schedules.start(ProbeSettings(schedule=("calibrate:wat=1,every=1h",)))
    (turn,) = wait_for(lambda: [one for one in schedules._turns.values() if one.skipped])
    assert "no option wat" in turn.last_error
    assert begun == []


def test_a_reload_begins_what_is_new_and_ends_what_is_gone(schedules, begun):
    """The others keep their turn; one that ran at the start does not run again."""
    first = ("calibrate", "calibrate:work=1,every=1h", "calibrate:work=2,every=1h")
    schedules.start(ProbeSettings(schedule=first))
    wait_for(lambda: len(begun) == 3)
    wait_for(lambda: len(schedules._turns) == 2)
    schedules.start(
        ProbeSettings(schedule=(first[0], first[2], "calibrate:work=3,every=1h", first[2]))
    )
    wait_for(lambda: len(begun) == 5)
    assert sorted(begun[3:]) == [first[2], "calibrate:work=3,every=1h"]
    left = sorted(turn.schedule.text for turn in schedules._turns.values())
    assert left == [first[2], first[2], "calibrate:work=3,every=1h"]
    schedules.start(ProbeSettings())
    assert schedules._turns == {}
    schedules.start(ProbeSettings(schedule=first[:1]))
    wait_for(lambda: len(begun) == 6)


def test_schedules_are_bounded(schedules, begun):
    """One more than there may be is refused, and says how to end one."""
    far = Schedule(probe="calibrate", options="", every=9000.0, jitter=9000.0)
    for _ in range(SCHEDULES_MOST):
        schedules._schedule(far)
    with pytest.raises(OperationFailedError, match="at most 64") as refused:
        schedules._schedule(far)
    assert "cancel" in refused.value.hint
    assert len(begun) <= SCHEDULES_MOST

"""The duty that starts the child which writes segments."""

from __future__ import annotations

import sys
import time

import pytest

from opd.service import segments
from opd.service.log import get_logger
from opd.service.segments import GRACE_S, HOUR_S, SegmentDuty
from opd.store.schema import FILE_NAME

NOON = 12 * HOUR_S


class Clock:
    """A wall clock that is set."""

    def __init__(self):
        self.now = NOON + GRACE_S + 1

    def __call__(self):
        """Seconds since 1970."""
        return self.now


def child(monkeypatch, script):
    """Let the duty run this instead; a list that grows by one a start."""
    started = []
    real = segments.subprocess.Popen

    def popen(_command, **options):
        started.append(1)
        return real([sys.executable, "-c", script], **options)

    monkeypatch.setattr(segments.subprocess, "Popen", popen)
    return started


def run_until(duty, done, seconds=20):
    """Turn the duty until then."""
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        duty.run()
        time.sleep(0.01)
    assert done()


@pytest.fixture
def clock():
    """Shortly after noon."""
    return Clock()


def make(tmp_path, clock, **more):
    """A duty that may start at once, of a store that was there before."""
    (tmp_path / FILE_NAME).touch()
    settings = {"enabled": True, "first_s": 0.0, "clock": clock, **more}
    return SegmentDuty(tmp_path, get_logger(), **settings)


SAID = """
print('{"segment": "a", "bytes": 7, "rewritten": true}')
print('{"cpu_seconds": 0.5}')
"""


def test_a_new_store_has_nothing_to_catch_up_with(tmp_path, clock, monkeypatch):
    """The first child is started when its first hour is over."""
    started = child(monkeypatch, SAID)
    duty = SegmentDuty(tmp_path, get_logger(), enabled=True, first_s=0.0, clock=clock)
    duty.run()
    assert not started
    clock.now += HOUR_S
    run_until(duty, lambda: duty.stats()["written"] == 1)


def test_it_writes_once_after_a_start_and_once_an_hour(tmp_path, clock, monkeypatch):
    """And counts what the child says."""
    started = child(monkeypatch, SAID)
    duty = make(tmp_path, clock)
    run_until(duty, lambda: duty.stats()["written"] == 1)
    for _ in range(5):
        duty.run()
    assert len(started) == 1
    clock.now += HOUR_S - 2
    duty.run()
    assert len(started) == 1
    clock.now += 2
    run_until(duty, lambda: duty.stats()["written"] == 2)
    assert len(started) == 2
    stats = duty.stats()
    assert (stats["rewritten"], stats["bytes"], stats["cpu_seconds"]) == (2, 14, 1.0)
    assert (stats["failed"], stats["problem"]) == (0, "")


def test_not_at_once_after_a_start(tmp_path, clock, monkeypatch):
    """Catching up waits until the start is over."""
    started = child(monkeypatch, SAID)
    duty = make(tmp_path, clock, first_s=3600.0)
    duty.run()
    assert started == []


def test_a_setting_turns_it_off(tmp_path, clock, monkeypatch):
    """No child is started."""
    started = child(monkeypatch, SAID)
    duty = make(tmp_path, clock, enabled=False)
    duty.run()
    assert started == []


def test_a_child_that_overruns_is_killed_and_counted(tmp_path, clock, monkeypatch):
    """And does not keep the next hour's from starting."""
    started = child(monkeypatch, "import time; time.sleep(60)")
    duty = make(tmp_path, clock, time_limit_s=0.2)
    run_until(duty, lambda: duty.stats()["killed"] == 1)
    assert "killed after 0.2 s" in duty.stats()["problem"]
    clock.now += HOUR_S
    run_until(duty, lambda: len(started) == 2)
    duty.stop()


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ('print(\'{"error": "the disk is full"}\'); raise SystemExit(1)', "the disk is full"),
        ("raise ZeroDivisionError", "ZeroDivisionError"),
        ("raise SystemExit(3)", "status 3"),
    ],
)
def test_a_child_that_fails_is_counted_with_its_reason(
    tmp_path, clock, monkeypatch, script, problem
):
    """Whatever it said last."""
    child(monkeypatch, script)
    duty = make(tmp_path, clock)
    run_until(duty, lambda: duty.stats()["failed"] == 1)
    assert problem in duty.stats()["problem"]


def test_stopping_ends_the_child(tmp_path, clock, monkeypatch):
    """At once, and that is no failure."""
    child(monkeypatch, "import time; time.sleep(60)")
    duty = make(tmp_path, clock)
    duty.run()
    began = time.monotonic()
    duty.stop()
    assert time.monotonic() - began < 30
    assert duty.stats()["failed"] == 0

"""The window loop: what asking for windows early does to the others."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from opd.errors import OperationFailedError
from opd.service.log import get_logger
from opd.service.stopwatch import Stopwatch
from opd.service.windows import WindowLoop


class Sampling:
    """Gives windows with a number and an end."""

    def __init__(self):
        self.cuts = []
        self.answers = True

    def cut(self, *, flush=False):
        """The next window."""
        if not self.answers:
            return None
        self.cuts.append(flush)
        return SimpleNamespace(
            sequence=len(self.cuts) - 1, end_ns=time.time_ns(), rows=0, quality={"samples": 0}
        )

    finish = cut

    def take_images(self):
        """None."""
        return []

    take_cgroups = take_images

    def has_news(self):
        """No image or cgroup since the last look."""
        return False

    def follow_processes(self):
        """None to follow."""


class Link:
    """Keeps what is sent."""

    def __init__(self):
        self.windows = []
        self.arrived = threading.Event()

    def send_window(self, window):
        """Keep it."""
        self.windows.append(window)
        self.arrived.set()


class NoFeatures:
    """A daemon without extended features."""

    def saw_images(self, _images):
        """Nobody wants them."""

    def window(self, _window):
        """Add nothing."""
        return []


@pytest.fixture
def parts():
    """A loop that cuts once an hour, and what it works on."""
    sampling, link = Sampling(), Link()
    loop = WindowLoop(
        sampling,
        link,
        NoFeatures(),
        interval_s=3600,
        cpus_asked="",
        log=get_logger(),
        stopwatch=Stopwatch(),
    )
    return loop, sampling, link


def test_an_early_window_is_followed_by_a_whole_one(parts):
    """The interval begins anew, so that no sliver is stored."""
    loop, sampling, link = parts
    loop._next_window = time.monotonic() + 0.001
    before = time.time_ns()
    assert loop.cut_now() == 0
    assert loop._next_window >= time.monotonic() + 3600 - 60
    assert sampling.cuts == [True]
    assert [window.sequence for window in link.windows] == [0]
    assert before <= loop.last_end_ns <= time.time_ns()
    assert 0 <= loop.since_cut_s() < 60


def test_windows_are_cut_on_time(parts):
    """Without anybody asking."""
    loop, _sampling, link = parts
    loop.interval_s = 0.01
    loop.start()
    assert link.arrived.wait(60)
    loop.stop()
    assert [window.sequence for window in link.windows] == list(range(len(link.windows)))


def test_a_drain_thread_that_does_not_answer_is_told(parts):
    """Nothing is handed over, and the time of the last window stays."""
    loop, sampling, link = parts
    sampling.answers = False
    with pytest.raises(OperationFailedError, match="does not answer"):
        loop.cut_now()
    assert link.windows == []
    assert loop.last_end_ns == 0

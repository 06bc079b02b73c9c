"""Signals arrive as words in the main loop."""

import os
import select
import signal
import subprocess
import sys

import pytest

from opd.service.signals import HANDLED, Signals


@pytest.mark.parametrize("number", HANDLED)
def test_each_signal_is_a_word(number):
    """The process goes on, and the loop reads the name."""
    with Signals() as signals:
        os.kill(os.getpid(), number)
        assert signals.wait(10) == [number.name]
        assert signals.read() == []


def test_order_is_kept_and_a_poller_wakes():
    """The fileno is what a poller waits on."""
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        poller = select.poll()
        poller.register(signals, select.POLLIN)
        assert poller.poll(10_000)
        assert signals.read() == ["SIGHUP", "SIGUSR1", "SIGTERM"]


def test_a_flood_does_not_block():
    """More signals than the pipe holds: some are merged, none blocks."""
    with Signals() as signals:
        for _ in range(70_000):
            signal.raise_signal(signal.SIGUSR1)
        words = signals.read()
        assert set(words) == {"SIGUSR1"}


def test_other_signals_are_not_told():
    """A child's end, handled by others, is no word here."""
    former = signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        with Signals() as signals:
            signal.raise_signal(signal.SIGCHLD)
            assert signals.wait(10) == []
    finally:
        signal.signal(signal.SIGCHLD, former)


def test_waiting_ends_without_a_signal():
    """A timeout gives nothing."""
    with Signals() as signals:
        assert signals.wait(0) == []


def test_former_handlers_come_back():
    """After the block the process behaves as before, and the descriptors are closed."""
    before = [signal.getsignal(number) for number in HANDLED]
    with Signals() as signals:
        fd = signals.fileno()
    assert [signal.getsignal(number) for number in HANDLED] == before
    with pytest.raises(OSError):
        os.fstat(fd)


def test_a_child_starts_with_the_default_handlers():
    """An exec'd child dies of SIGTERM, and inherits no descriptor of ours."""
    with Signals():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        child.terminate()
        assert child.wait(30) == -signal.SIGTERM

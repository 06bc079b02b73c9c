"""Foreign code on a thread: what it returns, and what becomes of what does not end."""

from __future__ import annotations

import contextlib
import resource
import sys
import threading
import time

import pytest

from opd.features.thread import (
    AddressSpace,
    Budget,
    BusyError,
    HookThread,
    LeftError,
    OverranError,
    StuckError,
)

ENOUGH = Budget(30.0, 1 << 30)
SHORT = Budget(0.1, 1 << 30)
SMALL = Budget(30.0, 32 << 20)


@pytest.fixture
def thread():
    """A thread of its own."""
    thread = HookThread("opd-feature-test")
    yield thread
    thread.close()


def forever():
    """Never end."""
    while True:
        pass


def test_results_and_errors_come_back(thread):
    """As if it were called here, on a thread with the given name."""
    assert thread.call(lambda: 5, ENOUGH) == 5
    assert thread.call(lambda: threading.current_thread().name, ENOUGH) == "opd-feature-test"
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 // 0, ENOUGH)


def test_what_ends_a_program_does_not_end_ours(thread):
    """SystemExit and KeyboardInterrupt are told apart and stay there."""
    for leave in (sys.exit, lambda: (_ for _ in ()).throw(KeyboardInterrupt)):
        with pytest.raises(LeftError):
            thread.call(leave, ENOUGH)
    assert thread.call(lambda: 6, ENOUGH) == 6


def test_code_that_takes_too_long_is_interrupted(thread):
    """The place is told, and the thread is good for the next call."""
    with pytest.raises(OverranError, match=r"took longer than 0.1 s \(in .*test_thread"):
        thread.call(forever, SHORT)
    assert thread.call(lambda: 7, ENOUGH) == 7


def test_code_that_catches_everything_is_interrupted(thread):
    """It is asked again while it goes on."""

    def stubborn():
        for _ in range(3):
            with contextlib.suppress(BaseException):
                forever()

    with pytest.raises(OverranError):
        thread.call(stubborn, SHORT)
    assert thread.call(lambda: 8, ENOUGH) == 8


def test_code_that_cannot_be_interrupted_costs_the_thread_until_it_returns(thread):
    """A call into C is left alone, and refused to the next until it ends."""
    released = threading.Event()
    with pytest.raises(StuckError, match="cannot be interrupted"):
        thread.call(lambda: released.wait(20), SHORT)
    assert thread.is_stuck
    with pytest.raises(StuckError, match="still in the call"):
        thread.call(lambda: 9, ENOUGH)
    released.set()
    while thread.is_stuck:
        time.sleep(0.01)
    assert thread.call(lambda: 10, ENOUGH) == 10


@pytest.mark.parametrize("piece", [1 << 20, 64])
def test_code_that_allocates_without_end_is_interrupted(thread, piece):
    """In large pieces and in small ones; what it held is free again."""

    def hoard():
        kept = []
        while True:
            kept.append(bytearray(piece))

    with pytest.raises(OverranError, match="MiB, more than 32"):
        thread.call(hoard, SMALL)
    assert thread.call(lambda: 11, ENOUGH) == 11


def test_one_giant_allocation_fails_where_it_is_made(thread):
    """The address space is limited while foreign code runs, and free again after."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(MemoryError):
        thread.call(lambda: bytearray(1 << 45), ENOUGH)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_the_limit_of_several_ends_with_the_last():
    """Features may run at the same time."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with AddressSpace():
        with AddressSpace():
            inner = resource.getrlimit(resource.RLIMIT_AS)
        assert resource.getrlimit(resource.RLIMIT_AS) == inner
    assert inner != before
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_callers_take_turns(thread):
    """One that waited long enough is told that it is busy."""
    begun, released = threading.Event(), threading.Event()

    def hold():
        begun.set()
        return released.wait(20)

    other = threading.Thread(target=lambda: thread.call(hold, ENOUGH))
    other.start()
    begun.wait(20)
    with pytest.raises(BusyError):
        thread.call(lambda: 12, SHORT)
    released.set()
    other.join()
    assert thread.call(lambda: 13, ENOUGH) == 13


def when_free(thread, work):
    """Its result, from a thread that a busy machine has not let out of the last call yet."""
    until = time.monotonic() + 30
    while True:
        try:
            return thread.call(work, ENOUGH)
        except StuckError:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_an_interrupt_never_reaches_the_next_call(thread):
    """However late it comes: a race is tried many times."""
    for at in range(60):
        until = 0.002 + at * 0.0001

        def spin(until=until):
            end = time.monotonic() + until
            while time.monotonic() < end:
                pass
            return "ended"

        with contextlib.suppress(OverranError):
            assert thread.call(spin, Budget(0.005, 1 << 30)) == "ended"
        assert when_free(thread, lambda: 14) == 14

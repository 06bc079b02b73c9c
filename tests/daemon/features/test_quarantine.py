"""How long a feature is left alone after its failures."""

from __future__ import annotations

import pytest

from opd.errors import ConfigError
from opd.features.checks import NonsenseError
from opd.features.quarantine import LONGEST_S, HookError, Quarantine, described


class Clock:
    """A clock that stands."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        """Give the time."""
        return self.now


def test_it_lasts_twice_as_long_each_time_up_to_a_limit():
    """10 s, 20 s, ... 600 s."""
    clock = Clock()
    quarantine = Quarantine(clock)
    assert quarantine.left_s() == 0
    spans = []
    for _ in range(10):
        spans.append(quarantine.failed("sync", "why"))
        clock.now += quarantine.left_s()
    assert spans[:3] == [10, 20, 40]
    assert spans[-1] == LONGEST_S
    assert quarantine.left_s() == 0
    assert (quarantine.failures, quarantine.last_hook, quarantine.last_error) == (10, "sync", "why")


def test_a_hook_that_goes_well_is_forgiven_and_others_are_not():
    """A plugin whose stats work still has a sync that hangs."""
    clock = Clock()
    quarantine = Quarantine(clock)
    quarantine.failed("sync", "")
    quarantine.went_well("print_stats")
    assert quarantine.failed("sync", "") == 20
    quarantine.went_well("sync")
    assert quarantine.failed("sync", "") == 10


def test_a_short_quarantine_does_not_end_a_long_one():
    """Two hooks may fail in a row."""
    clock = Clock()
    quarantine = Quarantine(clock)
    for _ in range(4):
        quarantine.failed("sync", "")
    quarantine.failed("create", "")
    assert quarantine.left_s() == 80


class EvilError(Exception):
    """One whose words cannot be had."""

    def __str__(self):
        raise RuntimeError("no words")


def boom(error):
    """Raise it."""
    raise error


def test_what_was_raised_is_put_into_words():
    """With kind, text on one line, and place."""
    with pytest.raises(HookError, match=r"^ValueError: a b \(in .*test_quarantine.py:\d+\)$"):
        described(lambda: boom(ValueError("a\n b")))
    with pytest.raises(HookError, match=r"^KeyError \(in|^KeyError: "):
        described(lambda: boom(KeyError()))


def test_our_own_errors_pass():
    """They are words already."""
    for error in (ConfigError("x"), NonsenseError("y")):
        with pytest.raises(type(error)):
            described(lambda error=error: boom(error))


def test_an_error_without_words_is_an_error_still():
    """Its kind and place are told."""
    with pytest.raises(HookError, match=r"^EvilError: its words cannot be had \(in"):
        described(lambda: boom(EvilError()))

import pytest

from opd.errors import ConfigError
from opd.probes.schedule import parse_schedule, parse_schedules, parse_span


def test_a_schedule_is_taken_out_of_the_options():
    """What is left is the probe's."""
    found = parse_schedule("calibrate:what=loop+clock,every=1h,when=idle,work=7,jitter=5m")
    assert (found.probe, found.options) == ("calibrate", "what=loop+clock,work=7")
    assert (found.every, found.when, found.jitter) == (3600.0, "idle", 300.0)


def test_without_every_it_is_once():
    """At the start."""
    assert parse_schedule("calibrate").every == 0.0
    assert parse_schedule("calibrate:work=1").options == "work=1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected PROBE"),
        ("9x:every=1h", "expected PROBE"),
        ("calibrate:every=1", "from 10s"),
        ("calibrate:every=soon", "such as 1h"),
        ("calibrate:every=1h,when=never", "idle or always"),
        ("calibrate:every=1m,jitter=2m", "more than every"),
        ("calibrate:every", "KEY=VALUE"),
        ("calibrate:every=1h,every=2h", "given twice"),
    ],
)
def test_what_is_wrong_is_told_with_what_is_right(text, words):
    """One line, with the token."""
    with pytest.raises(ConfigError, match=words):
        parse_schedule(text)


def test_of_several_the_wrong_one_is_numbered():
    """Counted from 1; and there are at most so many."""
    with pytest.raises(ConfigError, match="schedule 2"):
        parse_schedules(("calibrate", "calibrate:every=x"))
    with pytest.raises(ConfigError, match="at most 64"):
        parse_schedules(("calibrate",) * 65)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("30s", 30), ("1.5h", 5400), ("2d", 172800)]
)
def test_spans(text, seconds):
    """Seconds unless said otherwise."""
    assert parse_span("every", text, 10.0) == seconds

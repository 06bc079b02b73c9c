"""Ranges divided as the clocks on the wall do."""

import datetime as dt
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opd.errors import UsageError
from opd.store.buckets import BUCKETS_LIMIT, divide, parse_span

NS = 1_000_000_000
ZONES = [
    ZoneInfo(name)
    for name in ("UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "America/St_Johns")
]


def ns(text, zone):
    """The moment of a local time."""
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()) * NS


def local(starts, zone):
    """Starts as local times."""
    return [dt.datetime.fromtimestamp(at // NS, zone).strftime("%H:%M%z") for at in starts]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("minute", 60), ("hour", 3600), ("10s", 10), ("5m", 300), ("2h", 7200), (" Day ", 86400)],
)
def test_spans_are_words_or_numbers(text, seconds):
    """A word, or a number with a unit."""
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "m", "1x", "-5m", "53w", "1.5h", "9999999s", "hourly"])
def test_what_is_no_span_is_refused(text):
    """Nothing, nought, unknown units and more than a year."""
    with pytest.raises(UsageError, match="not a span"):
        parse_span(text)


def test_hours_begin_where_the_clock_shows_them():
    """In a zone that is half an hour off, hours of that zone."""
    zone = ZoneInfo("Asia/Kolkata")
    starts = divide(ns("2026-01-31T10:40", zone), ns("2026-01-31T13:00", zone), 3600, zone)
    assert local(starts, zone) == ["10:00+0530", "11:00+0530", "12:00+0530"]


def test_summer_time_skips_and_repeats_an_hour():
    """In spring 02:00 is not there, in autumn it is there twice, each with its offset."""
    zone = ZoneInfo("Europe/Berlin")
    starts = divide(ns("2026-03-29T01:30", zone), ns("2026-03-29T04:30", zone), 3600, zone)
    assert local(starts, zone) == ["01:00+0100", "03:00+0200", "04:00+0200"]
    starts = divide(ns("2026-10-25T01:30", zone), ns("2026-10-25T04:00", zone), 3600, zone)
    assert local(starts, zone) == ["01:00+0200", "02:00+0200", "02:00+0100", "03:00+0100"]


def test_days_are_of_23_and_25_hours():
    """A day ends at midnight, whatever the clock did in between."""
    zone = ZoneInfo("Europe/Berlin")
    for month, day, hours in ((3, 29, 23), (10, 25, 25), (6, 1, 24)):
        first = dt.datetime(2026, month, day, 12, tzinfo=zone)
        starts = divide(
            int(first.timestamp()) * NS, int((first.timestamp() + 86400) * NS), 86400, zone
        )
        assert {text[:5] for text in local(starts, zone)} == {"00:00"}
        assert (starts[1] - starts[0]) // NS == hours * 3600


def test_weeks_begin_on_mondays():
    """As in ISO 8601."""
    zone = ZoneInfo("Europe/Berlin")
    starts = divide(ns("2026-03-18T10:00", zone), ns("2026-04-09T10:00", zone), 7 * 86400, zone)
    assert [dt.datetime.fromtimestamp(at // NS, zone).isoweekday() for at in starts] == [1] * 4


def test_too_many_are_refused():
    """A second each of a year is a mistake."""
    with pytest.raises(UsageError, match=f"more than {BUCKETS_LIMIT}"):
        divide(0, 400 * 86400 * NS, 1)
    assert len(divide(0, (BUCKETS_LIMIT - 1) * NS, 1, ZoneInfo("UTC"))) == BUCKETS_LIMIT - 1


def test_a_bucket_that_a_change_of_half_an_hour_began_is_short():
    """Lord Howe goes from 02:00 back to 01:30: the bucket from there ends at 02:00."""
    zone = ZoneInfo("Australia/Lord_Howe")
    changed = int(dt.datetime(2029, 3, 31, 15, tzinfo=dt.UTC).timestamp())
    starts = divide(changed * NS, (changed + 3600) * NS, 3600, zone)
    assert [start // NS - changed for start in starts] == [0, 1800]


@settings(max_examples=200, deadline=None)
@given(
    zone=st.sampled_from(ZONES),
    since=st.integers(1_500_000_000, 1_900_000_000),
    length=st.integers(1, 3_000_000),
    span=st.sampled_from([60, 300, 420, 900, 3600, 7200, 6 * 3600, 86400, 7 * 86400]),
    shift=st.integers(0, NS - 1),
)
def test_buckets_divide_the_range(zone, since, length, span, shift):
    """Ascending, the first holds the start, the last the end; each begins on a multiple."""
    length = min(length, span * 2000)
    since_ns, until_ns = since * NS + shift, (since + length) * NS + shift
    starts = divide(since_ns, until_ns, span, zone)
    assert starts == sorted(set(starts))
    assert starts[0] <= since_ns < (starts + [until_ns + 1])[1]
    assert starts[-1] < until_ns
    # A change of the clock may make one of them shorter, or longer.
    change = 3600 if span > 3600 else 0
    for one, other in pairwise(starts):
        assert 0 < (other - one) // NS <= span + change
    usual = sum((other - one) // NS == span for one, other in pairwise(starts))
    assert usual >= len(starts) - 1 - 2 * (1 + length // 86400 // 150)
    if 86400 % span == 0:
        for at in starts[:: max(1, len(starts) // 50)]:
            moment = dt.datetime.fromtimestamp(at // NS, zone)
            seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
            before = dt.datetime.fromtimestamp(at // NS - 1, zone)
            changed = before.utcoffset() != moment.utcoffset()
            assert seconds % span == 0 or changed

"""The times that --since and --until take."""

import contextlib
import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opd.errors import UsageError
from opd.store.times import parse_time

BERLIN = ZoneInfo("Europe/Berlin")
SECOND = 1_000_000_000


def at(*parts, fold=0, zone=BERLIN):
    """A moment in ns."""
    return int(dt.datetime(*parts, tzinfo=zone, fold=fold).timestamp()) * SECOND


NOW = at(2026, 6, 15, 12, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("10m", NOW - 600 * SECOND),
        ("10m ago", NOW - 600 * SECOND),
        ("-10m", NOW - 600 * SECOND),
        ("  10M AGO ", NOW - 600 * SECOND),
        ("1h30m", NOW - 5400 * SECOND),
        ("1.5h", NOW - 5400 * SECOND),
        ("90s", NOW - 90 * SECOND),
        ("2d", NOW - 2 * 86400 * SECOND),
        ("1w", NOW - 7 * 86400 * SECOND),
        ("250ms", NOW - SECOND // 4),
        ("0s", NOW),
        ("03:12", at(2026, 6, 15, 3, 12)),
        ("3:12", at(2026, 6, 15, 3, 12)),
        ("12:00", NOW),
        ("12:01", at(2026, 6, 14, 12, 1)),
        ("23:59:58", at(2026, 6, 14, 23, 59, 58)),
        ("2026-06-01", at(2026, 6, 1)),
        ("20260601", at(2026, 6, 1)),
        ("2026-06-01T03:12", at(2026, 6, 1, 3, 12)),
        ("2026-06-01 03:12:30", at(2026, 6, 1, 3, 12, 30)),
        ("2026-06-01T03:12:30Z", at(2026, 6, 1, 3, 12, 30, zone=dt.UTC)),
        ("2026-06-01T03:12:30.25+02:00", at(2026, 6, 1, 3, 12, 30) + SECOND // 4),
        ("1700000000", 1_700_000_000 * SECOND),
        ("@1700000000", 1_700_000_000 * SECOND),
        ("1700000000.123456789", 1_700_000_000_123_456_789),
    ],
)
def test_valid_times(text, expected):
    """Each form means what the table says."""
    assert parse_time(text, now_ns=NOW, zone=BERLIN) == expected


@pytest.mark.parametrize(
    ("now", "text", "expected"),
    [
        # 02:30 did not happen on 29 March; clocks went from 02:00 to 03:00.
        (at(2026, 3, 29, 12), "02:30", at(2026, 3, 28, 2, 30)),
        (at(2026, 3, 29, 12), "03:30", at(2026, 3, 29, 3, 30)),
        # 02:30 happened twice on 25 October: the later one, when it is past.
        (at(2026, 10, 25, 12), "02:30", at(2026, 10, 25, 2, 30, fold=1)),
        (at(2026, 10, 25, 2, 40), "02:30", at(2026, 10, 25, 2, 30)),
        (at(2026, 10, 25, 2, 20, fold=1), "02:30", at(2026, 10, 25, 2, 30)),
        (at(2026, 1, 1, 0, 5), "23:55", at(2025, 12, 31, 23, 55)),
    ],
)
def test_time_of_day_across_clock_changes(now, text, expected):
    """The most recent past moment at which clocks here showed it."""
    assert parse_time(text, now_ns=now, zone=BERLIN) == expected


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "10", "10x", "m", "25:00", "03:60", "2026-13-01", "-", "10m10", "12345"],
)
def test_anything_else_lists_the_valid_forms(text):
    """The error says what would have been right."""
    with pytest.raises(UsageError, match=r"10m ago.*ISO 8601"):
        parse_time(text, now_ns=NOW, zone=BERLIN)


@given(st.text(max_size=20))
def test_no_text_breaks_the_parser(text):
    """Any text is a time or a usage error."""
    with contextlib.suppress(UsageError):
        assert abs(parse_time(text, now_ns=NOW)) < 1 << 62


@given(st.integers(0, 23), st.integers(0, 59), st.integers(0, 366 * 86400))
def test_a_time_of_day_is_past_and_recent(hour, minute, later):
    """It is never in the future and at most two days old, in the system's zone too."""
    now = NOW + later * SECOND
    for zone in (BERLIN, None):
        moment = parse_time(f"{hour:02}:{minute:02}", now_ns=now, zone=zone)
        assert 0 <= now - moment <= 2 * 86400 * SECOND
        shown = dt.datetime.fromtimestamp(moment // SECOND, zone)
        assert (shown.hour, shown.minute) == (hour, minute)


@pytest.mark.parametrize(
    "text",
    [
        "99999999999d",
        "9" * 4000 + "w",
        "20000w",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01",
        "2117-01-01",
        "999999999999",
    ],
)
def test_a_time_that_the_store_cannot_hold_is_refused(text):
    """Centuries away is a usage error that says so."""
    with pytest.raises(UsageError, match=r"too far away|not a time"):
        parse_time(text, now_ns=NOW, zone=BERLIN)


@pytest.mark.parametrize("text", ["2115-12-31", "1824-01-01", "10000w"])
def test_a_time_within_the_stores_range_fits_64_bits(text):
    """What is taken leaves room to calculate."""
    assert abs(parse_time(text, now_ns=NOW, zone=BERLIN)) < 1 << 62

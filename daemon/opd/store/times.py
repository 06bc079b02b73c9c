"""Reads the times that ``--since`` and ``--until`` take."""

from __future__ import annotations

import datetime as dt
import re
import time
from decimal import Decimal

from opd.errors import UsageError

VALID_FORMS = (
    "10m, 10m ago, -10m (s m h d w, also 1h30m), 03:12, 03:12:30, "
    "2026-01-31T03:12, ISO 8601, seconds since 1970, now"
)

_SECOND_NS = 1_000_000_000
_UNITS_NS = {
    "ms": 1_000_000,
    "s": _SECOND_NS,
    "m": 60 * _SECOND_NS,
    "h": 3600 * _SECOND_NS,
    "d": 86_400 * _SECOND_NS,
    "w": 7 * 86_400 * _SECOND_NS,
}
_AGO = re.compile(r"-?((?:\d+(?:\.\d+)?(?:ms|[smhdw]))+)(?:\s+ago)?")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
# Eight digits are a date in ISO's basic form.
_EPOCH = re.compile(r"@?(\d{9,12}(?:\.\d{1,9})?)")
_OLDEST_DAYS = 8
# The store's numbers have 64 bits; half their range leaves room to calculate.
_FAR_NS = 1 << 62


def parse_time(text: str, *, now_ns: int | None = None, zone: dt.tzinfo | None = None) -> int:
    """The moment ``text`` means, in ns since 1970.

    ``zone`` (default: the system's) places times that name none. A bare
    time of day is its most recent past occurrence; one that a clock change
    skipped is looked for on earlier days, of one that happened twice the
    later is meant. UsageError lists the valid forms, or says that the moment
    is too far away: before 1823 or after 2116.
    """
    moment = _moment(text, time.time_ns() if now_ns is None else now_ns, zone)
    if not -_FAR_NS < moment < _FAR_NS:
        raise UsageError(f"time too far away: {text[:100]!r}", hint="opd knows 1824 to 2115")
    return moment


def _moment(text: str, now: int, zone: dt.tzinfo | None) -> int:
    word = text.strip()
    if word.lower() == "now":
        return now
    if match := _AGO.fullmatch(word.lower()):
        span = sum(Decimal(n) * _UNITS_NS[unit] for n, unit in _PART.findall(match[1]))
        return now - int(span)
    if match := _EPOCH.fullmatch(word):
        return int(Decimal(match[1]) * _SECOND_NS)
    try:
        if match := _CLOCK.fullmatch(word):
            clock = dt.time(int(match[1]), int(match[2]), int(match[3] or 0))
            return _latest(clock, now, zone)
        # Seconds and the rest apart: a float does not hold ns since 1970.
        moment = dt.datetime.fromisoformat(word)
        if moment.tzinfo is None:
            moment = _place(moment, zone)
        return _to_ns(moment)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"not a time: {text[:100]!r}", hint=f"valid: {VALID_FORMS}") from error


def _latest(clock: dt.time, now: int, zone: dt.tzinfo | None) -> int:
    """The last moment up to ``now`` at which clocks here showed ``clock``."""
    today = dt.datetime.fromtimestamp(now // _SECOND_NS, zone).date()
    for back in range(-1, _OLDEST_DAYS):
        wall = dt.datetime.combine(today - dt.timedelta(days=back), clock)
        for fold in (1, 0):
            moment = _place(wall.replace(fold=fold), zone)
            at = _to_ns(moment)
            shown = dt.datetime.fromtimestamp(at // _SECOND_NS, zone).replace(tzinfo=None)
            if at <= now and shown.replace(fold=0) == wall:
                return at
    raise ValueError(clock)


def _place(wall: dt.datetime, zone: dt.tzinfo | None) -> dt.datetime:
    """The wall-clock time as a moment in ``zone``, or in the system's zone."""
    return wall.astimezone() if zone is None else wall.replace(tzinfo=zone)


def _to_ns(moment: dt.datetime) -> int:
    whole = moment.astimezone(dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (whole.days * 86_400 + whole.seconds) * _SECOND_NS + whole.microseconds * 1000

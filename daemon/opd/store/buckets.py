"""Divides a range of time as the clocks on the wall do: ``--per minute|hour|SPAN``.

Buckets begin where local time is a whole multiple of their length (counted
from midnight, weeks from Monday, where the length divides them). A change of
the clock's offset (summer time) begins a new bucket too, unless a bucket is
longer than an hour: then the one it happens in is longer or shorter.
"""

from __future__ import annotations

import datetime as dt
import re

from opd.errors import UsageError

BUCKETS_LIMIT = 20_000
_SECOND_NS = 1_000_000_000
_HOUR_S = 3600
_DAY_S = 24 * _HOUR_S
_UNITS_S = {"s": 1, "m": 60, "h": _HOUR_S, "d": _DAY_S, "w": 7 * _DAY_S}
_WORDS_S = {"second": 1, "minute": 60, "hour": _HOUR_S, "day": _DAY_S, "week": 7 * _DAY_S}
_SPAN = re.compile(r"([0-9]{1,6})([smhdw])")
_LONGEST_S = 52 * _UNITS_S["w"]
# 1970-01-05 was a Monday.
_MONDAY_S = 4 * _DAY_S


def parse_span(text: str) -> int:
    """The seconds that ``minute``, ``hour``, ``10s`` or ``5m`` mean. Raises UsageError."""
    word = text.strip().lower()
    found = _SPAN.fullmatch(word)
    seconds = int(found[1]) * _UNITS_S[found[2]] if found else _WORDS_S.get(word, 0)
    if not 0 < seconds <= _LONGEST_S:
        raise UsageError(
            f"not a span of time: {text[:100]!r}",
            hint="valid: second, minute, hour, day, week, or a number with s, m, h, d or w"
            " as in 10s and 5m, at most 52w",
        )
    return seconds


def divide(since_ns: int, until_ns: int, span_s: int, zone: dt.tzinfo | None = None) -> list[int]:
    """The starts of the buckets that hold [since_ns, until_ns), the first at or before it.

    ``zone``: the system's by default. Raises UsageError for more than BUCKETS_LIMIT.
    """
    until = -(-until_ns // _SECOND_NS)
    at = since_ns // _SECOND_NS
    if (until - at) // span_s > BUCKETS_LIMIT:
        raise UsageError(
            f"more than {BUCKETS_LIMIT} buckets: {(until - at) // span_s} spans of {span_s} s",
            hint="ask for longer ones, or for a shorter range",
        )
    starts = [_start_of(at, span_s, zone)]
    while (start := starts[-1]) < until:
        horizon = min(until, start + _DAY_S)
        offset = _offset(start, zone)
        if span_s < _DAY_S and offset == _offset(horizon, zone) and (start + offset) % span_s == 0:
            # No change of the clock ahead, and none that began this one: all are alike.
            starts += range(start + span_s, horizon + 1, span_s)
        if starts[-1] == start:
            starts.append(_end_of(start, span_s, zone))
    while len(starts) > 1 and starts[-1] >= until:
        starts.pop()
    return [start * _SECOND_NS for start in starts]


def _offset(at: int, zone: dt.tzinfo | None) -> int:
    """Local time less UTC, in seconds."""
    moment = dt.datetime.fromtimestamp(at, dt.UTC).astimezone(zone)
    offset = moment.utcoffset()
    return int(offset.total_seconds()) if offset is not None else 0


def _number(at: int, span: int, zone: dt.tzinfo | None) -> tuple[int, int]:
    """What tells the bucket of a moment from its neighbours."""
    offset = _offset(at, zone)
    first = _MONDAY_S if span % _UNITS_S["w"] == 0 else 0
    return (at + offset - first) // span, offset if span <= _HOUR_S else 0


def _start_of(at: int, span: int, zone: dt.tzinfo | None) -> int:
    """The first second of the bucket that ``at`` is in."""
    low = at - span - _DAY_S
    return _change(low, at, _number(at, span, zone), span, zone)


def _end_of(start: int, span: int, zone: dt.tzinfo | None) -> int:
    """The first second behind the bucket that begins at ``start``."""
    here = _number(start, span, zone)
    end = start + span
    # Most often no offset changes in between.
    if _number(end - 1, span, zone) == here != _number(end, span, zone):
        return end
    low, high = start, end + _DAY_S
    while high - low > 1:
        middle = (low + high) // 2
        if _number(middle, span, zone) == here:
            low = middle
        else:
            high = middle
    return high


def _change(low: int, high: int, here: tuple[int, int], span: int, zone: dt.tzinfo | None) -> int:
    """The first second of the stretch of ``here`` that ends with ``high``."""
    while high - low > 1:
        middle = (low + high) // 2
        if _number(middle, span, zone) == here:
            high = middle
        else:
            low = middle
    return high

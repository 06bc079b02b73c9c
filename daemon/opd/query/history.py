"""Sessions, marks and moments as a store tells them, for the daemon and without one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from opd.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from opd.store.queries import Reader

# "mark:TEXT" is the time of the latest mark that says so.
MARK_PREFIX = "mark:"
_SHOWN = 5


def sessions_answer(reader: Reader) -> dict[str, Any]:
    """Answer ``sessions``."""
    import msgspec  # start-up has a budget

    return {"sessions": msgspec.to_builtins(reader.sessions())}


def marks_answer(reader: Reader, params: dict[str, Any]) -> dict[str, Any]:
    """Answer ``marks``. Raises as range_of does."""
    import msgspec

    since, until = range_of(reader, params, time.time_ns())
    return {"marks": msgspec.to_builtins(reader.marks(since_ns=since, until_ns=until))}


def range_of(reader: Reader, params: dict[str, Any], now_ns: int) -> tuple[int | None, int | None]:
    """``since`` and ``until`` in ns, None where not given.

    Raises UsageError for what is no time and for an empty range,
    UnknownNameError for a mark that is not there.
    """
    since, until = (
        moment_of(reader, params[name], now_ns) if name in params else None
        for name in ("since", "until")
    )
    if since is not None and until is not None and since >= until:
        raise UsageError(f"--since {params['since']} is not before --until {params['until']}")
    return since, until


def moment_of(reader: Reader, text: str, now_ns: int) -> int:
    """A time as parse_time reads it, or ``mark:TEXT``: the latest mark that is, or has, TEXT."""
    from opd.store.times import parse_time

    if not text.startswith(MARK_PREFIX):
        return parse_time(text, now_ns=now_ns)
    wanted = text.removeprefix(MARK_PREFIX).strip().casefold()
    marks = reader.marks()[::-1]
    for fits in (str.__eq__, str.__contains__):
        for mark in marks:
            if wanted and fits(mark.text.casefold(), wanted):
                return mark.at_ns
    known = ", ".join(repr(mark.text[:60]) for mark in marks[:_SHOWN])
    raise UnknownNameError(
        f"no mark {wanted!r}", hint=f"the latest: {known}" if known else "there are no marks"
    )

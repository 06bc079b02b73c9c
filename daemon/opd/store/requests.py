"""What a daemon asks of its worker between two windows: ``mark``, ``save``, ``reset``, ``seen``.

Each is done in one transaction together with a note of its reply, so that a
request sent again after the worker was killed is not done again.
"""

from __future__ import annotations

import time
import unicodedata
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from opd.errors import OpdError, OperationFailedError, StoreError, UsageError
from opd.store.messages import Reply
from opd.store.schema import SWEPT

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

LIVE_SESSION = "live"
NAME_LIMIT = 100
MARK_LIMIT = 1000
# Marks kept; a script that marks every second must not fill the store.
MARKS_MOST = 10_000
_REPLIES = "replies"
_REPLIES_KEPT = 8

_ERRORS: dict[str, type[OpdError]] = {
    error.code: error for error in (UsageError, StoreError, OperationFailedError)
}


def check_session_name(name: str) -> str:
    """The name for a session of one's own. UsageError says what is wrong with it."""
    if not name.strip():
        raise UsageError("a session's name cannot be empty", hint="such as before-deploy-1.42")
    _check_text("a session's name", name, NAME_LIMIT)
    if name.strip() != name:
        raise UsageError(f"session name {name!r}: spaces around it")
    if name == LIVE_SESSION:
        raise UsageError(
            f"{LIVE_SESSION!r} is the name of the running session", hint="choose another name"
        )
    return name


def check_mark(text: str) -> str:
    """The text of a mark. UsageError says what is wrong with it."""
    if not text.strip():
        raise UsageError("a mark needs a text", hint='such as opctl mark "deploy 1.42"')
    _check_text("a mark's text", text, MARK_LIMIT)
    return text.strip()


def _check_text(what: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise UsageError(f"{what} has at most {limit} characters, this one {len(text)}")
    for at, char in enumerate(text):
        if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp"):
            raise UsageError(f"{what} cannot hold the control character {char!r} (at {at})")


def error_of(reply: Reply) -> OpdError:
    """The error that a reply carries."""
    kind = _ERRORS.get(reply.code, OperationFailedError)
    return kind(reply.message, hint=reply.hint)


def reply_with(request: str, error: OpdError) -> Reply:
    """The reply that carries an error."""
    return Reply(request, {}, error.code, error.message, error.hint)


class Place(NamedTuple):
    """Where a request is carried out: inside a write transaction.

    ``row``: the row of ``runs`` that windows go to, 0 without one.
    """

    connection: sqlite3.Connection
    row: int


def carry_out(place: Place, request: str, what: str, params: dict[str, Any]) -> dict[str, Any]:
    """Do it, once for each ``request``; its result. Raises UsageError, OperationFailedError."""
    done: list[tuple[str, dict[str, Any]]] = []
    noted = _seen(place.connection).get(_REPLIES)
    if noted is not None:
        done = msgspec.json.decode(noted, type=list[tuple[str, dict[str, Any]]])
    for known, result in done:
        if known == request:
            return result
    result = _DO[what](place, params)
    if what != "seen":
        kept = [*done[1 - _REPLIES_KEPT :], (request, result)]
        _note(place.connection, {_REPLIES: msgspec.json.encode(kept).decode()})
    return result


def _seen(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT what, value FROM seen"))


def _note(connection: sqlite3.Connection, seen: dict[str, str]) -> None:
    connection.executemany(
        "INSERT INTO seen VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
        seen.items(),
    )


def _tell_seen(place: Place, _params: dict[str, Any]) -> dict[str, Any]:
    """What was noted of the machine, by what it is."""
    seen = _seen(place.connection)
    for own in (_REPLIES, SWEPT):
        seen.pop(own, None)
    return {"seen": seen}


def _mark(place: Place, params: dict[str, Any]) -> dict[str, Any]:
    """Keep marks (at_ns, kind, text) and, with them, what was ``seen``."""
    ids = [
        place.connection.execute(
            "INSERT INTO marks (at_ns, kind, text) VALUES (?, ?, ?)", tuple(mark)
        ).lastrowid
        for mark in params["marks"]
    ]
    _note(place.connection, params.get("seen", {}))
    place.connection.execute(
        "DELETE FROM marks WHERE id <= (SELECT max(id) FROM marks) - ?", (MARKS_MOST,)
    )
    return {"ids": ids}


def _save(place: Place, params: dict[str, Any]) -> dict[str, Any]:
    """Give the running session a name and keep it; what comes next is another session."""
    name = check_session_name(params["name"])
    if place.connection.execute("SELECT 1 FROM sessions WHERE name = ?", (name,)).fetchone():
        raise UsageError(f"there is a session {name!r} already", hint="choose another name")
    if not _turn_over(place, name, saved=True):
        raise OperationFailedError("the running session is empty: there is nothing to save")
    return {"session": name}


def _reset(place: Place, _params: dict[str, Any]) -> dict[str, Any]:
    """Begin the running session anew; what it had goes by the time of its start."""
    row = place.connection.execute(
        "SELECT started_ns FROM sessions WHERE name = ?", (LIVE_SESSION,)
    ).fetchone()
    started = time.gmtime((row[0] if row else time.time_ns()) // 1_000_000_000)
    base = f"{LIVE_SESSION}-{time.strftime('%Y%m%dT%H%M%SZ', started)}"
    taken = {name for (name,) in place.connection.execute("SELECT name FROM sessions")}
    name, more = base, 1
    while name in taken:
        more += 1
        name = f"{base}-{more}"
    return {"session": name if _turn_over(place, name, saved=False) else None}


def _turn_over(place: Place, name: str, *, saved: bool) -> bool:
    """Rename the running session and open the next; False, and nothing done, when it is empty."""
    connection = place.connection
    row = connection.execute(
        "SELECT id FROM sessions WHERE name = ? AND EXISTS (SELECT 1 FROM runs"
        " JOIN windows ON windows.run = runs.id WHERE runs.session = sessions.id)",
        (LIVE_SESSION,),
    ).fetchone()
    if row is None:
        return False
    connection.execute(
        "UPDATE sessions SET name = ?, saved = ? WHERE id = ?", (name, int(saved), row[0])
    )
    now = time.time_ns()
    session = connection.execute(
        "INSERT INTO sessions (name, started_ns) VALUES (?, ?)", (LIVE_SESSION, now)
    ).lastrowid
    connection.execute(
        "INSERT INTO runs (session, run, boot, kind, origin, kernel_release, kernel_build_id, host,"
        " cpus, started_ns, events, cpuid) SELECT ?, run, boot, kind, origin, kernel_release,"
        " kernel_build_id, host, cpus, ?, events, cpuid FROM runs WHERE id = ? AND session = ?",
        (session, now, place.row, row[0]),
    )
    return True


def _probe_begin(place: Place, params: dict[str, Any]) -> dict[str, Any]:
    """Note that a measurement runs: what is never told to end was ended with opd itself."""
    from opd.store import probes  # few daemons measure

    return {"id": probes.begin(place.connection, params)}


def _probe_end(place: Place, params: dict[str, Any]) -> dict[str, Any]:
    """Keep what it came to."""
    from opd.store import probes

    probes.end(place.connection, params)
    return {}


def _probe_judge(place: Place, params: dict[str, Any]) -> dict[str, Any]:
    """Keep what it came to as one of several."""
    from opd.store import probes

    probes.judge(place.connection, params)
    return {}


_DO: dict[str, Callable[[Place, dict[str, Any]], dict[str, Any]]] = {
    "seen": _tell_seen,
    "mark": _mark,
    "save": _save,
    "reset": _reset,
    "probe_begin": _probe_begin,
    "probe_end": _probe_end,
    "probe_judge": _probe_judge,
}
TURNS_OVER = frozenset(("save", "reset"))

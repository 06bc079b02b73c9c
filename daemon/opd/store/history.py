"""What a store has of time: its sessions and its marks. Called inside a reader's snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import sqlite3

# The schema that brought marks, saved sessions and bytes of windows.
_MARKED = 2


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A session and how much is in it; times None while it is empty.

    ``bytes`` are those of its windows, without the names, stacks and roll-ups
    that it shares or brought; of windows of an older schema they are not known.
    """

    name: str
    started_ns: int
    kinds: list[str]
    saved: bool
    runs: int
    windows: int
    samples: int
    bytes: int
    first_ns: int | None
    last_ns: int | None


class MarkInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A moment with a word. ``kind``: user, or what the daemon saw change."""

    id: int
    at_ns: int
    kind: str
    text: str


def read_sessions(connection: sqlite3.Connection, version: int) -> list[SessionInfo]:
    """All sessions, oldest first."""
    saved, size = ("saved", "total(bytes)") if version >= _MARKED else ("0", "0")
    rows = connection.execute(
        f"SELECT sessions.name, sessions.started_ns, group_concat(DISTINCT kind), {saved},"  # noqa: S608
        f" count(DISTINCT runs.id), count(windows.id), total(samples), {size},"
        " min(start_ns), max(end_ns)"
        " FROM sessions LEFT JOIN runs ON runs.session = sessions.id"
        " LEFT JOIN windows ON windows.run = runs.id"
        " GROUP BY sessions.id ORDER BY sessions.started_ns, sessions.id"
    ).fetchall()
    return [
        SessionInfo(
            name=name,
            started_ns=started,
            kinds=sorted(kinds.split(",")) if kinds else [],
            saved=bool(saved),
            runs=runs,
            windows=windows,
            samples=int(samples),
            bytes=int(size),
            first_ns=first,
            last_ns=last,
        )
        for name, started, kinds, saved, runs, windows, samples, size, first, last in rows
    ]


def read_marks(
    connection: sqlite3.Connection, version: int, since_ns: int | None, until_ns: int | None
) -> list[MarkInfo]:
    """The marks of a range, oldest first."""
    if version < _MARKED:
        return []
    rows = connection.execute(
        "SELECT id, at_ns, kind, text FROM marks"
        " WHERE at_ns >= ifnull(?, at_ns) AND at_ns < ifnull(?, at_ns + 1) ORDER BY at_ns, id",
        (since_ns, until_ns),
    )
    return [MarkInfo(id=id_, at_ns=at, kind=kind, text=text) for id_, at, kind, text in rows]

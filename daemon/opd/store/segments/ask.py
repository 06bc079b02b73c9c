"""Asks the SQL child: starts it, queues, limits, cancels, and notices when it dies.

Used by the daemon and, with a session directory, by opctl. Knows nothing of
DuckDB.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec

from opd.errors import OpdError, OperationFailedError
from opd.store.segments import talk
from opd.store.segments.child import DiedError, OverdueError, SqlChild

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEFAULT_ROWS = 10_000
DEFAULT_SECONDS = 60.0
MOST_ROWS = 1_000_000
MOST_SECONDS = 600.0
MOST_BYTES = 32 << 20


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer may be, and the range of time it is about (ns since 1970)."""

    rows: int = DEFAULT_ROWS
    seconds: float = DEFAULT_SECONDS
    since_ns: int | None = None
    until_ns: int | None = None


class Asker:
    """One child for all who ask; each waits for its turn. Any thread may call."""

    def __init__(
        self, directory: Path, *, idle_s: float | None = None, memory_mib: int | None = None
    ) -> None:
        """Start nothing yet.

        ``idle_s``: when the child goes to rest, instead of a minute;
        ``memory_mib``: what its queries may have, from the next child on.
        """
        self.memory_mib = memory_mib
        self._directory = directory
        self._idle_s = idle_s
        self._turn = threading.Lock()
        self._child: SqlChild | None = None
        self._serial = 0
        self._closed = False
        self._counts = {
            "queries": 0,
            "failed": 0,
            "cancelled": 0,
            "killed": 0,
            "died": 0,
            "children": 0,
        }

    def stats(self) -> dict[str, Any]:
        """Queries, how they and the children ended, and what the present child uses."""
        child = self._child
        return {
            **self._counts,
            "pid": child.pid if child else None,
            "cpu_seconds": child.cpu_seconds if child else 0.0,
            "pss_bytes": child.pss_bytes if child else 0,
        }

    def ask(
        self, query: str, limits: Limits, *, gone: Callable[[], bool] | None = None
    ) -> dict[str, Any]:
        """The answer of Engine.answer. ``gone`` tells that nobody waits for it any more.

        Raises what the child raised; OperationFailedError for a query that
        took too long, was cancelled, or whose child died.
        """
        with self._turn:
            if self._closed:
                raise OperationFailedError("sql: opd is ending")
            if gone is not None and gone():
                raise OperationFailedError("sql: cancelled, whoever asked has left")
            self._counts["queries"] += 1
            try:
                return self._ask(query, limits, gone)
            except OpdError:
                self._counts["failed"] += 1
                raise

    def reap(self) -> None:
        """Forget a child that went to rest. Returns at once; not while a query runs."""
        if self._turn.acquire(blocking=False):
            try:
                if self._child is not None and self._child.has_ended():
                    self._drop()
            finally:
                self._turn.release()

    def close(self) -> None:
        """End the child, and with it a query that runs."""
        self._closed = True
        child = self._child
        if child is not None:
            child.kill()
        with self._turn:
            self._drop()

    def _ask(self, query: str, limits: Limits, gone: Callable[[], bool] | None) -> dict[str, Any]:
        fresh = self._child is None or self._child.has_ended()
        if fresh:
            self._drop()
            self._child = SqlChild(self._directory, idle_s=self._idle_s, memory_mib=self.memory_mib)
            self._counts["children"] += 1
        self._serial += 1
        ask = talk.Ask(
            id=self._serial,
            query=query,
            rows=limits.rows,
            seconds=limits.seconds,
            bytes=MOST_BYTES,
            since_ns=limits.since_ns,
            until_ns=limits.until_ns,
        )
        child = self._child
        if child is None:
            raise OperationFailedError("sql: no child")
        try:
            return child.answer(ask, gone)
        except OverdueError as overdue:
            self._counts["cancelled"] += 1
            if overdue.stuck:
                self._counts["killed"] += 1
                self._drop()
            raise OperationFailedError(overdue.message, hint=overdue.hint) from overdue
        except DiedError as died:
            self._drop()
            if died.at_rest and not fresh:
                return self._ask(query, limits, gone)
            self._counts["died"] += 1
            raise OperationFailedError(
                f"sql: the child that was to answer {died}",
                hint="the next query starts a new one",
            ) from died

    def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()

"""``sql``: a query over the history, answered by a child, for the daemon and without one."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING, Any

from opd.errors import UsageError
from opd.query import tables
from opd.query.history import range_of
from opd.store.segments.ask import MOST_ROWS, MOST_SECONDS, Asker, Limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from opd.query.endpoint import Peer
    from opd.store.queries import Reader


def sql_answer(
    asker: Asker, reader: Reader, params: dict[str, Any], peer: Peer | None = None
) -> dict[str, Any]:
    """Answer ``sql``; the query is given up when ``peer``'s process ends.

    Raises UsageError for a wrong query or limit, OperationFailedError for one
    that takes too much.
    """
    if "query" not in params:
        return tables_answer()
    limits = _limits(reader, params)
    if peer is None or peer.pid == os.getpid():
        return asker.ask(params["query"], limits)
    try:
        process = os.pidfd_open(peer.pid)
    except OSError:  # of another pid namespace, or gone before we came to it
        return asker.ask(params["query"], limits)
    try:
        return asker.ask(params["query"], limits, gone=_ended(process))
    finally:
        os.close(process)


def sql_offline(directory: Path, reader: Reader, params: dict[str, Any]) -> dict[str, Any]:
    """Answer ``sql`` from a store alone, in a child of this process."""
    asker = Asker(directory)
    try:
        return sql_answer(asker, reader, params)
    finally:
        asker.close()


def tables_answer() -> dict[str, Any]:
    """The tables and columns there are, as rows."""
    from opd.store.segments.tables import describe

    rows = describe()
    return {"rows": tables.from_rows(dict.fromkeys(rows[0], "str"), rows), "truncated": False}


def _limits(reader: Reader, params: dict[str, Any]) -> Limits:
    since, until = range_of(reader, params, time.time_ns())
    given = {name: params[name] for name in ("rows", "seconds") if name in params}
    if given.get("rows") == 0:
        given["rows"] = MOST_ROWS
    if given.get("rows", 0) > MOST_ROWS:
        raise UsageError(f"sql: {given['rows']} rows; at most {MOST_ROWS} are given")
    if given.get("seconds", 0) > MOST_SECONDS:
        raise UsageError(f"sql: {given['seconds']:g} s; at most {MOST_SECONDS:g} are given")
    return Limits(**given, since_ns=since, until_ns=until)


def _ended(process: int) -> Callable[[], bool]:
    poller = select.poll()
    poller.register(process, select.POLLIN)
    return lambda: bool(poller.poll(0))

"""The small tables: runs, sessions, windows, marks, images, events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opd.errors import StoreError
from opd.store.schema import IMAGE_DELETED, QUALITY_COLUMNS
from opd.store.segments.footer import WINDOWS, read_columns
from opd.store.segments.plan import quality_columns
from opd.store.segments.tables import TABLES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    import duckdb

    from opd.store.segments.plan import Known, Written

    Rows = Iterable[tuple[Any, ...]]

_ROWS_AT_ONCE = 4096
# Columns that the store has as ns and SQL as a time.
_TIME = "TIMESTAMP"


def load_facts(
    connection: duckdb.DuckDBPyConnection,
    store: sqlite3.Connection,
    names: AbstractSet[str],
    known: Known,
) -> None:
    """Fill these of the tables anew: from the store's snapshot, and from segments.

    Those have what the store has forgotten.
    """
    for name in sorted(names & set(_READERS)):
        connection.execute(f"TRUNCATE {name}")
        rows: list[tuple[Any, ...]] = []
        for row in _READERS[name](store, known):
            rows.append(row)
            if len(rows) == _ROWS_AT_ONCE:
                _insert(connection, name, rows)
                rows = []
        if rows:
            _insert(connection, name, rows)


def create_facts(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the tables, empty."""
    for name in _READERS:
        columns = TABLES[name].columns
        shape = ", ".join(f"{column} {about.type}" for column, about in columns.items())
        connection.execute(f"CREATE TABLE {name} ({shape})")


def _insert(connection: duckdb.DuckDBPyConnection, name: str, rows: list[tuple[Any, ...]]) -> None:
    kinds = {column: about.type for column, about in TABLES[name].columns.items()}
    columns = {
        column: _column(kind, values)
        for (column, kind), values in zip(kinds.items(), zip(*rows, strict=True), strict=True)
    }
    shown = ", ".join(
        f"make_timestamp({column} // 1000)" if kind == _TIME else f"{column}::{kind}"
        for column, kind in kinds.items()
    )
    connection.register("facts", columns)
    try:
        connection.execute(f"INSERT INTO {name} SELECT {shown} FROM facts")  # noqa: S608
    finally:
        connection.unregister("facts")


def _column(kind: str, values: tuple[Any, ...]) -> Any:
    if kind in ("VARCHAR", "BOOLEAN"):
        return np.array(values, object)
    missing = [value is None for value in values]
    numbers = np.array([value or 0 for value in values], "f8" if kind == "DOUBLE" else "i8")
    return np.ma.masked_array(numbers, missing) if any(missing) else numbers


def _runs(store: sqlite3.Connection, known: Known) -> Iterator[tuple[Any, ...]]:
    seen = set()
    for *row, started in store.execute(
        "SELECT run, name, kind, runs.started_ns, host, boot, kernel_release, kernel_build_id,"
        " cpus, origin, sessions.started_ns FROM runs JOIN sessions ON sessions.id = runs.session"
        " ORDER BY runs.started_ns, runs.id"
    ):
        seen.add((row[0], started))
        yield tuple(row)
    for one in _only_in_segments(known, seen):
        about = one.about
        yield (
            *(about.run, about.session, about.kind, about.started_ns, about.host, about.boot),
            *(about.kernel_release, about.kernel_build_id, about.cpus, about.origin),
        )


def _events(store: sqlite3.Connection, known: Known) -> Iterator[tuple[Any, ...]]:
    seen = set()
    for run, session, started, packed in store.execute(
        "SELECT run, name, sessions.started_ns, events FROM runs"
        " JOIN sessions ON sessions.id = runs.session ORDER BY runs.started_ns, runs.id"
    ):
        seen.add((run, started))
        for event in msgspec.msgpack.decode(packed):
            yield _event(run, session, event)
    for one in _only_in_segments(known, seen):
        for event in one.about.events:
            yield _event(one.about.run, one.about.session, event)


def _event(run: str, session: str, event: dict[str, Any]) -> tuple[Any, ...]:
    return run, session, *(event.get(name) for name in ("name", "source", "unit", "hz", "period"))


def _only_in_segments(known: Known, seen: set[tuple[str, int]]) -> Iterator[Written]:
    """A segment of each run that the store does not have any more."""
    for one in known.list():
        key = (one.about.run, one.about.session_started_ns)
        if key not in seen:
            seen.add(key)
            yield one


def _sessions(store: sqlite3.Connection, _known: Known) -> Rows:
    saved = "saved" if _has(store, "sessions", "saved") else "0"
    return store.execute(
        f"SELECT name, started_ns, {saved} <> 0 FROM sessions ORDER BY started_ns, id"  # noqa: S608
    )


def _marks(store: sqlite3.Connection, _known: Known) -> Rows:
    if not _has(store, "marks", "text"):
        return []
    return store.execute("SELECT at_ns, kind, text FROM marks ORDER BY at_ns, id")


def _has(store: sqlite3.Connection, table: str, column: str) -> bool:
    """Whether the store's schema, which may be the one before ours, has the column."""
    return any(row[1] == column for row in store.execute(f"PRAGMA table_info({table})"))


def _images(store: sqlite3.Connection, _known: Known) -> Rows:
    return store.execute(
        "SELECT text, kind, lower(hex(build_id)), lower(hex(identity)), flags & ? <> 0"
        " FROM images JOIN names ON names.id = images.path ORDER BY images.id",
        (IMAGE_DELETED,),
    )


def _windows(store: sqlite3.Connection, known: Known) -> Iterator[tuple[Any, ...]]:
    names = {
        (run, started): name
        for run, started, name in store.execute(
            "SELECT run, sessions.started_ns, name FROM runs"
            " JOIN sessions ON sessions.id = runs.session"
        )
    }
    there: dict[tuple[str, int], set[int]] = {}
    for run, started, session, sequence, start, end, *quality in store.execute(
        "SELECT runs.run, sessions.started_ns, name, sequence, start_ns, end_ns,"  # noqa: S608
        f" {quality_columns(store)} FROM windows"
        " JOIN runs ON runs.id = windows.run JOIN sessions ON sessions.id = runs.session"
        " ORDER BY windows.id"
    ):
        there.setdefault((run, started), set()).add(sequence)
        yield session, run, sequence, start, (end - start) / 1e9, *quality
    for one in known.list():
        key = one.key[:2]
        have = there.get(key, set())
        if one.sequences <= have:
            continue
        session = names.get(key, one.about.session)
        try:
            columns = read_columns(one.segment.path, WINDOWS)
        except StoreError:
            continue  # removed since it was listed
        for at, sequence in enumerate(columns["sequence"]):
            if sequence not in have:
                start, end = columns["start_ns"][at], columns["end_ns"][at]
                quality = [columns[name][at] if name in columns else 0 for name in QUALITY_COLUMNS]
                yield session, one.about.run, sequence, start, (end - start) / 1e9, *quality


_READERS: dict[str, Callable[[sqlite3.Connection, Known], Rows]] = {
    "runs": _runs,
    "sessions": _sessions,
    "windows": _windows,
    "marks": _marks,
    "images": _images,
    "events": _events,
}

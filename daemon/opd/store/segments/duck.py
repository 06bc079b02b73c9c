"""DuckDB as the children use it, and the table ``samples`` in it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from opd.errors import OperationFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import duckdb

    from opd.store.segments.samples import Chunk, Run, Words

# Name and type, in the order of the files.
COLUMNS = {
    "time": "TIMESTAMP",
    "seconds": "DOUBLE",
    "session": "VARCHAR",
    "run": "VARCHAR",
    "event": "VARCHAR",
    "comm": "VARCHAR",
    "pid": "INTEGER",
    "tid": "INTEGER",
    "cpu": "INTEGER",
    "mode": "VARCHAR",
    "image": "VARCHAR",
    "symbol": "VARCHAR",
    "cgroup": "VARCHAR",
    "unit": "VARCHAR",
    "container": "VARCHAR",
    "samples": "BIGINT",
    "weight": "BIGINT",
    "truncated": "BOOLEAN",
    "stack": "INTEGER",
    "frames": "STRUCT(symbol VARCHAR, image VARCHAR)[]",
}

# Chunks as they are read, before their numbers become texts.
_CODED = {
    "coded": (
        "event INTEGER, comm INTEGER, pid INTEGER, tid INTEGER, cpu INTEGER, mode INTEGER,"
        " image INTEGER, symbol INTEGER, cgroup INTEGER, stack INTEGER, first INTEGER,"
        ' "window" BIGINT, samples BIGINT, weight BIGINT, truncated BOOLEAN'
    ),
    "coded_frames": "stack INTEGER, symbol INTEGER, image INTEGER",
}

# The order in which tables are joined stands fast (KEEP_ORDER), and with one thread the rows
# of the first keep theirs: so lists of frames need no sorting, which took as long as all the rest.
KEEP_ORDER = "SET disabled_optimizers = 'join_order,build_side_probe_side'"
# A column without any text has no type of its own; those of COLUMNS are put on in the end.
_TYPED = ", ".join(f"{name}::{kind} AS {name}" for name, kind in COLUMNS.items())
_NAMED = """
SELECT {typed} FROM (
SELECT make_timestamp(w.time_us) AS time, w.seconds, {session} AS session, {run} AS run,
  e.text AS event, c.text AS comm, pid, nullif(tid, -1) AS tid, nullif(cpu, -1) AS cpu,
  CASE mode WHEN 0 THEN 'user' ELSE 'kernel' END AS mode, i.text AS image, s.text AS symbol,
  g.path AS cgroup, g.unit, g.container, samples, weight, truncated, {rows}.stack, l.frames
FROM {rows}
JOIN word_windows AS w ON w.number = {rows}."window"
JOIN word_events AS e ON e.number = {rows}.event
JOIN word_names AS c ON c.number = {rows}.comm
JOIN word_names AS i ON i.number = {rows}.image
JOIN word_names AS s ON s.number = {rows}.symbol
LEFT JOIN word_cgroups AS g ON g.number = {rows}.cgroup
LEFT JOIN ({lists}) AS l ON l.stack = {rows}.first
)
"""
_CODED_LISTS = """
SELECT stack, list({'symbol': f.text, 'image': j.text}) AS frames
FROM coded_frames JOIN word_names AS f ON f.number = coded_frames.symbol
JOIN word_names AS j ON j.number = coded_frames.image GROUP BY stack
"""
_TEXT_LISTS = """
SELECT stack, list({'symbol': symbol, 'image': image}) AS frames FROM chunk_frames GROUP BY stack
"""


def load() -> Any:
    """The module, or OperationFailedError that says how to get it."""
    try:
        import duckdb
        import numpy as np
    except ImportError as error:
        raise OperationFailedError(
            f"SQL and segments need DuckDB and numpy: {error}",
            hint="pip install duckdb numpy, into the environment that opd runs in",
        ) from error
    del np
    return duckdb


def open_memory(folder: Path, *, memory_mib: int, disk_mib: int) -> duckdb.DuckDBPyConnection:
    """A database of its own in memory, which may spill into ``folder``."""
    connection: duckdb.DuckDBPyConnection = load().connect(
        ":memory:",
        config={
            "threads": 1,
            "memory_limit": f"{memory_mib}MiB",
            "temp_directory": str(folder),
            "max_temp_directory_size": f"{disk_mib}MiB",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "enable_external_file_cache": False,
        },
    )
    return connection


def create_samples(
    connection: duckdb.DuckDBPyConnection, table: str, *, owner: str | None = None
) -> None:
    """An empty table of COLUMNS, and of ``owner`` where its type is given."""
    kinds = COLUMNS if owner is None else {**COLUMNS, "owner": owner}
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    connection.execute(f"CREATE TABLE {table} ({columns})")


def named_rows(rows: str, session: str, run: str, *, lists: str = _CODED_LISTS) -> str:
    """SQL of the rows of a table of chunks with their texts, in COLUMNS."""
    return _NAMED.format(typed=_TYPED, rows=rows, session=session, run=run, lists=lists)


def create_coded(connection: duckdb.DuckDBPyConnection) -> None:
    """Empty tables for chunks, and joins in the order that is written."""
    connection.execute(KEEP_ORDER)
    for name, columns in _CODED.items():
        connection.execute(f"CREATE TABLE {name} ({columns})")


def insert_coded(connection: duckdb.DuckDBPyConnection, chunk: Chunk) -> None:
    """Add a chunk as it is."""
    tables = {"chunk_rows": chunk.rows, "chunk_frames": chunk.frames}
    with registered(connection, tables):
        connection.execute("INSERT INTO coded BY NAME SELECT * FROM chunk_rows")
        connection.execute("INSERT INTO coded_frames BY NAME SELECT * FROM chunk_frames")


def insert_named(
    connection: duckdb.DuckDBPyConnection, table: str, run: Run, chunk: Chunk, words: Words
) -> None:
    """Add a chunk with its texts, and the run's number as the last column."""
    frames = chunk.frames | {name: words.texts(chunk.frames[name]) for name in ("symbol", "image")}
    named = named_rows("chunk_rows", "$session", "$run", lists=_TEXT_LISTS)
    tables = {**words.tables(), "chunk_rows": chunk.rows, "chunk_frames": frames}
    with registered(connection, tables):
        connection.execute(
            f"INSERT INTO {table} SELECT *, {run.id} FROM ({named})",  # noqa: S608
            {"session": run.session, "run": run.run},
        )


@contextlib.contextmanager
def registered(
    connection: duckdb.DuckDBPyConnection, tables: Mapping[str, dict[str, Any]]
) -> Iterator[None]:
    """Tables of columns under their names, for the time of the context."""
    try:
        for name, columns in tables.items():
            connection.register(name, columns)
        yield
    finally:
        for name in tables:
            connection.unregister(name)

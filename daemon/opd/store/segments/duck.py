"""DuckDB as the children use it, and the table ``samples`` in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.errors import OperationFailedError

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from opd.store.segments.samples import Chunk, Run

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

# One thread keeps the frames in their order; ordering them would take as long as all the rest.
_INSERT = """
INSERT INTO {table}
SELECT make_timestamp(time_us), seconds, $session, $run, event, comm, pid::INTEGER,
  nullif(tid, -1)::INTEGER, nullif(cpu, -1)::INTEGER, mode, image, symbol, cgroup, unit,
  container, samples, weight, truncated, chunk_rows.stack::INTEGER, listed.frames{more}
FROM chunk_rows LEFT JOIN (
  SELECT stack, list({{'symbol': symbol, 'image': image}}) AS frames
  FROM chunk_frames GROUP BY stack
) AS listed ON chunk_rows.first = listed.stack
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


def insert_chunk(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    run: Run,
    chunk: Chunk,
    *,
    owner: int | None = None,
) -> None:
    """Add the rows; ``owner`` where the table has it."""
    more = "" if owner is None else f", {owner}"
    connection.register("chunk_rows", chunk.rows)
    connection.register("chunk_frames", chunk.frames)
    try:
        connection.execute(
            _INSERT.format(table=table, more=more),
            {"session": run.session, "run": run.run},
        )
    finally:
        connection.unregister("chunk_rows")
        connection.unregister("chunk_frames")

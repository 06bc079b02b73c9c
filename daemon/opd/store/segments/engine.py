"""Answers one query after another over the segments and what is in none yet."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from typing import TYPE_CHECKING, Any

from opd.errors import OpdError, OperationFailedError, StoreError, UsageError
from opd.store.database import ReadConnection, snapshot
from opd.store.segments import duck
from opd.store.segments.facts import create_facts, load_facts
from opd.store.segments.files import FOLDER
from opd.store.segments.guard import check_query
from opd.store.segments.results import table_of
from opd.store.segments.tables import TABLES
from opd.store.segments.union import SampleTables

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from opd.store.segments.talk import Ask

_FETCHED_AT_ONCE = 1000
# Files may be replaced or removed while a query reads them; then it is asked again.
_TRIES = 3
_WORD = re.compile(r"[a-z_]+")
_SAMPLE_TABLES = frozenset(("samples", "stacks"))


class Engine:
    """DuckDB with the documented tables, locked: it reads the segments and nothing else."""

    def __init__(self, directory: Path, spill: Path, *, memory_mib: int, disk_mib: int) -> None:
        """Open the store. StoreError; OperationFailedError without DuckDB."""
        self._module = duck.load()
        self._store = ReadConnection(directory)
        self._duck = duck.open_memory(spill, memory_mib=memory_mib, disk_mib=disk_mib)
        folder = str(directory.resolve() / FOLDER).replace("'", "''")
        for setting in (
            "python_enable_replacements = false",
            f"allowed_directories = ['{folder}']",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self._duck.execute(f"SET {setting}")
        self._samples = SampleTables(self._duck, directory.resolve())
        create_facts(self._duck)
        self._asked = self._duck.cursor()

    def interrupt(self) -> None:
        """Stop the query that runs, from another thread."""
        self._asked.interrupt()
        self._duck.interrupt()

    def answer(self, ask: Ask) -> dict[str, Any]:
        """``rows`` and whether they are all. Raises OpdError with what is wrong."""
        began = time.monotonic()
        try:
            check_query(self._duck, ask.query)
            names = set(_WORD.findall(ask.query.lower())) & set(TABLES)
            for turn in range(_TRIES):
                try:
                    result = self._try(ask, names)
                except self._module.IOException:
                    if turn == _TRIES - 1 or self._samples.unchanged():
                        raise
                    continue
                if not names & _SAMPLE_TABLES or self._samples.unchanged():
                    break
            else:
                raise OperationFailedError(
                    "sql: the segments change faster than they can be read", hint="ask again"
                )
        except OpdError:
            raise
        except self._module.Error as error:
            raise self._explained(error) from error
        except sqlite3.Error as error:
            raise StoreError(f"cannot read the store: {error}") from error
        except MemoryError as error:
            raise _too_large("memory") from error
        return result | {"elapsed_seconds": round(time.monotonic() - began, 6)}

    def _try(self, ask: Ask, names: set[str]) -> dict[str, Any]:
        damaged = 0
        with snapshot(self._store.connection):
            load_facts(self._duck, self._store.connection, names, self._samples.known)
            if names & _SAMPLE_TABLES:
                damaged = self._samples.refresh(
                    self._store.connection, since_ns=ask.since_ns, until_ns=ask.until_ns
                )
        answer = self._run(ask)
        return answer | {"damaged": damaged} if damaged else answer

    def _run(self, ask: Ask) -> dict[str, Any]:
        """Carry it out in a transaction that cannot write; at most the asked number of rows."""
        cursor = self._asked
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        try:
            cursor.execute(ask.query)
            names = _distinct([str(column[0]) for column in cursor.description or ()])
            kinds = [str(column[1]) for column in cursor.description or ()]
            rows: list[tuple[Any, ...]] = []
            size = 0
            while len(rows) <= ask.rows and size <= ask.bytes:
                some = cursor.fetchmany(min(_FETCHED_AT_ONCE, ask.rows + 1 - len(rows)))
                if not some:
                    break
                rows += some
                size += _size(some)
        finally:
            _end(cursor)
        reason = "rows" if len(rows) > ask.rows else "bytes" if size > ask.bytes else ""
        while size > ask.bytes and len(rows) > 1:
            size -= _size([rows.pop()])
        del rows[ask.rows :]
        return {
            "rows": table_of(names, kinds, rows),
            "truncated": bool(reason),
            **({"limit": reason} if reason else {}),
        }

    def _explained(self, error: duckdb.Error) -> OpdError:
        """A mistake of the query is the asker's; what ran out is told as what it is."""
        text = str(error).strip()
        module = self._module
        if isinstance(error, module.InterruptException):
            return OperationFailedError("sql: the query was interrupted")
        if isinstance(error, module.OutOfMemoryException):
            return _too_large(text.partition("\n")[0])
        if isinstance(error, module.IOException | module.InternalException | module.FatalException):
            return OperationFailedError(f"sql: {text}")
        # A column or table that is not there; what else is wrong, the message shows.
        named = isinstance(error, module.CatalogException | module.BinderException)
        hint = "opctl sql alone lists the tables and columns" if named else None
        return UsageError(f"sql: {text}", hint=hint)


def _too_large(what: str) -> OperationFailedError:
    return OperationFailedError(
        f"sql: the query needs more than it may have: {what}",
        hint="ask for fewer groups or a shorter range (--since), or raise [store] sql_memory_mib",
    )


def _distinct(names: list[str]) -> list[str]:
    """Names of columns, each once: a second ``count`` is ``count_2``.

    >>> _distinct(["a", "b", "a"])
    ['a', 'b', 'a_2']
    """
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return result


def _size(rows: list[tuple[Any, ...]]) -> int:
    """About how many bytes the rows are: texts count, and everything else is a number."""
    return sum(
        len(str(cell)) if isinstance(cell, str | list | dict | bytes) else 8
        for row in rows
        for cell in row
    )


def _end(cursor: duckdb.DuckDBPyConnection) -> None:
    """Leave the transaction; one that broke is left already."""
    with contextlib.suppress(duck.load().Error):
        cursor.execute("ROLLBACK")

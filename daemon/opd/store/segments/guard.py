"""Lets one statement through that only reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from opd.errors import UsageError

if TYPE_CHECKING:
    import duckdb

# Comments and white space, then EXPLAIN and its options.
_EXPLAIN = re.compile(
    r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*EXPLAIN\b\s*(?:ANALYZE\b)?\s*(?:\([^)]*\))?",
    re.IGNORECASE | re.DOTALL,
)
_ALLOWED = "SELECT, FROM, WITH, VALUES, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN"


def check_query(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Raise UsageError for all but one statement that reads; a parser's error passes."""
    statements = _statements(connection, text)
    if len(statements) != 1:
        raise UsageError(
            f"sql: {len(statements) or 'no'} statements; one is taken at a time",
            hint=f"give one {_ALLOWED}",
        )
    kind = statements[0].type.name
    if kind == "EXPLAIN":
        # EXPLAIN ANALYZE carries it out.
        match = _EXPLAIN.match(text)
        inner = _statements(connection, text[match.end() :]) if match else []
        kind = inner[0].type.name if len(inner) == 1 else kind
    if kind != "SELECT":
        raise UsageError(
            f"sql: {kind} is not for here: the tables can be read and nothing else",
            hint=f"give one {_ALLOWED}",
        )
    if statements[0].named_parameters:
        raise UsageError("sql: the query has parameters", hint="put the values into the text")


def _statements(connection: duckdb.DuckDBPyConnection, text: str) -> list[Any]:
    return list(connection.extract_statements(text))

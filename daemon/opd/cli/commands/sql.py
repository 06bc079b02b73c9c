"""opctl sql: the history as tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opd.cli import asking, output
from opd.cli.rows import count
from opd.errors import UsageError

if TYPE_CHECKING:
    import argparse

EXAMPLE = (
    "opctl sql --since 24h 'SELECT comm, sum(weight) / 1e9 AS cpu_seconds FROM samples"
    " GROUP BY comm ORDER BY 2 DESC LIMIT 10'"
)
_NUMBERS = ("u64", "i64", "f64")
_ROWS = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument(
        "query",
        nargs="?",
        metavar="QUERY",
        help="one SELECT in DuckDB's SQL, or - to read it from stdin; without it the tables"
        " and columns there are",
    )
    parser.add_argument("--file", metavar="FILE", help="read the query from a file")
    parser.add_argument(
        "--rows",
        metavar="N",
        type=count,
        default=_ROWS,
        help=f"rows to give at most, 0 for a million (default: {_ROWS})",
    )
    parser.add_argument(
        "--seconds",
        metavar="SECONDS",
        type=float,
        help="how long the query may take (default: 60, at most 600)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    params: dict[str, Any] = {}
    query = _query(arguments)
    if query is not None:
        params = {"query": query, "rows": arguments.rows}
        for name in ("since", "until", "seconds"):
            value = getattr(arguments, name)
            if value is not None:
                params[name] = value
    with asking.open_source(arguments) as source:
        answer = source.call("sql", params)
    _print(answer, arguments.format)
    return 0


def _query(arguments: argparse.Namespace) -> str | None:
    if arguments.file is not None:
        if arguments.query is not None:
            raise UsageError("both a query and --file", hint="give one of them")
        try:
            return Path(arguments.file).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise UsageError(f"--file {arguments.file}: cannot be read: {error}") from error
    if arguments.query == "-":
        try:
            return sys.stdin.read()
        except UnicodeError as error:
            raise UsageError(f"the query on stdin is not text: {error}") from error
    return None if arguments.query is None else str(arguments.query)


def _print(answer: dict[str, Any], form: str) -> None:
    from opd.query import tables

    columns = answer["rows"]["columns"]
    names = [column["name"] for column in columns]
    found = tables.to_rows(answer["rows"])
    if answer["truncated"]:
        output.complain(
            f"opctl: only the first {len(found)} rows, there are more (--rows, or a LIMIT)"
        )
    if answer.get("damaged"):
        output.complain(f"opctl: {answer['damaged']} windows are damaged and not in the answer")
    if form == "json":
        restore = {column["name"]: _restorer(column) for column in columns}
        rows = [{name: restore[name](cell) for name, cell in row.items()} for row in found]
        output.print_json({**answer, "rows": rows})
    elif form == "csv":
        output.print_csv(names, found)
    else:
        right = [column["name"] for column in columns if column["type"] in _NUMBERS]
        shown = [{name: _shown(cell) for name, cell in row.items()} for row in found]
        output.print_table(names, shown, right=right)


def _shown(cell: Any) -> Any:
    """A cell of a table: what its number is of, nobody knows here, so digits that count."""
    return f"{cell:.6g}" if isinstance(cell, float) else cell


def _restorer(column: dict[str, Any]) -> Any:
    """What makes of a cell what it was in SQL, as far as JSON has it."""
    kind = column.get("sql", "VARCHAR")
    if column["type"] == "f64":
        return lambda cell: cell if cell is None or abs(cell) < float("inf") else None
    nested = kind.endswith("]") or kind.partition("(")[0] in ("STRUCT", "MAP", "UNION", "BOOLEAN")
    if nested:
        return lambda cell: None if cell is None else json.loads(cell)
    return lambda cell: cell

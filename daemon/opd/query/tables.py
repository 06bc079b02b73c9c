"""Tables on the wire: typed little-endian columns instead of rows.

``{"n": n, "columns": [{"name", "type": "u64|i64|f64|str", "data": bin,
"dict": [...]}]}``; a str column's data are u32 indices into its dict.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Any

from opd.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Table = dict[str, Any]
Cell = int | float | str

_TYPECODES = {"u64": "Q", "i64": "q", "f64": "d"}
_INDEX = "I"
_BIG_ENDIAN = sys.byteorder == "big"

if array(_INDEX).itemsize != 4 or array("Q").itemsize != 8:
    raise ImportError("this platform's C types do not have the sizes of the wire format")


def numbers(name: str, kind: str, values: Iterable[float]) -> dict[str, Any]:
    """One column of ``kind`` u64, i64 or f64. Raises OverflowError for what does not fit."""
    return {"name": name, "type": kind, "data": _packed(array(_TYPECODES[kind], values))}


def strings(name: str, values: Iterable[str]) -> dict[str, Any]:
    """One str column; each different string travels once."""
    known: dict[str, int] = {}
    indices = array(_INDEX, [known.setdefault(value, len(known)) for value in values])
    return {"name": name, "type": "str", "data": _packed(indices), "dict": list(known)}


def row_numbers(rows: Iterable[int]) -> bytes:
    """The ``nulls`` of a column: u32 numbers of the rows whose cell is NULL."""
    return _packed(array(_INDEX, rows))


def table(n: int, columns: Iterable[dict[str, Any]]) -> Table:
    """A table of ``n`` rows. Raises ValueError when a column has another length."""
    columns = list(columns)
    for column in columns:
        if len(column["data"]) != n * _width(column["type"]):
            raise ValueError(f"column {column['name']!r} does not have {n} rows")
    return {"n": n, "columns": columns}


def from_rows(types: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of ``rows``, whose keys and column types are ``types``, in that order."""
    return table(
        len(rows),
        [
            strings(name, (row[name] for row in rows))
            if kind == "str"
            else numbers(name, kind, [row[name] for row in rows])
            for name, kind in types.items()
        ],
    )


def decode(value: object) -> dict[str, Sequence[Any]]:
    """Columns by name, in order; NULL is None. Raises ProtocolError for what is no table."""
    try:
        n, columns = value["n"], value["columns"]  # type: ignore[index]
        return {column["name"]: _decode_column(n, column) for column in columns}
    except (TypeError, KeyError, ValueError, IndexError) as error:
        raise ProtocolError(f"the answer's table is malformed: {error}") from error


def to_rows(value: object) -> list[dict[str, Any]]:
    """Rows with the columns' names as keys. Raises ProtocolError for what is no table."""
    columns = decode(value)
    names = list(columns)
    return [dict(zip(names, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _width(kind: str) -> int:
    return 4 if kind == "str" else 8


def _packed(values: array[Any]) -> bytes:
    if _BIG_ENDIAN:
        values.byteswap()
    return values.tobytes()


def _decode_column(n: int, column: Mapping[str, Any]) -> Sequence[Cell | None]:
    cells = _decode_cells(n, column)
    if not column.get("nulls"):
        return cells
    nulls = array(_INDEX)
    nulls.frombytes(column["nulls"])
    if _BIG_ENDIAN:
        nulls.byteswap()
    with_nulls: list[Cell | None] = list(cells)
    for row in nulls:
        with_nulls[row] = None
    return with_nulls


def _decode_cells(n: int, column: Mapping[str, Any]) -> Sequence[Cell]:
    kind = column["type"]
    values: array[Any] = array(_INDEX if kind == "str" else _TYPECODES[kind])
    values.frombytes(column["data"])
    if _BIG_ENDIAN:
        values.byteswap()
    if len(values) != n:
        raise ValueError(f"column {column['name']!r} has {len(values)} of {n} rows")
    if kind != "str":
        return values
    words: list[str] = column["dict"]
    return [words[index] for index in values]

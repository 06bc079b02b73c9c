"""Rows of an answer as columns of the wire: u64, i64, f64, str, and which are NULL."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import TYPE_CHECKING, Any

from opd.query import tables

if TYPE_CHECKING:
    from collections.abc import Sequence

_I64 = 1 << 63
_U64 = 1 << 64
_FLOATS = ("FLOAT", "DOUBLE", "DECIMAL")
_INTEGERS = frozenset(
    (
        *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
        *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    )
)
_NESTED = ("STRUCT", "MAP", "UNION")


def table_of(
    names: Sequence[str], kinds: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> tables.Table:
    """The table; ``kinds`` are DuckDB's types.

    Beside what every column has: ``sql``, DuckDB's type, and ``nulls`` (u32
    row numbers) where some are NULL, which stand in ``data`` as 0 or "".
    """
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return tables.table(
        len(rows),
        [
            _column(name, kind, values)
            for name, kind, values in zip(names, kinds, columns, strict=True)
        ],
    )


def _column(name: str, kind: str, values: Sequence[Any]) -> dict[str, Any]:
    nulls = [at for at, value in enumerate(values) if value is None]
    column = _typed(name, kind, values)
    column["sql"] = kind
    if nulls:
        column["nulls"] = tables.row_numbers(nulls)
    return column


def _typed(name: str, kind: str, values: Sequence[Any]) -> dict[str, Any]:
    base = kind.partition("(")[0]
    if kind in _INTEGERS:
        numbers = [value or 0 for value in values]
        least, most = min(numbers, default=0), max(numbers, default=0)
        if least >= -_I64 and most < _I64 and not kind.startswith("U"):
            return tables.numbers(name, "i64", numbers)
        if least >= 0 and most < _U64:
            return tables.numbers(name, "u64", numbers)
        return tables.strings(name, ["" if value is None else str(value) for value in values])
    if base in _FLOATS and not kind.endswith("]"):
        return tables.numbers(name, "f64", [float(value or 0) for value in values])
    nested = kind.endswith("]") or base in _NESTED
    return tables.strings(name, [_text(value, nested=nested) for value in values])


def _text(value: Any, *, nested: bool) -> str:
    """A cell as text: nested ones in JSON, times in ISO 8601."""
    if value is None:
        return ""
    if nested:
        return json.dumps(_plain(value), ensure_ascii=False)
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _plain(value: Any) -> Any:
    """What JSON has a form for."""
    if isinstance(value, dict):
        plain: Any = {str(_plain(key)): _plain(inner) for key, inner in value.items()}
    elif isinstance(value, list | tuple):
        plain = [_plain(inner) for inner in value]
    elif isinstance(value, dt.datetime):
        plain = value.isoformat() + ("" if value.tzinfo else "Z")
    elif isinstance(value, bytes | bytearray | memoryview):
        plain = bytes(value).hex()
    elif isinstance(value, decimal.Decimal):
        plain = float(value)
    elif value is None or isinstance(value, bool | int | float | str):
        plain = value
    else:
        plain = str(value)
    return plain

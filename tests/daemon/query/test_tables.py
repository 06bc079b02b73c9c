"""Tables on the wire."""

from __future__ import annotations

import struct

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opd.errors import ProtocolError
from opd.query import tables

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "samples": st.integers(0, 2**64 - 1),
            "pid": st.integers(-(2**63), 2**63 - 1),
            "percent": st.floats(allow_nan=False),
            "symbol": st.text(),
        }
    )
)
TYPES = {"samples": "u64", "pid": "i64", "percent": "f64", "symbol": "str"}


@given(ROWS)
def test_rows_come_back_as_they_went(rows):
    """Encoding and decoding any rows through msgpack loses nothing."""
    table = msgpack.unpackb(msgpack.packb(tables.from_rows(TYPES, rows)))
    assert tables.to_rows(table) == rows
    assert table["n"] == len(rows)


def test_cells_are_little_endian_and_strings_indices():
    """The bytes are what docs/protocol.md says, read without our decoder."""
    rows = [
        {"samples": 1, "pid": -1, "percent": 0.5, "symbol": name}
        for name in ("main", "foo", "main")
    ]
    samples, pid, percent, symbol = tables.from_rows(TYPES, rows)["columns"]
    assert samples == {"name": "samples", "type": "u64", "data": struct.pack("<3Q", 1, 1, 1)}
    assert pid["data"] == struct.pack("<3q", -1, -1, -1)
    assert percent["data"] == struct.pack("<3d", 0.5, 0.5, 0.5)
    assert symbol["data"] == struct.pack("<3I", 0, 1, 0)
    assert symbol["dict"] == ["main", "foo"]


def test_columns_of_other_lengths_are_refused():
    """A table whose columns disagree is not built."""
    with pytest.raises(ValueError, match="samples"):
        tables.table(2, [tables.numbers("samples", "u64", [1])])


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"n": 1},
        {"n": 1, "columns": [{"name": "a", "type": "u64", "data": b"123"}]},
        {"n": 2, "columns": [{"name": "a", "type": "u64", "data": b"12345678"}]},
        {"n": 1, "columns": [{"name": "a", "type": "u16", "data": b"12"}]},
        {"n": 1, "columns": [{"name": "a", "type": "str", "data": b"\1\0\0\0", "dict": ["x"]}]},
        {"n": 1, "columns": [{"name": "a", "type": "str", "data": "text", "dict": ["x"]}]},
    ],
)
def test_what_is_no_table_is_refused(value):
    """A malformed table is a ProtocolError, not a wrong row."""
    with pytest.raises(ProtocolError):
        tables.to_rows(value)

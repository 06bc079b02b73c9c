"""docs/sql.md: every example runs, every table and limit is what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from segment_history import History

from opd.query import tables
from opd.store.segments.files import list_segments
from opd.store.segments.tables import TABLES
from opd.store.segments.write import write_segments

pytest.importorskip("duckdb")

from opd.store.segments.engine import Engine
from opd.store.segments.talk import Ask

MANUAL = (Path(__file__).parents[4] / "docs" / "sql.md").read_text()
EXAMPLES = re.findall(r"```sql\n(.*?)```", MANUAL, re.DOTALL)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """Asks a store with two hours of which one is a segment."""
    directory = tmp_path_factory.mktemp("store")
    history = History(directory)
    history.add_hours(1)
    list(write_segments(directory))
    history.add_hours(1, first=1)
    history.close()
    return Engine(directory, directory, memory_mib=64, disk_mib=64)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(engine, example):
    """As it stands in the manual; those about this store's past have rows."""
    directory = engine._store.path.parent
    name = "segments/live-01234567-20260105T08.parquet"
    query = example.replace(name, str(list_segments(directory.resolve())[0].path))
    answer = engine.answer(Ask(id=1, query=query, rows=1000, seconds=60, bytes=1 << 20))
    rows = tables.to_rows(answer["rows"])
    if not any(word in example for word in ("nginx", "now()", "deploy", "memcpy")):
        assert rows
    assert answer["truncated"] is False


def test_the_manual_has_many_examples():
    """Or the test above tests nothing."""
    assert len(EXAMPLES) >= 9


def test_the_manual_has_every_table():
    """One line each."""
    assert set(re.findall(r"^\| `(\w+)` \|", MANUAL, re.MULTILINE)) == set(TABLES)

"""Segments as another engine reads them, which did not write them."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from segment_history import START_NS, WINDOW_NS, History

from opd.store.segments.files import list_segments
from opd.store.segments.write import write_segments

pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow", reason="another reader of Parquet: pip install pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A history of an hour and the path of its segment."""
    history = History(tmp_path_factory.mktemp("store"))
    history.add_hours(1)
    list(write_segments(history.directory))
    history.close()
    (segment,) = list_segments(history.directory)
    return history, segment.path


def test_it_reads_every_row(written):
    """Samples and weight by comm and pid are those of the hits."""
    history, path = written
    rows = parquet.read_table(path).to_pylist()
    got, wanted = Counter(), Counter()
    for row in rows:
        got[row["comm"], row["pid"], row["mode"]] += row["weight"]
    for hits in history.hits.values():
        for hit in hits:
            wanted[hit.comm, hit.tgid, ("user", "kernel")[hit.mode]] += hit.weight
    assert got == wanted
    assert sum(row["samples"] for row in rows) == history.totals()[0]
    times = {row["time"].timestamp() if row["time"].tzinfo else row["time"] for row in rows}
    assert len(times) == len(history.hits)


def test_it_finds_the_frames_of_every_stack(written):
    """By the number of the stack, within the file."""
    rows = parquet.read_table(written[1]).to_pylist()
    frames = {row["stack"]: row["frames"] for row in rows if row["frames"] is not None}
    for row in rows:
        leaf = frames[row["stack"]][0]
        assert (leaf["symbol"], leaf["image"]) == (row["symbol"], row["image"])


def test_the_types_are_plain_ones(written):
    """What engines differ in is not used: no unsigned numbers, no UUIDs, no nanoseconds."""
    schema = parquet.read_schema(written[1])
    texts = ("session", "run", "event", "comm", "mode", "image", "symbol")
    texts += ("cgroup", "unit", "container")
    frame = pa.struct([("symbol", pa.string()), ("image", pa.string())])
    assert {field.name: field.type for field in schema if field.name != "frames"} == {
        **dict.fromkeys(texts, pa.string()),
        **dict.fromkeys(("pid", "tid", "cpu", "stack"), pa.int32()),
        **dict.fromkeys(("samples", "weight"), pa.int64()),
        "time": pa.timestamp("us"),
        "seconds": pa.float64(),
        "truncated": pa.bool_(),
    }
    assert schema.field("frames").type.value_type == frame
    file = parquet.ParquetFile(written[1])
    columns = [file.metadata.row_group(0).column(at) for at in range(file.metadata.num_columns)]
    assert {column.compression for column in columns} == {"ZSTD"}


def test_what_the_file_says_of_itself_is_json(written):
    """Run, windows with their times, build-ids."""
    metadata = parquet.read_metadata(written[1]).metadata
    about = json.loads(metadata[b"opd.segment"])
    assert (about["host"], about["windows"], about["schema"]) == ("host", "0-5", 1)
    windows = json.loads(metadata[b"opd.windows"])
    assert windows["start_ns"] == [START_NS + at * WINDOW_NS for at in range(6)]
    images = json.loads(metadata[b"opd.images"])
    assert "bb" * 20 in images["build_id"]

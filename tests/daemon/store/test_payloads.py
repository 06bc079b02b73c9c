"""Payloads of windows: stored beside the rows, refused when they do not fit, gone with them."""

import sqlite3
from array import array

import pytest
from plain_names import PlainNames
from synthetic import IMAGES, START_NS, make_run, make_window, random_hits

from opd.errors import StoreError
from opd.sampling.payload import Payload
from opd.store.database import transaction
from opd.store.messages import Append, Splitter, ToWorker, frame
from opd.store.payloads import read_payload, split_records
from opd.store.queries import open_reader
from opd.store.retention import Retention
from opd.store.writer import StoreWriter


def column(code, values):
    """A packed column."""
    return array(code, values).tobytes()


def latency(rows, **more):
    """A latency payload of (sfile, stack, bucket, count)."""
    cells = list(zip(*rows, strict=True))
    columns = {
        name: column("Q" if name == "count" else "I", cells[at])
        for at, name in enumerate(("sfile", "stack", "bucket", "count"))
    }
    return Payload("latency", len(rows), sum(cells[3]), 0, {**columns, **more})


def records(name, chunks):
    """Raw records, all of the first row."""
    return Payload(
        f"record.{name}",
        len(chunks),
        1000,
        3,
        {
            "sfile": column("I", [0] * len(chunks)),
            "stack": column("I", [0] * len(chunks)),
            "weight": column("Q", [250_000] * len(chunks)),
            "length": column("I", map(len, chunks)),
            "bytes": b"".join(chunks),
        },
    )


@pytest.fixture
def writer(tmp_path):
    """A writer with a run open."""
    made = StoreWriter(tmp_path, PlainNames)
    made.open_run(make_run())
    made.add_images([(info, None) for info in IMAGES])
    yield made
    made.close()


def stored(directory):
    """The rows of payloads by kind."""
    connection = sqlite3.connect(directory / "opd.db")
    found = {
        kind: (rows, offered, lost, *read_payload(kind, block))
        for kind, rows, offered, lost, block in connection.execute(
            "SELECT kind, rows, offered, lost, block FROM payloads"
        )
    }
    names = dict(connection.execute("SELECT id, text FROM names"))
    connection.close()
    return found, names


def test_payloads_are_stored_with_the_names_of_their_stacks(writer, tmp_path):
    """Each row has the leaf's name and the number of its stack, also one that no row has."""
    window = make_window(0, random_hits(1, rows=6))
    at = {column: array(code, getattr(window, column)) for column, code in (
        ("row_sfile", "I"), ("row_stack", "I"))}  # fmt: skip
    rows = [
        (*pair, 100 + place, 1 + place) for place, pair in enumerate(zip(*at.values(), strict=True))
    ]
    window.payloads = [latency(rows), records("ibs_op", [b"abc", b"", b"defgh"])]
    receipt = writer.append(window)
    found, names = stored(tmp_path)
    kept, offered, lost, columns, _data = found["latency"]
    assert (kept, offered, lost) == (len(rows), sum(row[3] for row in rows), 0)
    assert list(columns["sfile"]) == [row[0] for row in rows]
    assert list(columns["bucket"]) == [row[2] for row in rows]
    assert list(columns["count"]) == [row[3] for row in rows]
    with open_reader(tmp_path) as reader:
        kept, offered, lost, made, data = found["record.ibs_op"]
        (stack,) = set(made["stack"])
        (leaf,) = {frame.name for frame in [reader.stacks([stack])[0].frames[0]]}
    assert (kept, offered, lost) == (3, 1000, 3)
    assert split_records(made["length"], data) == [b"abc", b"", b"defgh"]
    assert {names[symbol] for symbol in made["symbol"]} == {leaf}
    assert list(made["weight"]) == [250_000] * 3
    connection = sqlite3.connect(tmp_path / "opd.db")
    (size,) = connection.execute("SELECT bytes FROM windows").fetchone()
    connection.close()
    assert size == receipt.bytes


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (Payload("nonsense", 0, 0, 0, {}), "'nonsense' is not known"),
        (latency([(99, 0, 1, 1)]), "sfile names what is not there"),
        (latency([(0, 99, 1, 1)]), "stack names what is not there"),
        (latency([(0, 0, 1, 1)], count=b"\0"), "count has 1 bytes, not 8"),
        (latency([(0, 0, 1, 1)], bucket=b""), "bucket has 0 bytes, not 4"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused(writer, payload, what):
    """The error names kind and column; the next window is stored."""
    window = make_window(0, random_hits(1, rows=3))
    window.payloads = [payload]
    with pytest.raises(StoreError, match=what):
        writer.append(window)
    window.payloads = [latency([(0, 0, 1, 1)])] * 2
    with pytest.raises(StoreError, match="'latency' comes twice"):
        writer.append(window)
    window.payloads = []
    assert writer.append(window).new


def test_records_need_as_many_bytes_as_they_say(writer):
    """A reader of them never looks past their end."""
    window = make_window(0, random_hits(1, rows=3))
    payload = records("ibs_fetch", [b"abcd"])
    payload.columns["bytes"] = b"abc"
    window.payloads = [payload]
    with pytest.raises(StoreError, match="3 bytes of records, not 4"):
        writer.append(window)


def test_payloads_travel_to_the_worker():
    """With the window, as they were."""
    window = make_window(0, random_hits(1, rows=3))
    window.payloads = [latency([(0, 0, 1, 1)]), records("ibs_op", [b"x"])]
    (message,) = Splitter(ToWorker).feed(frame(Append(window)))
    assert message.window == window


def test_payloads_go_with_their_windows(writer, tmp_path):
    """Retention deletes both; those of windows that stay are there."""
    for sequence in range(12):
        window = make_window(sequence, random_hits(sequence, rows=3))
        window.payloads = [latency([(0, 0, 1, 1)])]
        writer.append(window)
    writer.finish()
    connection = sqlite3.connect(tmp_path / "opd.db", isolation_level=None)
    retention = Retention(connection, tmp_path, lambda: (0, 0))
    with transaction(connection):
        retention._delete_minute(1, START_NS // 60_000_000_000)
    left = connection.execute("SELECT count(*) FROM windows").fetchone()
    assert left == connection.execute("SELECT count(*) FROM payloads").fetchone()
    assert 0 < left[0] < 12
    connection.close()

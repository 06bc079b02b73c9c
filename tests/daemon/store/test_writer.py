"""What the writer stores, and what a reader gets back."""

import os
import sqlite3
from array import array
from itertools import chain

import pytest
from plain_names import BrokenNames, PlainNames
from synthetic import IMAGES, START_NS, Hit, expected, make_run, make_window, random_hits

from opd.errors import StoreError
from opd.sampling.window import EventInfo, ImageInfo
from opd.store.blocks import unpack_rows
from opd.store.queries import ReportQuery, open_reader
from opd.store.writer import StoreWriter
from opd_native.identity import stack_identities

KEYS = ("comm", "pid", "image", "symbol", "mode")


def rows_of(result):
    """The rows of a report as a dict."""
    keys = zip(*result.keys.values(), strict=True)
    return dict(zip(keys, zip(result.samples, result.weight, strict=True), strict=True))


@pytest.fixture
def writer(tmp_path):
    """A writer with a run and its images."""
    writer = StoreWriter(tmp_path / "session", PlainNames)
    writer.open_run(make_run())
    writer.add_images([(info, None) for info in IMAGES])
    yield writer
    writer.close()


def test_report_is_the_sum_of_the_hits(writer, tmp_path):
    """Every hit is in the report under its own keys, with its weight."""
    hits = []
    for sequence in range(9):
        window_hits = random_hits(sequence)
        hits += window_hits
        receipt = writer.append(make_window(sequence, window_hits))
        assert receipt.new
        assert receipt.samples == sum(hit.hits for hit in window_hits)
    with open_reader(tmp_path / "session") as reader:
        for keys in (KEYS, ("comm", "image", "symbol"), ("symbol",), ("pid",), ("mode", "comm")):
            result = reader.report(ReportQuery(sort=keys, top=0))
            assert rows_of(result) == expected(hits, keys)
            assert result.total == sum(hit.hits for hit in hits)
            assert result.weight_total == sum(hit.weight for hit in hits)
            assert sum(result.percent) == pytest.approx(100)


def test_rows_come_heaviest_first_then_by_key(writer, tmp_path):
    """Order does not depend on the order of storing; ties are decided by text."""
    frames = ((2, 0x40),)
    writer.append(
        make_window(
            0,
            [Hit(0, comm, 1, 0, frames, 1, 10) for comm in ("zeta", "alpha", "mid")]
            + [Hit(0, "big", 1, 0, frames, 1, 99)],
        )
    )
    with open_reader(tmp_path / "session") as reader:
        result = reader.report(ReportQuery(sort=("comm",), top=0))
        assert result.keys["comm"] == ["big", "alpha", "mid", "zeta"]
        result = reader.report(ReportQuery(sort=("comm",), top=2))
        assert result.keys["comm"] == ["big", "alpha"]
        assert result.total == 4


def test_a_window_is_stored_once(writer, tmp_path):
    """A window sent again is acknowledged and changes nothing."""
    window = make_window(0, random_hits(1))
    assert writer.append(window).new
    assert not writer.append(window).new
    with open_reader(tmp_path / "session") as reader:
        assert reader.sessions()[0].windows == 1
        assert reader.report(ReportQuery()).total == window.quality["samples"]


def test_a_run_goes_on_in_another_writer(tmp_path):
    """A second writer finds stacks, names and the minute that was filling."""
    directory = tmp_path / "session"
    hits = [random_hits(sequence) for sequence in range(14)]
    for part in (range(4), range(4, 14)):
        writer = StoreWriter(directory, PlainNames)
        writer.open_run(make_run())
        writer.add_images([(info, None) for info in IMAGES])
        for sequence in part:
            writer.append(make_window(sequence, hits[sequence]))
        # As after kill -9: nothing is finished.
        writer._connection.close()
    with open_reader(directory) as reader:
        result = reader.report(ReportQuery(top=0))
        assert rows_of(result) == expected(chain.from_iterable(hits), ("comm", "image", "symbol"))


def test_stacks_come_back_with_the_frozen_identity(writer, tmp_path):
    """Frames, names and identity of every row's stack are as they were handed over."""
    hits = [random_hits(sequence) for sequence in range(5)]
    for sequence, some in enumerate(hits):
        writer.append(make_window(sequence, some))
    names = writer._namer._source
    wanted = {}
    for hit in chain.from_iterable(hits):
        uids = [uid for uid, _offset in hit.frames]
        addresses = [names.elf_addresses(uid, [offset])[0] for uid, offset in hit.frames]
        identity = stack_identities(
            bytes([hit.flags]),
            array("I", [0, len(uids)]).tobytes(),
            array("I", range(len(uids))).tobytes(),
            array("Q", addresses).tobytes(),
            [names.image_identity(uid) for uid in uids],
        )
        texts = [
            names.name_runs(uid, [address], caller=at > 0)[0][0].text
            for at, (uid, address) in enumerate(zip(uids, addresses, strict=True))
        ]
        sums = wanted.setdefault(identity, [0, addresses, texts])
        sums[0] += hit.hits
    connection = sqlite3.connect(tmp_path / "session" / "opd.db")
    found = {}
    with open_reader(tmp_path / "session") as reader:
        for (block,) in connection.execute("SELECT rows FROM blocks"):
            _sfiles, numbers, row_hits, _excess = unpack_rows(block)
            for stack, count in zip(reader.stacks(numbers), row_hits, strict=True):
                frames = stack.frames
                sums = found.setdefault(
                    stack.identity,
                    [0, [frame.address for frame in frames], [frame.name for frame in frames]],
                )
                sums[0] += count
    connection.close()
    assert found == wanted


def test_quality_counts_names_losses_and_gaps(writer, tmp_path):
    """Quality sums counters, names by kind, and windows missing by sequence."""
    named, ranged, unknown = (2, 0), (2, 3 * 64 + 7 * 64 * 2 + 0x1000), (4, 0x40)
    hits = [
        Hit(0, "a", 1, 0, (named,), 5, 50),
        Hit(0, "a", 1, 0, (ranged,), 3, 30),
        Hit(0, "a", 1, 0, (unknown,), 2, 20),
    ]
    for sequence in (0, 1, 4):
        writer.append(
            make_window(sequence, hits, ring_full=1, idle=7, throttled_ns=2_000_000_000, late=4)
        )
    with open_reader(tmp_path / "session") as reader:
        quality = reader.quality()
    assert quality["windows"] == {"have": 3, "missing": 2}
    assert quality["lost"] == {"ring_full": 3, "window_dropped": 0, "hash_full": 0}
    assert quality["degraded"]["unnamed"] == 6
    assert quality["frames"]["named"] + quality["frames"]["ranges"] == 24
    assert quality["frames"]["unknown"] == 6
    assert quality["idle"] == 21
    assert quality["throttled_seconds"] == 6.0
    assert quality["source"] == "cpu-clock"
    assert quality["hz_asked"] == 99
    assert quality["hz_effective"] == pytest.approx(99 * 0.9 * 30 / 33)


def test_a_reset_opens_a_session_in_the_same_run(writer, tmp_path):
    """The new session starts empty; images keep their uids; sequences go on."""
    writer.append(make_window(0, random_hits(1)))
    writer.open_run(make_run(session="second", started_ns=START_NS + 1))
    with open_reader(tmp_path / "session") as reader:
        assert reader.report(ReportQuery()).total == 0
    writer.append(make_window(1, random_hits(2)))
    with open_reader(tmp_path / "session") as reader:
        assert [session.name for session in reader.sessions()] == ["default", "second"]
        assert reader.report(ReportQuery()).total == sum(hit.hits for hit in random_hits(2))
        assert reader.quality()["windows"] == {"have": 1, "missing": 0}
        first = reader.report(ReportQuery(session="default"))
        assert first.total == sum(hit.hits for hit in random_hits(1))


def test_two_events_are_summed_apart(tmp_path):
    """The first event is the default; sorting by event gives each its own percents."""
    events = [EventInfo("cpu-clock", "cpu-clock", "ns", hz=99), EventInfo("faults", "x", "count")]
    writer = StoreWriter(tmp_path, PlainNames)
    writer.open_run(make_run(events=events))
    writer.add_images([(info, None) for info in IMAGES])
    hits = random_hits(3, rows=200, events=2)
    writer.append(make_window(0, hits))
    writer.close()
    with open_reader(tmp_path) as reader:
        apart = [sum(hit.hits for hit in hits if hit.event == event) for event in (0, 1)]
        assert reader.report(ReportQuery()).total == apart[0]
        assert reader.report(ReportQuery(event="faults")).total == apart[1]
        result = reader.report(ReportQuery(sort=("event", "comm"), top=0))
        assert result.total == sum(apart)
        for name in ("cpu-clock", "faults"):
            shares = [
                share
                for event, share in zip(result.keys["event"], result.percent, strict=True)
                if event == name
            ]
            assert sum(shares) == pytest.approx(100)


def test_what_the_resolver_cannot_do_is_unknown_and_counted(tmp_path):
    """A resolver that raises, or was never told of an image, costs only names."""
    writer = StoreWriter(tmp_path, BrokenNames)
    writer.open_run(make_run())
    writer.add_images([(IMAGES[1], None)])
    writer.append(
        make_window(0, [Hit(0, "a", 1, 0, ((2, 1),), 1, 1), Hit(0, "a", 1, 0, ((77, 1),), 1, 1)])
    )
    assert writer._namer.errors["ValueError"] == 1
    assert writer._namer.errors["StoreError"] == 1
    writer.close()
    with open_reader(tmp_path) as reader:
        result = reader.report(ReportQuery(sort=("image", "symbol"), top=0))
        assert result.keys["image"] == ["/usr/lib/libc.so.6", "[unknown]"]
        assert result.keys["symbol"] == ["[unknown]", "[unknown]"]
        assert result.quality["degraded"]["unnamed"] == 2


def test_text_that_is_not_utf8_is_kept_readable(tmp_path):
    """Odd bytes in comms and paths are shown escaped, not refused."""
    writer = StoreWriter(tmp_path, PlainNames)
    writer.open_run(make_run())
    path = b"/tmp/caf\xe9".decode("utf-8", "surrogateescape")
    writer.add_images([(ImageInfo(uid=9, kind="file", path=path), None)])
    comm = b"\xff\x01x".decode("utf-8", "surrogateescape")
    writer.append(make_window(0, [Hit(0, comm, 1, 0, ((9, 64),), 1, 1)]))
    writer.close()
    with open_reader(tmp_path) as reader:
        result = reader.report(ReportQuery(sort=("comm", "image")))
        assert result.keys["comm"] == ["\\xff\x01x"]
        assert result.keys["image"] == ["/tmp/caf\\xe9"]


def test_open_files_go_to_the_resolver(tmp_path):
    """An image's descriptor reaches the resolver, which reads and closes it."""
    image = tmp_path / "image"
    image.write_bytes(b"content")
    names = PlainNames(None)
    writer = StoreWriter(tmp_path / "session", names)
    writer.open_run(make_run())
    with image.open("rb") as file:
        writer.add_images([(IMAGES[1], os.dup(file.fileno()))])
    assert names.files == {2: b"content"}
    writer.close()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("row_sfile", b"\xff\xff\xff\xff"),
        ("row_stack", b"\x09\0\0\0"),
        ("row_hits", bytes(8)),
        ("row_weight", b""),
        ("stack_start", b"\1\0\0\0\1\0\0\0"),
        ("stack_flags", b""),
        ("sfile_comm", b"x"),
        ("frame_address", b"x"),
    ],
)
def test_a_window_that_does_not_fit_is_refused(writer, field, value):
    """Lengths and indices are checked; the next window is stored."""
    window = make_window(0, [Hit(0, "a", 1, 0, ((2, 1),), 1, 1)])
    setattr(window, field, value)
    with pytest.raises(StoreError, match="invalid window"):
        writer.append(window)
    assert writer.append(make_window(0, random_hits(1))).new


def test_a_failed_window_leaves_no_trace(writer, tmp_path, monkeypatch):
    """After an error half-way, names and stacks made in it are made again."""
    monkeypatch.setattr(writer, "_add_window", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        writer.append(make_window(0, random_hits(1)))
    monkeypatch.undo()
    for sequence in range(8):
        writer.append(make_window(sequence, random_hits(sequence)))
    with open_reader(tmp_path / "session") as reader:
        hits = [hit for sequence in range(8) for hit in random_hits(sequence)]
        assert rows_of(reader.report(ReportQuery(top=0))) == expected(
            hits, ("comm", "image", "symbol")
        )


def test_deeper_frames_and_threads_are_kept(tmp_path):
    """Empty windows are stored; thread and cpu are keys when separated."""
    writer = StoreWriter(tmp_path, PlainNames)
    writer.open_run(make_run())
    writer.add_images([(info, None) for info in IMAGES])
    writer.append(make_window(0, []))
    hits = [Hit(0, "a", 5, 0, ((2, 1), (2, 99)), 2, 7, tid=6, cpu=1)]
    writer.append(make_window(1, hits))
    writer.close()
    with open_reader(tmp_path) as reader:
        result = reader.report(ReportQuery(sort=("pid", "thread", "cpu")))
        assert rows_of(result) == {(5, 6, 1): (2, 7)}

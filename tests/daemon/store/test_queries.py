"""Reading a store: roll-ups against windows, ranges, names asked for in vain."""

import sqlite3
import threading
from array import array

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_names import PlainNames
from synthetic import IMAGES, START_NS, WINDOW_NS, expected, make_run, make_window, random_hits

from opd.errors import StoreError, UnknownNameError
from opd.store.queries import ReportQuery, open_reader
from opd.store.rollup import add_block, pack_rollup, unpack_rollup
from opd.store.scan import Part, Scan
from opd.store.writer import StoreWriter
from opd_native.condense import RollupSums

MINUTE_NS = 60_000_000_000
HOUR_NS = 60 * MINUTE_NS
KEYS = ("comm", "image", "symbol")


def write(directory, windows, run=None):
    """A store of these windows."""
    writer = StoreWriter(directory, PlainNames)
    writer.open_run(run or make_run())
    writer.add_images([(info, None) for info in IMAGES])
    for window in windows:
        writer.append(window)
    writer.close()


def rows_of(result):
    """The rows of a report as a dict."""
    keys = zip(*result.keys.values(), strict=True)
    return dict(zip(keys, zip(result.samples, result.weight, strict=True), strict=True))


# Steps between windows in seconds: usual, a gap, a clock set back.
_STEPS = st.lists(st.sampled_from([1, 7, 10, 10, 10, 30, 95, 1800, -40, -4000]), max_size=25)


@settings(max_examples=60, deadline=None)
@given(
    steps=_STEPS,
    since=st.none() | st.integers(-4000, 9000),
    length=st.none() | st.integers(0, 9000),
    reopened=st.sets(st.integers(0, 24), max_size=3),
)
def test_rollups_equal_the_windows(tmp_path_factory, steps, since, length, reopened):
    """Any range gives the same from roll-ups, from blocks, and from the hits themselves."""
    directory = tmp_path_factory.mktemp("s")
    spans, all_hits = [], []
    writer = None
    start = START_NS + 1234
    for sequence, step in enumerate([0, *steps]):
        if writer is None or sequence in reopened:
            if writer is not None:
                # As after kill -9: nothing is finished.
                writer._connection.close()
            writer = StoreWriter(directory, PlainNames)
            writer.open_run(make_run())
            writer.add_images([(info, None) for info in IMAGES])
        start += step * 1_000_000_000
        end = start + max(step, 1) * 1_000_000_000 if step < 100 else start + WINDOW_NS
        hits = random_hits(sequence, rows=6)
        writer.append(make_window(sequence, hits, start, end))
        spans.append((start, end))
        all_hits.append(hits)
    if sequence % 2:
        writer.close()
    else:
        writer._connection.close()
    since_ns = None if since is None else START_NS + since * 1_000_000_000
    until_ns = None if length is None else START_NS + ((since or 0) + length) * 1_000_000_000
    inside = [
        hit
        for (begin, end), hits in zip(spans, all_hits, strict=True)
        if (since_ns is None or end > since_ns or begin >= since_ns)
        and (until_ns is None or begin < until_ns)
        for hit in hits
    ]
    with open_reader(directory) as reader:
        query = ReportQuery(sort=KEYS, top=0, since_ns=since_ns, until_ns=until_ns)
        result = reader.report(query)
        assert rows_of(result) == expected(inside, KEYS)
        assert result.quality["frames"] is not None
        scans = []
        for rolled in (True, False):
            scan = Scan(reader._connection, KEYS, [(since_ns, until_ns)], rolled=rolled)
            (run,) = reader._runs(None)
            scan.add_run(
                Part(run.id, [0], run.longest_ns, run.minutes_until, run.hours_until),
            )
            rows = scan.rows()
            sums = zip(zip(*rows.cells, strict=True), rows.samples, rows.weight, strict=True)
            scans.append((sorted(sums), scan.totals()))
        assert scans[0] == scans[1]
        counted = reader.quality(since_ns=since_ns, until_ns=until_ns)["windows"]["have"]
        assert counted * 6 == len(inside)


def rollup_sums(block):
    """What a roll-up's block says: samples, weight and squares by key."""
    columns, bits = unpack_rollup(block)
    event, mode, _, _, _, image, comm, unit, cgroup, sfile, symbol, hits, excess = columns
    squares = array("f")
    squares.frombytes(array("I", bits).tobytes())
    sums = {}
    for at, name, samples, more, square in zip(sfile, symbol, hits, excess, squares, strict=True):
        weight = samples * unit[at] + more
        key = (event[at], comm[at], image[at], mode[at], cgroup[at]), name
        sums[key] = [samples, weight, square or float(weight) * weight]
    return sums


def test_squares_are_sums_over_windows(tmp_path):
    """The roll-up's squares are those of each window's weight of the key."""
    windows = [make_window(sequence, random_hits(1, rows=1)) for sequence in range(6)]
    write(tmp_path, windows)
    connection = sqlite3.connect(tmp_path / "opd.db")
    (block,) = connection.execute("SELECT block FROM minutes").fetchone()
    connection.close()
    ((_key, sums),) = rollup_sums(block).items()
    (hit,) = random_hits(1, rows=1)
    assert sums[:2] == [6 * hit.hits, 6 * hit.weight]
    assert sums[2] == pytest.approx(6 * hit.weight**2, rel=1e-6)


window_groups = st.dictionaries(
    st.tuples(
        st.tuples(
            *(st.integers(0, 3), st.integers(1, 5), st.integers(1, 1 << 31), st.integers(0, 1)),
            st.integers(0, 3),
        ),
        st.integers(1, (1 << 32) - 1),
    ),
    st.tuples(st.integers(1, 1 << 20), st.integers(0, 1 << 40)),
    max_size=20,
)


@given(st.lists(window_groups, max_size=5))
def test_a_rollup_block_gives_back_its_sums(windows):
    """Samples and weight are exact, squares to seven digits, also after a second packing."""
    sums, expected = RollupSums(), {}
    for window in windows:
        abouts = [about for about, _symbol in window]
        about = [array("I", [key[i] for key in abouts]) for i in range(5)]
        groups = [array("I", range(len(window))), array("I", [symbol for _about, symbol in window])]
        groups += [array("Q", [hits for hits, _weight in window.values()])]
        groups += [array("Q", [weight for _hits, weight in window.values()])]
        sums.add([*about, array("Q", bytes(8 * len(window)))], groups)
        for key, (hits, weight) in window.items():
            entry = expected.setdefault(key, [0, 0, 0.0])
            entry[0] += hits
            entry[1] += weight
            entry[2] += float(weight) ** 2
    block = pack_rollup(sums)
    again = RollupSums()
    add_block(again, block)
    for found in (rollup_sums(block), rollup_sums(pack_rollup(again))):
        assert found.keys() == expected.keys()
        for key, entry in expected.items():
            assert found[key][:2] == entry[:2]
            assert found[key][2] == pytest.approx(entry[2], rel=1e-6)


def test_hours_are_used_and_agree(tmp_path):
    """Whole hours come from the hours table."""
    windows = [
        make_window(sequence, random_hits(sequence, rows=4), START_NS + sequence * 5 * MINUTE_NS)
        for sequence in range(60)
    ]
    write(tmp_path, windows)
    with open_reader(tmp_path) as reader:
        statements = []
        reader._connection.set_trace_callback(statements.append)
        result = reader.report(ReportQuery(sort=KEYS, top=0))
        reader._connection.set_trace_callback(None)
    assert any("FROM hours" in statement for statement in statements)
    hits = [hit for sequence in range(60) for hit in random_hits(sequence, rows=4)]
    assert rows_of(result) == expected(hits, KEYS)


def test_a_range_takes_windows_that_overlap_it(tmp_path):
    """A window counts whole when any of it is in the range; until is exclusive."""
    write(tmp_path, [make_window(sequence, random_hits(sequence)) for sequence in range(6)])
    samples = [sum(hit.hits for hit in random_hits(sequence)) for sequence in range(6)]
    with open_reader(tmp_path) as reader:
        for keys in (KEYS, ("pid",)):
            half = WINDOW_NS // 2
            query = ReportQuery(
                sort=keys, since_ns=START_NS + WINDOW_NS + half, until_ns=START_NS + 3 * WINDOW_NS
            )
            assert reader.report(query).total == samples[1] + samples[2]


def test_names_that_do_not_exist_are_refused_with_those_that_do(tmp_path):
    """Event, session, sort key: each error lists what is valid."""
    write(tmp_path, [make_window(0, random_hits(0))])
    with open_reader(tmp_path) as reader:
        with pytest.raises(UnknownNameError, match="cpu-clock"):
            reader.report(ReportQuery(event="cycles"))
        with pytest.raises(UnknownNameError, match="default"):
            reader.report(ReportQuery(session="other"))
        with pytest.raises(UnknownNameError, match="comm, pid, image, symbol, event, mode"):
            reader.report(ReportQuery(sort=("command",)))
        with pytest.raises(UnknownNameError, match="not separated"):
            reader.report(ReportQuery(sort=("thread",)))


def test_an_event_without_hits_has_total_zero(tmp_path):
    """A session with no window yet is an answer, not an error."""
    write(tmp_path, [])
    with open_reader(tmp_path) as reader:
        result = reader.report(ReportQuery())
        assert (result.total, result.weight_total, result.samples) == (0, 0, [])
        assert result.quality["windows"] == {"have": 0, "missing": 0}
        assert [event.name for event in reader.events()] == ["cpu-clock"]
        assert [run.run for run in reader.runs()] == ["f" * 32]


def test_an_event_of_an_earlier_run_is_told_from_the_latest_ones(tmp_path):
    """Its samples are there to ask for; a reload took it away."""
    first, other = make_run(), make_run(run="1" * 32, started_ns=START_NS + 1)
    dropped = msgspec.structs.replace(first.events[0], name="profile_hash")
    first = msgspec.structs.replace(first, events=[*first.events, dropped])
    for run in (first, other):
        write(tmp_path, [], run)
    with open_reader(tmp_path) as reader:
        found = [(event.name, latest) for event, latest in reader.events_by_run()]
        assert found == [("cpu-clock", True), ("profile_hash", False)]
        assert [event.name for event in reader.events()] == [name for name, _ in found]


def test_the_latest_session_is_the_default(tmp_path):
    """Of several sessions the one that started last answers."""
    for number, name in enumerate(("one", "two")):
        run = make_run(run=str(number) * 32, session=name, started_ns=START_NS + number)
        write(tmp_path, [make_window(0, random_hits(number))], run)
    with open_reader(tmp_path) as reader:
        assert reader.report(ReportQuery()).session == "two"
        assert reader.report(ReportQuery(session="one")).session == "one"


def test_a_damaged_block_is_reported_and_the_rest_answered(tmp_path):
    """Windows that cannot be read are counted; the others are in the answer."""
    write(tmp_path, [make_window(sequence, random_hits(sequence)) for sequence in range(3)])
    connection = sqlite3.connect(tmp_path / "opd.db")
    block = connection.execute("SELECT groups FROM blocks WHERE window = 2").fetchone()[0]
    for broken in (b"", b"junk", block[:-9], block[:20] + b"\xff\xff" + block[22:]):
        connection.execute("UPDATE blocks SET groups = ? WHERE window = 2", (broken,))
        connection.commit()
        with open_reader(tmp_path) as reader:
            result = reader.report(ReportQuery(sort=("pid",)))
        assert result.damaged == 1
        assert result.total == sum(hit.hits for s in (0, 2) for hit in random_hits(s))
    connection.close()


def test_a_reader_sees_whole_windows_while_a_writer_writes(tmp_path):
    """Every answer is one state of the store: totals only grow, and quality agrees."""
    writer = StoreWriter(tmp_path, PlainNames)
    writer.open_run(make_run())
    writer.add_images([(info, None) for info in IMAGES])
    done = threading.Event()
    answers = []

    def read():
        with open_reader(tmp_path) as reader:
            while not done.is_set():
                result = reader.report(ReportQuery(top=0))
                frames = result.quality["frames"]
                answers.append((result.total, sum(frames.values())))

    thread = threading.Thread(target=read)
    thread.start()
    for sequence in range(60):
        writer.append(make_window(sequence, random_hits(sequence)))
    done.set()
    thread.join()
    writer.close()
    assert answers
    assert all(total == frames for total, frames in answers)
    assert [total for total, _ in answers] == sorted(total for total, _ in answers)


def test_no_store_is_said_with_its_path(tmp_path):
    """A directory without a store is an error that names the file."""
    with pytest.raises(StoreError, match=r"opd\.db: no store"):
        open_reader(tmp_path / "none")

"""What goes with age and for room, what stays, and that answers agree with what is left."""

import sqlite3
import time
from itertools import chain

import pytest
from plain_names import PlainNames
from synthetic import IMAGES, Hit, expected, make_run, make_window, random_hits

from opd.errors import StoreError
from opd.sampling.window import CgroupInfo, ImageInfo
from opd.store import epochs, retention, sweep
from opd.store.blocks import unpack_rows
from opd.store.messages import Keep
from opd.store.queries import ReportQuery, open_reader
from opd.store.stacks import StackReader
from opd.store.writer import StoreWriter

MINUTE_NS = 60 * 10**9
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS
SORT = ("comm", "image", "symbol")
CHURNED = ("names", "images", "cgroups", "stacks", "frames", "epochs")


@pytest.fixture(autouse=True)
def _believed_at_once(monkeypatch):
    """The clock counts as steady, and epochs as old, from the start."""
    monkeypatch.setattr(retention, "_STEADY_SECONDS", 0.0)
    monkeypatch.setattr(epochs, "YOUNG_NS", 0)


def new_writer(directory, **run):
    """A writer with a run and its images."""
    writer = StoreWriter(directory, PlainNames)
    writer.open_run(make_run(**{"session": "live", **run}))
    writer.add_images([(info, None) for info in IMAGES])
    return writer


def settle(writer, limits):
    """Apply the limits until nothing is left to do."""
    writer.keep(limits)
    if writer.retention is not None:
        writer.retention._looked = -100.0
    for _ in range(100_000):
        if not writer.tidy():
            return
    raise AssertionError("retention never ends")


def counts_of(connection, *tables):
    """Rows by table."""
    return {
        table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
        for table in tables
    }


def rows_of(result):
    """The rows of a report as a dict."""
    keys = zip(*result.keys.values(), strict=True)
    return dict(zip(keys, zip(result.samples, result.weight, strict=True), strict=True))


def assert_answers(directory, hits, session="live", missing=0):
    """By every way of reading, the store holds just these hits."""
    with open_reader(directory) as reader:
        for sort in (SORT, ("comm",), ("pid", "comm")):
            result = reader.report(ReportQuery(sort=sort, top=0, session=session))
            assert rows_of(result) == expected(chain.from_iterable(hits), sort)
            assert result.damaged == 0
        have = reader.quality(session=session)["windows"]
        assert have == {"have": len(hits), "missing": missing}


def test_windows_go_with_age_oldest_first(tmp_path):
    """Those older than the limit are gone from windows, minutes, hours and quality; no others."""
    writer = new_writer(tmp_path)
    now = time.time_ns()
    hits = [random_hits(seed, rows=8) for seed in range(60)]
    # Five hours, a window every five minutes.
    starts = [now - 5 * HOUR_NS + at * 5 * MINUTE_NS for at in range(60)]
    for sequence, (some, start) in enumerate(zip(hits, starts, strict=True)):
        writer.append(make_window(sequence, some, start))
    settle(writer, Keep(days=2.6 / 24))
    cutoff = time.time_ns() - int(2.6 * HOUR_NS)
    kept = [some for some, start in zip(hits, starts, strict=True) if start >= cutoff]
    assert 25 < len(kept) < 35
    gone = writer.retention.gone
    assert gone.windows == 60 - len(kept)
    assert gone.samples == sum(h.hits for some in hits[: gone.windows] for h in some)
    assert "older than" in gone.reason
    assert_answers(tmp_path, kept)
    # It goes on: late ones and new ones are added to what is left.
    more = [random_hits(seed, rows=8) for seed in (100, 101)]
    writer.append(make_window(60, more[0], starts[-10]))
    writer.append(make_window(61, more[1], now + MINUTE_NS))
    assert_answers(tmp_path, [*kept, *more])
    writer.close()
    assert_answers(tmp_path, [*kept, *more])


def test_saved_sessions_and_imports_stay(tmp_path):
    """Age and room take the unsaved live sessions only, and it is said when that is not enough."""
    old = time.time_ns() - 40 * DAY_NS
    writer = new_writer(tmp_path)
    writer.append(make_window(0, random_hits(0), old))
    writer.carry_out("a", "save", {"name": "kept"})
    writer.append(make_window(1, random_hits(1), old + HOUR_NS))
    reset = writer.carry_out("b", "reset", {})["session"]
    writer.open_run(make_run(run="e" * 32, kind="import", session="perf.data"))
    writer.add_images([(info, None) for info in IMAGES])
    writer.append(make_window(0, random_hits(2), old))
    settle(writer, Keep(days=30))
    with open_reader(tmp_path) as reader:
        names = {info.name: info.windows for info in reader.sessions()}
        assert names == {"kept": 1, "perf.data": 1, "live": 0}
        assert reset not in names
    assert writer.retention.stuck == ""
    settle(writer, Keep(bytes=1 << 10))
    assert writer.retention.stuck == "more than 0 MiB"
    assert writer.retention.news()[0] == "warning"
    for session, seed in (("kept", 0), ("perf.data", 2)):
        assert_answers(tmp_path, [random_hits(seed)], session)
    writer.close()


@pytest.mark.timeout(400)
def test_bytes_are_kept_and_the_file_shrinks(tmp_path, monkeypatch):
    """All files count, segments too; the newest windows are what is left."""
    monkeypatch.setattr(epochs, "EPOCH_SECONDS", 0.5)
    writer = new_writer(tmp_path)
    start = time.time_ns() - 20 * HOUR_NS
    for sequence in range(1200):
        writer.append(
            make_window(sequence, random_hits(sequence, rows=300), start + sequence * MINUTE_NS)
        )
    segments = tmp_path / "segments"
    segments.mkdir()
    hour = time.strftime("%Y%m%dT%H", time.gmtime(start // 10**9))
    old_segment = segments / f"live-ffffffff-{hour}.parquet"
    old_segment.write_bytes(bytes(200_000))
    before = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert before > 4 << 20
    limit = before // 2
    settle(writer, Keep(bytes=limit))
    assert not old_segment.exists()
    assert writer.retention.gone.segments == 1
    writer.close()
    after = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert after <= limit + (1 << 20) + (256 << 12)
    with open_reader(tmp_path) as reader:
        (session,) = reader.sessions()
        assert 200 < session.windows < 1100
        first = 1200 - session.windows
        assert session.first_ns == start + first * MINUTE_NS
    assert_answers(tmp_path, [random_hits(seed, rows=300) for seed in range(first, 1200)])


def test_segments_of_saved_sessions_stay(tmp_path):
    """Whatever name the session had when the file was written."""
    writer = new_writer(tmp_path)
    old = (time.time_ns() - 40 * DAY_NS) // HOUR_NS * HOUR_NS
    writer.append(make_window(0, random_hits(0), old))
    writer.carry_out("a", "save", {"name": "kept"})
    (tmp_path / "segments").mkdir()
    names = []
    for at in (old, old + HOUR_NS):
        hour = time.strftime("%Y%m%dT%H", time.gmtime(at // 10**9))
        names.append(tmp_path / "segments" / f"live-ffffffff-{hour}.parquet")
        names[-1].write_bytes(b"PAR1")
    settle(writer, Keep(days=30))
    assert [path.exists() for path in names] == [True, False]
    writer.close()


def test_the_minute_that_fills_stays(tmp_path):
    """However small the limit, what the writer still adds up is not taken from under it."""
    writer = new_writer(tmp_path)
    now = time.time_ns() // MINUTE_NS * MINUTE_NS
    hits = [random_hits(seed) for seed in range(8)]
    for sequence in range(6):
        writer.append(make_window(sequence, hits[sequence], now + (sequence - 5) * MINUTE_NS))
    settle(writer, Keep(bytes=1024))
    assert_answers(tmp_path, hits[5:6])
    for sequence in (6, 7):
        writer.append(make_window(sequence, hits[sequence], now + sequence * 10**9))
    assert_answers(tmp_path, hits[5:8])
    writer.close()
    assert_answers(tmp_path, hits[5:8])


def test_a_clock_that_jumps_deletes_nothing_for_a_while(tmp_path, monkeypatch):
    """A clock set decades ahead does not take the history with it at once."""
    monkeypatch.setattr(retention, "_STEADY_SECONDS", 600.0)
    writer = new_writer(tmp_path)
    writer.append(make_window(0, random_hits(0), time.time_ns() - 40 * DAY_NS))
    writer.append(make_window(1, random_hits(1), time.time_ns()))
    settle(writer, Keep(days=30))
    assert_answers(tmp_path, [random_hits(0), random_hits(1)])
    # And when it has been right for long enough, age counts.
    writer.retention._steady_since -= 601
    settle(writer, Keep(days=30))
    assert_answers(tmp_path, [random_hits(1)])
    monkeypatch.setattr(retention, "_clock_offset_ns", lambda: 0)
    settle(writer, Keep(days=30))
    assert time.monotonic() - writer.retention._steady_since < 60
    writer.close()


def test_windows_dated_ahead_go_with_their_neighbours(tmp_path):
    """Taken while the clock was wrong, their age is that of what was stored after them."""
    writer = new_writer(tmp_path)
    now = time.time_ns()
    starts = [now + 3650 * DAY_NS, now - 40 * DAY_NS, now - 39 * DAY_NS, now]
    for sequence, start in enumerate(starts):
        writer.append(make_window(sequence, random_hits(sequence), start))
    settle(writer, Keep(days=30))
    # The minute that fills stays with its writer, whatever it is dated.
    assert_answers(tmp_path, [random_hits(0), random_hits(3)], missing=2)
    writer.append(make_window(4, random_hits(4), now + 4000 * DAY_NS))
    writer.append(make_window(5, random_hits(5), now + 1))
    writer.retention._passed = "a test"
    assert writer.retention._oldest_minute() == (1, starts[0] // MINUTE_NS)
    writer.close()


def churn(writer, sequence, start):
    """A window that mentions a path, a comm and a cgroup that no other does, and a common one."""
    uid = 1000 + sequence
    path = f"/tmp/build-{sequence:08d}-{'x' * 80}/a.out"
    writer.add_images([(ImageInfo(uid=uid, kind="file", path=path), None)])
    writer.add_cgroups([CgroupInfo(uid, f"/docker/{sequence:064x}")])
    hits = [
        Hit(0, f"c{sequence}", 7, 0, ((uid, 64 * sequence), (2, 0x20000)), 3, 30),
        Hit(0, "same", 8, 0, ((3, 0x40), (2, 0x20000)), 1, 10),
    ]
    window = make_window(sequence, hits, start)
    window.sfile_cgroup = b"".join(uid.to_bytes(4, "little") for _ in range(window.sfiles))
    writer.append(window)
    writer.add_cgroups([CgroupInfo(uid, "", gone=True)])
    return hits


def test_names_of_what_is_gone_go_too(tmp_path, monkeypatch):
    """A day of a new program and container a minute: tables and file stay bounded, names whole."""
    monkeypatch.setattr(epochs, "EPOCH_SECONDS", 0.0)  # every window begins one
    writer = new_writer(tmp_path)
    begin = time.time_ns() - 24 * HOUR_NS
    sizes, kept = [], {}
    for sequence in range(1440):
        kept[sequence] = churn(writer, sequence, begin + sequence * MINUTE_NS)
        if sequence % 120 == 119:
            # Two hours are kept; the clock of the test stands at its end.
            age = (time.time_ns() - begin - (sequence - 119) * MINUTE_NS) / DAY_NS
            settle(writer, Keep(days=age))
            connection = writer._connection
            counts = counts_of(
                connection, "names", "images", "cgroups", "stacks", "frames", "epochs"
            )
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            sizes.append((counts, pages))
    for counts, _pages in sizes:
        assert counts["images"] <= 130
        assert counts["cgroups"] <= 125
        assert counts["names"] <= 600
        assert counts["stacks"] <= 125
        assert counts["frames"] <= 125
    assert max(pages for _counts, pages in sizes[2:]) < 1.5 * sizes[1][1] + 256
    stored = [row[0] for row in writer._connection.execute("SELECT sequence FROM windows")]
    assert len(stored) in range(115, 122)
    left = [kept[sequence] for sequence in stored]
    with open_reader(tmp_path) as reader:
        result = reader.report(ReportQuery(sort=("comm", "image"), top=0))
        assert result.total == sum(hit.hits for hits in left for hit in hits)
        assert "[unknown]" not in result.keys["comm"]
        comms = set(result.keys["comm"])
    assert comms == {hit.comm for hits in left for hit in hits}
    assert writer.retention.gone.names > 1440 * 2
    # Every stack that is still named by a window is there, with its names.
    numbers = {
        stack
        for (block,) in writer._connection.execute("SELECT rows FROM blocks")
        for stack in unpack_rows(block)[1]
    }
    for stack in StackReader(writer._connection).read(sorted(numbers)):
        assert all("[unknown]" not in (frame.image, frame.name) for frame in stack.frames)
    writer.close()


def test_a_sweep_beside_writers_takes_nothing_they_use(tmp_path, monkeypatch):
    """Windows of two writers between its steps, with names old and new: all are still there."""
    monkeypatch.setattr(epochs, "EPOCH_SECONDS", 0.0)
    monkeypatch.setattr(sweep, "_ROWS_A_STEP", 7)
    monkeypatch.setattr(sweep, "_BLOCKS_A_STEP", 3)
    writer = new_writer(tmp_path)
    begin = time.time_ns() - 3 * HOUR_NS
    for sequence in range(60):
        churn(writer, sequence, begin + sequence * MINUTE_NS)
    other = StoreWriter(tmp_path, PlainNames)
    other.open_run(make_run(run="e" * 32, kind="import", session="other"))
    other.add_images([(info, None) for info in IMAGES])
    # The other remembers names that the sweep is about to find unused.
    expect = {"live": [], "other": []}
    expect["other"].append(churn(other, 5, begin + 5 * MINUTE_NS))
    writer.keep(Keep(days=2.5 / 24))
    made = sweep.Sweep
    steps = []

    class Interrupted(made):
        """Writers come between any two steps."""

        def step(self, seconds):
            del seconds
            at = len(steps)
            steps.append(at)
            if at % 3 == 0 and at < 90:
                old = at // 3
                expect["live"].append(churn(writer, 60 + at, time.time_ns()))
                uid = 1000 + old
                path = f"/tmp/build-{old:08d}-{'x' * 80}/a.out"
                other.add_images([(ImageInfo(uid=uid, kind="file", path=path), None)])
                expect["other"].append(churn(other, 100 + old, time.time_ns()))
                expect["other"][-1] += churn(other, 1000 + old, time.time_ns())
            return next(self._work, self) is not self

    monkeypatch.setattr(retention, "Sweep", Interrupted)
    for _ in range(100_000):
        if not writer.tidy():
            break
    assert len(steps) > 20
    assert writer.retention.gone.windows >= 29
    for session, hits in expect.items():
        with open_reader(tmp_path) as reader:
            result = reader.report(ReportQuery(sort=("comm", "image"), top=0, session=session))
        have = rows_of(result)
        for some in hits:
            for hit in some:
                assert any(comm == hit.comm for comm, _image in have), hit.comm
        assert not any("[unknown]" in key for key in have)
    other.close()
    writer.close()


def test_a_run_that_is_empty_goes_and_its_session(tmp_path):
    """Runs, sessions and epochs without windows are not listed for ever."""
    old = time.time_ns() - 40 * DAY_NS
    for number in range(5):
        writer = new_writer(tmp_path, run=f"{number:032x}")
        writer.append(make_window(0, random_hits(number), old))
        writer.carry_out("r", "reset", {}) if number == 2 else None
        writer.carry_out(str(number), "reset", {})
        writer.close()
    writer = new_writer(tmp_path, run="d" * 32)
    middle = time.time_ns() // HOUR_NS * HOUR_NS - HOUR_NS // 2  # its hour is not over by its end
    writer.append(make_window(0, random_hits(9), middle))
    settle(writer, Keep(days=30))
    writer.close()
    connection = sqlite3.connect(tmp_path / "opd.db")
    counts = counts_of(
        connection, "sessions", "runs", "epochs", "windows", "blocks", "minutes", "hours"
    )
    connection.close()
    assert counts.pop("hours") == 0
    assert set(counts.values()) == {1}
    assert_answers(tmp_path, [random_hits(9)])


def test_limits_can_be_taken_back(tmp_path):
    """Without limits nothing goes."""
    writer = new_writer(tmp_path)
    writer.append(make_window(0, random_hits(0), time.time_ns() - 400 * DAY_NS))
    settle(writer, Keep())
    settle(writer, Keep(bytes=1 << 30, days=500))
    settle(writer, Keep())
    assert_answers(tmp_path, [random_hits(0)])
    writer.close()


def test_what_could_not_be_deleted_is_not_counted(tmp_path, monkeypatch):
    """A transaction that is undone leaves windows, counts and the log as they were."""
    writer = new_writer(tmp_path)
    hits = [random_hits(seed) for seed in range(3)]
    for sequence, some in enumerate(hits):
        start = time.time_ns() - (3 - sequence) * HOUR_NS
        writer.append(make_window(sequence, some, start))
    whole = retention.Retention._delete_minute

    def fails(self, run, minute):
        whole(self, run, minute)
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(retention.Retention, "_delete_minute", fails)
    with pytest.raises(StoreError, match=r"cannot delete what is old: .*full"):
        settle(writer, Keep(days=1.5 / 24))
    assert writer.retention.gone.windows == writer.retention.gone.samples == 0
    assert writer.retention.news() is None
    assert_answers(tmp_path, hits)
    writer.close()

"""Segments: what is in them, when they are written, what a kill leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from plain_names import PlainNames
from segment_history import HOUR, START_NS, WINDOW_NS, WINDOWS_AN_HOUR, History
from synthetic import IMAGES, Hit, expected, make_run

from opd.errors import OperationFailedError, StoreError
from opd.store.queries import open_reader
from opd.store.segments.files import FOLDER, HOUR_NS, list_segments, unfinished_name
from opd.store.segments.footer import (
    IMAGES as IMAGES_KEY,
)
from opd.store.segments.footer import (
    WINDOWS,
    numbers_of,
    ranges_of,
    read_about,
    read_columns,
)
from opd.store.segments.write import write_segments

duckdb = pytest.importorskip("duckdb")


@pytest.fixture
def history(tmp_path):
    """An empty store."""
    made = History(tmp_path)
    yield made
    made.close()


def write(history, **settings):
    """What the writer says of each segment."""
    return list(write_segments(history.directory, **settings))


def rows(path, what="*", more=""):
    """Rows of a segment, straight from the file."""
    with duckdb.connect(":memory:") as connection:
        query = f"SELECT {what} FROM read_parquet(?) {more}"  # noqa: S608
        return connection.execute(query, [str(path)]).fetchall()


def paths(history):
    """The segments there are."""
    return [segment.path for segment in list_segments(history.directory)]


def test_a_segment_has_every_hit_of_its_hour(history):
    """By comm, pid, mode, image and symbol, samples and weight are those of the hits."""
    history.add_hours(2)
    said = write(history)
    assert [line["samples"] for line in said] == [
        history.totals(range(6))[0],
        history.totals(range(6, 12))[0],
    ]
    got = {}
    for path in paths(history):
        for *key, samples, weight in rows(path, "comm, pid, mode, image, symbol, samples, weight"):
            before = got.get(tuple(key), (0, 0))
            got[tuple(key)] = (before[0] + samples, before[1] + weight)
    everything = [hit for hits in history.hits.values() for hit in hits]
    assert got == expected(everything, ("comm", "pid", "mode", "image", "symbol"))


def test_a_segment_names_the_frames_of_its_stacks(history):
    """Leaf first, symbol and image of each, and the leaf is the row's symbol."""
    history.add_hours(1)
    write(history)
    (path,) = paths(history)
    names = PlainNames(None)
    for image in IMAGES:
        names.add_image(image, None)
    files = {image.uid: image.path for image in IMAGES}

    def named(hit):
        frames = []
        for at, (uid, offset) in enumerate(hit.frames):
            address = names.elf_addresses(uid, [offset])
            frames.append((names.name_runs(uid, address, caller=at > 0)[0][0].text, files[uid]))
        return tuple(frames)

    wanted = history.by(named)
    stacks = {
        stack: tuple((frame["symbol"], frame["image"]) for frame in frames)
        for stack, frames in rows(path, "stack, frames", "WHERE frames IS NOT NULL")
    }
    got = {}
    for stack, symbol, image, samples in rows(path, "stack, symbol, image, samples"):
        assert stacks[stack][0] == (symbol, image)
        got[stacks[stack]] = got.get(stacks[stack], 0) + samples
    assert got == wanted
    # Each stack is there once.
    assert len(stacks) == len(set(stacks.values())) == len(wanted)
    assert read_about(path).stacks == len(stacks)


def test_what_is_not_separated_or_not_known_is_null(history):
    """Threads and CPUs where they were kept apart, else nothing; cgroups likewise."""
    plain = Hit(0, "a", 7, 0, ((3, 64),), 1, 10)
    apart = Hit(0, "a", 7, 0, ((3, 64),), 2, 20, tid=8, cpu=1)
    history.add(0, [plain, apart])
    write(history)
    (path,) = paths(history)
    got = rows(path, "tid, cpu, cgroup, unit, container, samples", "ORDER BY samples")
    assert got == [(None, None, None, None, None, 1), (8, 1, None, None, None, 2)]


def test_a_cut_stack_is_not_the_whole_one(history):
    """Two chains with the same frames, one truncated, are two stacks."""
    frames = ((3, 64), (2, 128))
    history.add(0, [Hit(0, "a", 7, 0, frames, 1, 10), Hit(0, "a", 7, 0, frames, 2, 20, flags=5)])
    write(history)
    got = rows(paths(history)[0], "truncated, samples, len(frames)", "ORDER BY samples")
    assert got == [(False, 1, 2), (True, 2, 2)]


def test_windows_say_when_and_of_what_quality(history):
    """Times, sequence numbers and counters are in the file's texts."""
    history.add(0, ring_full=3)
    history.add(1, throttled_ns=5)
    write(history)
    (path,) = paths(history)
    about = read_about(path)
    assert (about.windows, about.hour, about.host) == ("0-1", HOUR, "host")
    assert about.quality["ring_full"] == 3
    assert about.quality["throttled_ns"] == 5
    assert about.events[0]["hz"] == 99
    windows = read_columns(path, WINDOWS)
    assert windows["start_ns"] == [START_NS, START_NS + WINDOW_NS]
    assert windows["ring_full"] == [3, 0]
    assert "idle" not in windows  # a counter that is 0 throughout
    assert set(read_columns(path, IMAGES_KEY)["path"]) <= {image.path for image in IMAGES}
    times = rows(path, "DISTINCT epoch_us(time), seconds", "ORDER BY 1")
    assert times == [(START_NS // 1000, 600.0), ((START_NS + WINDOW_NS) // 1000, 600.0)]


def test_an_hour_is_written_when_it_is_over_and_the_grace_with_it(history):
    """Not before, and then once."""
    history.add_hours(1)
    end = START_NS + HOUR_NS
    assert write(history, now_ns=end + 59 * 10**9, grace_s=60) == []
    assert len(write(history, now_ns=end + 60 * 10**9, grace_s=60)) == 1
    (path,) = paths(history)
    before = path.stat()
    assert write(history, now_ns=end + 600 * 10**9, grace_s=60) == []
    assert path.stat().st_ino == before.st_ino


def test_hours_missed_are_caught_up(history):
    """All that nobody wrote, oldest first; hours without windows have no file."""
    history.add_hours(1)
    history.add_hours(2, first=5)
    said = write(history)
    assert [segment.hour - HOUR for segment in list_segments(history.directory)] == [0, 5, 6]
    assert len(said) == 3


def test_what_retention_deleted_is_not_written_again(history):
    """The log still has the hour, which goes next; late windows of written hours are added."""
    history.add_hours(3)
    write(history)
    paths(history)[0].unlink()
    assert write(history) == []
    history.add(1000, start_ns=START_NS + HOUR_NS + WINDOW_NS)
    history.add_hours(1, first=3)
    said = write(history)
    assert [line["rewritten"] for line in said] == [True, False]
    assert [segment.hour - HOUR for segment in list_segments(history.directory)] == [1, 2, 3]


def test_an_import_of_old_times_has_its_segments(history):
    """It does not go with age, so it was not deleted."""
    history.add_hours(1, first=5)
    write(history)
    history.writer.open_run(make_run("e" * 32, session="old", kind="import", started_ns=START_NS))
    history.writer.add_images([(image, None) for image in IMAGES])
    history.add(0)
    assert len(write(history)) == 1


def test_a_late_window_is_added_to_its_hour(history):
    """The file is written anew, with the windows of before and the late one, each once."""
    history.add(0)
    history.add(2)
    write(history)
    (path,) = paths(history)
    old = path.stat().st_ino
    history.add(1)
    history.add(7)
    said = write(history)
    assert [line["rewritten"] for line in said] == [True, False]
    assert path.stat().st_ino != old
    about = read_about(path)
    assert about.windows == "0-2"
    assert about.quality["samples"] == history.totals([0, 1, 2])[0]
    assert sorted(read_columns(path, WINDOWS)["sequence"]) == [0, 1, 2]
    assert rows(path, "sum(samples), sum(weight)") == [history.totals([0, 1, 2])]
    assert rows(path, "count(DISTINCT stack)") == rows(path, "count(frames)")
    images = read_columns(path, IMAGES_KEY)
    assert len(images["path"]) == len(set(zip(images["path"], images["build_id"], strict=True)))
    assert write(history) == []


def test_a_late_window_is_added_when_the_log_has_forgotten_the_others(history):
    """What retention took from the log stays in the segment."""
    history.add(0)
    write(history)
    history.add(1)
    with sqlite3.connect(history.directory / "opd.db") as connection:
        connection.execute("DELETE FROM blocks WHERE window = 1")
        connection.execute("DELETE FROM windows WHERE id = 1")
    connection.close()
    write(history)
    assert rows(paths(history)[0], "sum(samples), sum(weight)") == [history.totals([0, 1])]


def test_a_renamed_session_keeps_its_segment(history):
    """The file belongs to the session, not to its name."""
    history.add(0)
    write(history)
    with sqlite3.connect(history.directory / "opd.db") as connection:
        connection.execute("UPDATE sessions SET name = 'before the deploy'")
    connection.close()
    history.add(1)
    write(history)
    assert len(paths(history)) == 1
    assert rows(paths(history)[0], "sum(samples), sum(weight)") == [history.totals([0, 1])]


def test_two_sessions_of_a_run_in_one_hour_have_a_file_each(history, tmp_path):
    """Also when their names make the same file name."""
    history.add(0)
    write(history)
    with sqlite3.connect(tmp_path / "opd.db") as connection:
        connection.execute("UPDATE sessions SET name = 'kept'")
    connection.close()
    # The same run goes on in a new session of the old name, with its clock set back.
    history.writer.open_run(make_run(started_ns=START_NS + 1))
    history.add(1)
    write(history)
    assert len(paths(history)) == 2
    assert sorted(read_about(path).windows for path in paths(history)) == ["0", "1"]
    assert sum(rows(path, "sum(samples)")[0][0] for path in paths(history)) == history.totals()[0]


def test_a_damaged_segment_is_replaced(history):
    """The log still has the hour."""
    history.add(0)
    write(history)
    (path,) = paths(history)
    path.write_bytes(path.read_bytes()[:-100])
    write(history)
    assert paths(history) == [path]
    assert rows(path, "sum(samples), sum(weight)") == [history.totals()]


def test_a_damaged_window_is_counted_and_the_others_are_there(history):
    """It has no rows; its quality is known."""
    history.add(0)
    history.add(1)
    with sqlite3.connect(history.directory / "opd.db") as connection:
        connection.execute("UPDATE blocks SET rows = x'00' WHERE window = 1")
    connection.close()
    write(history)
    (path,) = paths(history)
    assert read_about(path).damaged == 1
    assert read_about(path).windows == "0-1"
    assert rows(path, "sum(samples), sum(weight)") == [history.totals([1])]


def test_stacks_that_cannot_be_read_are_counted(history):
    """The samples stay, under [unknown]."""
    history.add(0)
    with sqlite3.connect(history.directory / "opd.db") as connection:
        connection.execute("UPDATE stacks SET block = x'00'")
    connection.close()
    write(history)
    (path,) = paths(history)
    assert read_about(path).missing_stacks > 0
    assert rows(path, "sum(samples), sum(weight)") == [history.totals()]
    assert rows(path, "DISTINCT symbol") == [("[unknown]",)]


def test_stacks_are_those_of_the_store(history):
    """Stacks read by numpy are those that the store's own reader gives, frame for frame."""
    np = pytest.importorskip("numpy")
    from opd.store.segments.frames import read_stacks
    from opd.store.segments.windowlog import read_log

    history.add_hours(1)
    with open_reader(history.directory) as reader:
        connection = reader._connection
        log = read_log(connection, [row[0] for row in connection.execute("SELECT id FROM windows")])
        numbers = np.unique(log.rows.stack)
        names = dict(connection.execute("SELECT id, text FROM names"))
        got = read_stacks(connection, numbers)
        paths = dict(connection.execute("SELECT id, path FROM images"))
        for at, stack in enumerate(reader.stacks(numbers.tolist())):
            first, last = got.start[at], got.start[at + 1]
            assert got.flags[at] == stack.flags
            assert [names[paths[image]] for image in got.image[first:last].tolist()] == [
                frame.image for frame in stack.frames
            ]
            assert [names[name] for name in got.name[first:last].tolist()] == [
                frame.name for frame in stack.frames
            ]


def test_a_window_without_samples_is_in_its_segment(history):
    """An hour of rest is known to be one."""
    history.add(0, [])
    write(history)
    (path,) = paths(history)
    assert read_about(path).windows == "0"
    assert rows(path) == []
    history.add(1)
    write(history)
    assert rows(path, "sum(samples), sum(weight)") == [history.totals()]


def test_many_chunks_are_one_segment(history, monkeypatch):
    """A large hour is read in parts; a stack of several parts is one."""
    from opd.store.segments import hourfile

    history.add_hours(1)
    write(history)
    (path,) = paths(history)
    whole = rows(path, "count(*), sum(samples), sum(weight), count(frames), max(stack)")
    path.unlink()
    monkeypatch.setattr(hourfile, "_CHUNK_BYTES", 1)
    write(history)
    assert rows(path, "count(*), sum(samples), sum(weight), count(frames), max(stack)") == whole


def test_names_are_whatever_they_are(history):
    """Quotes, tabs and bytes that are no text neither break a file nor change on the way."""
    comm = "it's \udcff \t;--"
    history.add(0, [Hit(0, comm, 1, 0, ((3, 64),), 1, 1)])
    write(history)
    assert rows(paths(history)[0], "comm") == [("it's \\xff \t;--",)]


def command(directory, *more):
    """The child as the daemon starts it."""
    return [
        *(sys.executable, "-P", "-m", "opd.store.segments.write"),
        *(f"--directory={directory}", f"--parent={os.getpid()}", *more),
    ]


def test_the_child_says_what_it_wrote(history):
    """A line of JSON a segment, and one about itself; mode 0640."""
    history.add_hours(1)
    done = subprocess.run(command(history.directory), capture_output=True, check=True)
    said, itself = [json.loads(line) for line in done.stdout.splitlines()]
    assert (said["samples"], said["windows"]) == (history.totals()[0], WINDOWS_AN_HOUR)
    assert itself["cpu_seconds"] > 0
    (path,) = paths(history)
    assert path.stat().st_mode & 0o777 == 0o640
    assert said["bytes"] == path.stat().st_size
    assert [entry.name for entry in path.parent.iterdir() if entry != path] == [".lock"]


def test_no_store_is_an_error_that_says_so(tmp_path):
    """And exit status 1."""
    done = subprocess.run(command(tmp_path), capture_output=True, check=False)
    assert done.returncode == 1
    assert "no store there" in json.loads(done.stdout.splitlines()[0])["error"]


@pytest.mark.parametrize("seconds", [0.2, 0.5, 0.8, 1.1])
def test_killed_at_any_moment_the_hours_are_written_later_once(history, seconds):
    """What is there is whole, and the next one writes the rest and clears up."""
    history.add_hours(6)
    child = subprocess.Popen(command(history.directory), stdout=subprocess.DEVNULL)
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    child.wait()
    for path in paths(history):
        about = read_about(path)
        assert rows(path, "sum(samples), sum(weight)") == [(about.samples, about.weight)]
    name = unfinished_name("x.parquet")
    (history.directory / FOLDER).mkdir(exist_ok=True)
    (history.directory / FOLDER / name).write_bytes(b"torn")
    write(history)
    assert len(paths(history)) == 6
    assert sum(rows(path, "sum(samples)")[0][0] for path in paths(history)) == history.totals()[0]
    leftover = [path.name for path in (history.directory / FOLDER).glob(".*")]
    assert leftover == [".lock"]


def test_two_writers_do_not_write_at_once(history):
    """The second has nothing to do."""
    history.add_hours(1)
    first = write_segments(history.directory)
    next(first)
    assert write(history) == []
    assert list(first) == []


def test_a_full_disk_leaves_no_torn_file(history, monkeypatch):
    """It is an error, and the hour is written when there is room."""
    from opd.store.segments import hourfile

    history.add_hours(1)
    monkeypatch.setattr(
        hourfile, "_COPY", "COPY (SELECT * FROM hour) TO '/dev/full' (FORMAT parquet)"
    )
    with pytest.raises(OperationFailedError, match="cannot be written"):
        write(history)
    monkeypatch.undo()
    assert paths(history) == []
    assert len(write(history)) == 1


@pytest.mark.parametrize("numbers", [[], [3], [0, 1, 2], [0, 2, 3, 9]])
def test_ranges_read_back(numbers):
    """Every list of windows comes back from its text."""
    assert numbers_of(ranges_of(numbers)) == numbers


@pytest.mark.parametrize("length", [0, 3, 8, 200])
def test_a_file_that_is_no_segment_is_refused(history, length):
    """Cut short or foreign: a StoreError that names it."""
    history.add(0)
    write(history)
    (path,) = paths(history)
    other = path.with_name("other.parquet")
    other.write_bytes(path.read_bytes()[:length])
    with pytest.raises(StoreError, match=r"other\.parquet"):
        read_about(other)
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"COPY (SELECT 1 AS one) TO '{other}' (FORMAT parquet)")
    with pytest.raises(StoreError, match="no opd wrote it"):
        read_about(other)
    shutil.copy(path, other)
    assert read_about(other) == read_about(path)

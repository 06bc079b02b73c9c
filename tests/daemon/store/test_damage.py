"""Torn and flipped bytes in a store: nobody crashes, it is said, and the profile goes on."""

import contextlib
import os
import random
import shutil
import signal
import sqlite3

import pytest
from linked import PATIENCE, assert_each_once, linked
from plain_names import PlainNames
from synthetic import IMAGES, START_NS, make_run, make_window, random_hits

from opd.errors import OpdError, StoreError
from opd.query.backend import OfflineBackend
from opd.store.damage import is_ours, list_aside, set_aside
from opd.store.queries import ReportQuery, open_reader
from opd.store.writer import StoreWriter

WINDOWS = 60


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with a log beside it, as a killed worker leaves it: what is in the files."""
    directory = tmp_path_factory.mktemp("store")
    writer = StoreWriter(directory, PlainNames)
    writer.open_run(make_run(session="live"))
    writer.add_images([(info, None) for info in IMAGES])
    for sequence in range(WINDOWS):
        writer.append(make_window(sequence, random_hits(sequence, rows=40)))
    writer.carry_out("a", "mark", {"marks": [(START_NS, "user", "here")]})
    content = {
        path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".lock"
    }
    writer.close()
    folded = {"opd.db": (directory / "opd.db").read_bytes()}
    assert len(content["opd.db-wal"]) > 100_000
    return {"with a log": content, "folded": folded}


def damage(rng, content):
    """Flip bytes of the file and its log, cut one short, or put zeros in."""
    damaged = {}
    for name, data in content.items():
        if name.endswith("-shm"):
            continue
        changed = bytearray(data)
        way = rng.randrange(4)
        if way == 0:
            for _ in range(rng.choice((1, 10, 100))):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        elif way == 1:
            del changed[rng.randrange(len(changed)) :]
        elif way == 2:
            at = rng.randrange(len(changed))
            size = min(rng.choice((512, 4096, 65536)), len(changed) - at)
            changed[at : at + size] = bytes(size)
        damaged[name] = bytes(changed)
    return damaged


def put(directory, content):
    """Write the files."""
    directory.mkdir()
    for name, data in content.items():
        (directory / name).write_bytes(data)


def read_all(directory):
    """Everything a reader can be asked; the words of those that were refused."""
    refused = []
    try:
        reader = open_reader(directory)
    except OpdError as error:
        return [str(error)], None
    total = None
    with reader:
        asked = [
            lambda: reader.report(ReportQuery(top=0)),
            lambda: reader.report(ReportQuery(sort=("pid", "symbol"), top=0)),
            lambda: reader.report(ReportQuery(since_ns=START_NS + 5 * 10**9, top=3)),
            reader.sessions,
            reader.marks,
            reader.runs,
            reader.events,
            reader.quality,
            lambda: reader.stacks(range(1, 50)),
        ]
        for ask in asked:
            try:
                answer = ask()
            except OpdError as error:
                refused.append(str(error))
                continue
            if ask is asked[0]:
                total = answer.total
                if answer.damaged:
                    refused.append(f"{answer.damaged} damaged")
    return refused, total


@pytest.mark.parametrize("kind", ["with a log", "folded"])
@pytest.mark.parametrize("seed", range(60))
def test_a_reader_of_a_damaged_store_answers_or_says_so(store, tmp_path, kind, seed):
    """Never another exception than opd's own, never more than there was."""
    whole = sum(hit.hits for sequence in range(WINDOWS) for hit in random_hits(sequence, rows=40))
    rng = random.Random(seed)
    directory = tmp_path / "s"
    put(directory, damage(rng, store[kind]))
    refused, total = read_all(directory)
    assert all(word.strip() for word in refused)
    if total is not None and not refused:
        assert total <= whole
    with contextlib.suppress(OpdError), OfflineBackend(directory) as backend:
        backend.call("report", {"sort": "comm", "top": 3})


def append_to(directory):
    """As a worker does: windows stored, and the word of what refused the rest."""
    stored = 0
    writer = None
    try:
        writer = StoreWriter(directory, PlainNames)
        writer.open_run(make_run(run="e" * 32, session="live"))
        writer.add_images([(info, None) for info in IMAGES])
        for sequence in range(5):
            start = START_NS + (WINDOWS + sequence) * 10**10
            stored += writer.append(make_window(sequence, random_hits(sequence), start)).new
    except OpdError as error:
        return stored, str(error)
    finally:
        with contextlib.suppress(OpdError, sqlite3.Error):
            if writer is not None:
                writer.close()
    return stored, ""


@pytest.mark.parametrize("seed", range(40))
def test_a_writer_of_a_damaged_store_goes_on_or_says_so(store, tmp_path, seed):
    """It appends, or refuses with a word; what is set aside makes room for a new store."""
    directory = tmp_path / "s"
    put(directory, damage(random.Random(1000 + seed), store["with a log"]))
    stored, word = append_to(directory)
    assert stored == 5 or "opd.db" in word or "damaged" in word
    aside = set_aside(directory)
    assert list_aside(directory) == [aside]
    assert append_to(directory) == (5, "")
    with open_reader(directory) as reader:
        assert reader.sessions()[0].windows == 5


def lines_of(events):
    """What the worker wrote to the daemon's log."""
    return [event.fields["text"] for event in events.of("line")]


def test_a_worker_that_finds_a_damaged_store_begins_a_new_one(store, tmp_path):
    """At its start: the damaged one goes aside, it is said, and windows are stored."""
    directory = tmp_path / "s"
    content = bytearray(store["folded"]["opd.db"])
    content[4096:12288] = bytes(8192)
    content[100:2000] = bytes(1900)
    put(directory, {"opd.db": bytes(content)})
    with linked(directory) as (link, events):
        hits = [random_hits(sequence) for sequence in range(3)]
        for sequence, some in enumerate(hits):
            link.send_window(make_window(sequence, some))
        assert link.wait_acknowledged(2, PATIENCE)
        (line,) = lines_of(events)
    (aside,) = list_aside(directory)
    assert str(aside) in line
    assert "damaged" in line
    assert aside.read_bytes() == bytes(content)
    assert_each_once(directory, hits)


def test_a_store_damaged_while_opd_runs_is_replaced(tmp_path):
    """The window that found it is in the new store, and so is all that comes after."""
    directory = tmp_path / "s"
    with linked(directory) as (link, events):
        for sequence in range(20):
            link.send_window(make_window(sequence, random_hits(sequence, rows=200)))
        assert link.wait_acknowledged(19, PATIENCE)
        with (directory / "opd.db").open("r+b") as file:
            size = file.seek(0, 2)
            for at in range(4096, size, 4096):
                file.seek(at)
                file.write(bytes(100))
        os.truncate(directory / "opd.db-wal", 0)
        # What it has in its cache it need not read: the next one must.
        os.kill(link.stats()["pid"], signal.SIGKILL)
        sequence = 20
        while not list_aside(directory):
            link.send_window(make_window(sequence, random_hits(sequence, rows=200)))
            link.wait_acknowledged(sequence, 2)
            sequence += 1
            assert sequence < 100
        assert link.wait_acknowledged(sequence - 1, PATIENCE)
        assert link.stats()["windows_dropped"] == 0
        assert any("damaged" in line and "opd.db.corrupt-" in line for line in lines_of(events))
    with open_reader(directory) as reader:
        assert reader.sessions()[0].windows >= 1
        assert reader.report(ReportQuery()).damaged == 0


def test_a_foreign_file_stops_the_worker_and_stays(tmp_path):
    """What is not ours is nobody's to move."""
    directory = tmp_path / "s"
    put(directory, {"opd.db": b"not a database" * 1000})
    with pytest.raises(StoreError, match=r"opd\.db"), linked(directory):
        pass
    assert (directory / "opd.db").read_bytes() == b"not a database" * 1000
    assert not list_aside(directory)


def test_what_is_set_aside_twice_has_two_names(store, tmp_path):
    """Also within a second, and its log goes with it."""
    for _ in range(3):
        for name, data in store["with a log"].items():
            (tmp_path / name).write_bytes(data)
        set_aside(tmp_path)
    assert len(list_aside(tmp_path)) == 3
    for path in list_aside(tmp_path):
        assert path.with_name(path.name + "-wal").exists()
    assert not list(tmp_path.glob("opd.db-*"))


def test_only_our_own_file_is_set_aside(store, tmp_path):
    """Told by the header, whatever else is damaged."""
    assert not is_ours(tmp_path)
    (tmp_path / "opd.db").write_bytes(store["folded"]["opd.db"][:100])
    assert is_ours(tmp_path)
    (tmp_path / "opd.db").write_bytes(b"x" * 16 + store["folded"]["opd.db"][16:])
    assert is_ours(tmp_path)
    for foreign in (b"", b"not a database" * 100, b"SQLite format 3\0" + bytes(200)):
        (tmp_path / "opd.db").write_bytes(foreign)
        assert not is_ours(tmp_path)


@pytest.fixture(autouse=True)
def _tidy(tmp_path):
    """120 copies of a store would fill the disk of a small machine."""
    yield
    shutil.rmtree(tmp_path, ignore_errors=True)

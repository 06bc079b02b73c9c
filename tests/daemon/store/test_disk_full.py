"""A full disk: windows wait, nothing is torn, and storing goes on when there is room again."""

import os
import sqlite3
import subprocess
import time

import pytest
from linked import PATIENCE, assert_each_once, linked
from synthetic import make_window, random_hits

from opd.store.messages import Keep
from opd.store.outbox import _size
from opd.store.queries import open_reader


@pytest.fixture(params=["3m"])
def small_disk(tmp_path, request):
    """A file system of a few MB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={request.param}", "opd-test", str(mount)],
        check=False,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"cannot mount a tmpfs: {made.stderr.strip()}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def fill(mount):
    """Take all that is left of the disk."""
    path = mount / "filler"
    with path.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            while True:
                try:
                    file.write(bytes(size))
                except OSError:
                    break
    return path


def wait_for(condition):
    """Poll until it is true."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.05)


def send_until_held(link, first):
    """Send windows until the store takes none any more; the next sequence number."""
    sequence = first
    while link.stats()["held"] != "disk_full":
        link.send_window(make_window(sequence, random_hits(sequence, rows=300)))
        sequence += 1
        wait_for(lambda: link.stats()["waiting"] == 0 or link.stats()["held"])
        assert not link.stats()["windows_refused"], link.stats()
        assert sequence < first + 100, link.stats()
    return sequence


def check(directory):
    """SQLite's own word on the file."""
    connection = sqlite3.connect(directory / "opd.db")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_windows_wait_for_room(small_disk):
    """Filled and freed twice: every window is stored once, none is refused or dropped."""
    store = small_disk / "s"
    with linked(store) as (link, events):
        sequence = 0
        for _ in range(2):
            for _ in range(5):
                link.send_window(make_window(sequence, random_hits(sequence, rows=300)))
                sequence += 1
            assert link.wait_acknowledged(sequence - 1, PATIENCE)
            filler = fill(small_disk)
            sequence = send_until_held(link, sequence)
            for _ in range(5):
                link.send_window(make_window(sequence, random_hits(sequence, rows=300)))
                sequence += 1
            assert not link.wait_acknowledged(sequence - 1, 1.5)
            assert link.stats()["waiting"] >= 5
            filler.unlink()
            assert link.wait_acknowledged(sequence - 1, PATIENCE)
            wait_for(lambda: not link.stats()["held"])
        stats = link.stats()
        assert stats["windows_dropped"] == stats["deaths"] == 0
        assert not stats["windows_refused"]
        words = [event.fields["text"] for event in events.of("line")]
        assert sum("disk_full" in word and "windows wait" in word for word in words) == 2
        assert sum("stored again" in word for word in words) == 2
    assert_each_once(store, [random_hits(number, rows=300) for number in range(sequence)])
    check(store)


def test_what_the_queue_cannot_hold_is_counted_where_it_is_missing(small_disk):
    """The oldest that wait are dropped; the next window that is stored tells how many samples."""
    store = small_disk / "s"
    size = _size(make_window(0, random_hits(0, rows=300)))
    with linked(store, queue_bytes=20 * size) as (link, _events):
        link.send_window(make_window(0, random_hits(0, rows=300)))
        assert link.wait_acknowledged(0, PATIENCE)
        filler = fill(small_disk)
        sequence = send_until_held(link, 1)
        for _ in range(40):
            link.send_window(make_window(sequence, random_hits(sequence, rows=300)))
            sequence += 1
        dropped = link.stats()["windows_dropped"]
        assert dropped > 10
        samples = link.stats()["samples_dropped"]
        filler.unlink()
        assert link.wait_acknowledged(sequence - 1, PATIENCE)
        assert link.stats()["windows_dropped"] == dropped
    with open_reader(store) as reader:
        quality = reader.quality()
        assert quality["windows"] == {"have": sequence - dropped, "missing": dropped}
        assert quality["lost"]["window_dropped"] == samples
    check(store)


def test_a_daemon_that_ends_on_a_full_disk_does_not_hang(small_disk):
    """What cannot be stored is counted and given up within seconds."""
    with linked(small_disk / "s") as (link, _events):
        link.send_window(make_window(0, random_hits(0, rows=300)))
        assert link.wait_acknowledged(0, PATIENCE)
        fill(small_disk)
        send_until_held(link, 1)
        began = time.monotonic()
        assert not link.close(PATIENCE)
        assert time.monotonic() - began < PATIENCE / 2
        assert link.stats()["windows_dropped"] >= 1
    check(small_disk / "s")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("small_disk", ["4m"], indirect=True)
def test_the_store_leaves_a_tenth_of_a_small_disk(small_disk):
    """With limits, a store on a disk of its own never fills it: old windows make room for new."""
    store = small_disk / "s"
    with linked(store) as (link, events):
        link.keep(Keep(bytes=2 << 30, days=30, free_bytes=256 << 20))
        hits = [random_hits(seed, rows=1500) for seed in range(4)]
        # Ninety minutes: only whole minutes can go.
        for sequence in range(900):
            start = time.time_ns() - 5400 * 10**9 + sequence * 6 * 10**9
            link.send_window(make_window(sequence, hits[sequence % 4], start))
            assert link.wait_acknowledged(sequence, PATIENCE)
            assert os.statvfs(small_disk).f_bavail > 0
        stats = link.stats()
        assert not stats["held"]
        assert stats["windows_stored"] == 900
    words = [event.fields["text"] for event in events.of("line")]
    assert any("deleted" in word and "free" in word for word in words), words
    with open_reader(store) as reader:
        (session,) = reader.sessions()
        assert 0 < session.windows < 900
        assert reader.quality()["windows"]["missing"] == 0
    check(store)


def test_a_start_on_a_full_disk_says_so(small_disk):
    """The error names the store and the reason."""
    fill(small_disk)
    with pytest.raises(Exception, match=r"s/|disk|space"), linked(small_disk / "s"):
        pass

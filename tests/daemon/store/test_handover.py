"""The worker process and the link to it: nothing lost, nothing twice."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from linked import PATIENCE, RESOLVER, assert_each_once, linked
from synthetic import Hit, make_window, random_hits

from opd.errors import StoreError
from opd.sampling.window import ImageInfo
from opd.store.database import WriterLock
from opd.store.handover import WorkerLink
from opd.store.outbox import _size
from opd.store.queries import ReportQuery, open_reader


def test_windows_arrive_and_are_acknowledged(tmp_path):
    """Every window handed over is stored, named, and told as stored."""
    hits = [random_hits(sequence) for sequence in range(10)]
    with linked(tmp_path / "s") as (link, events):
        for sequence, some in enumerate(hits):
            link.send_window(make_window(sequence, some))
        assert link.wait_acknowledged(9, PATIENCE)
        pid = link.stats()["pid"]
        assert pid > 0
        assert link.close(PATIENCE)
        stats = link.stats()
    assert stats["windows_stored"] == 10
    assert stats["samples_stored"] == sum(hit.hits for some in hits for hit in some)
    assert stats["deaths"] == 0
    assert [event.fields["sequence"] for event in events.of("stored")] == list(range(10))
    assert not Path(f"/proc/{pid}").exists()
    # The last one out folded the log into the file.
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["opd.db", "worker.lock"]
    assert_each_once(tmp_path / "s", hits)


def test_killed_at_any_moment_nothing_is_lost_or_doubled(tmp_path):
    """Fifty windows while the worker is killed again and again: each exactly once."""
    rng = random.Random(7)
    hits = [random_hits(sequence, rows=200) for sequence in range(50)]
    with linked(tmp_path / "s") as (link, events):
        stop = threading.Event()

        def kill():
            while not stop.wait(rng.uniform(0.0, 0.4)):
                pid = link.stats()["pid"]
                # A worker that is reaped reports no pid, so no other process is hit.
                if pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        for sequence, some in enumerate(hits):
            link.send_window(make_window(sequence, some))
            time.sleep(0.02)
        time.sleep(2)
        stop.set()
        killer.join()
        assert link.wait_acknowledged(49, PATIENCE)
        assert link.close(PATIENCE)
        stats = link.stats()
    assert stats["deaths"] >= 2
    assert stats["deaths"] == len(events.of("died"))
    assert stats["windows_stored"] == 50
    assert stats["windows_dropped"] == 0
    assert not stats["windows_refused"]
    assert_each_once(tmp_path / "s", hits)


def test_a_stopped_worker_holds_nobody_up(tmp_path):
    """While it is stopped windows wait; when it goes on they are all stored."""
    hits = [random_hits(sequence, rows=300) for sequence in range(40)]
    with linked(tmp_path / "s") as (link, _events):
        link.send_window(make_window(0, hits[0]))
        assert link.wait_acknowledged(0, PATIENCE)
        pid = link.stats()["pid"]
        os.kill(pid, signal.SIGSTOP)
        for sequence in range(1, 40):
            link.send_window(make_window(sequence, hits[sequence]))
        assert not link.wait_acknowledged(39, 0.5)
        assert link.stats()["waiting"] == 39
        os.kill(pid, signal.SIGCONT)
        assert link.wait_acknowledged(39, PATIENCE)
        assert link.stats()["deaths"] == 0
    assert_each_once(tmp_path / "s", hits)


def test_closing_on_a_stopped_worker_kills_it_and_counts(tmp_path):
    """close() ends in time, reaps the worker, and says what was left over."""
    with linked(tmp_path / "s") as (link, _events):
        link.send_window(make_window(0, random_hits(0)))
        assert link.wait_acknowledged(0, PATIENCE)
        pid = link.stats()["pid"]
        os.kill(pid, signal.SIGSTOP)
        link.send_window(make_window(1, random_hits(1)))
        assert not link.close(0.5)
        assert link.stats()["windows_dropped"] == 1
        assert not Path(f"/proc/{pid}").exists()


def test_a_full_queue_drops_the_oldest_and_says_so(tmp_path):
    """What does not fit is counted, and told in the quality of a later window."""
    windows = [make_window(sequence, random_hits(sequence, rows=3000)) for sequence in range(30)]
    with linked(tmp_path / "s", queue_bytes=8 * _size(windows[0])) as (link, events):
        link.send_window(make_window(1000, random_hits(0)))
        assert link.wait_acknowledged(1000, PATIENCE)
        pid = link.stats()["pid"]
        os.kill(pid, signal.SIGSTOP)
        for window in windows:
            link.send_window(window)
        os.kill(pid, signal.SIGCONT)
        assert link.wait_acknowledged(29, PATIENCE)
        assert link.close(PATIENCE)
        stats = link.stats()
    dropped = events.of("dropped")
    assert 0 < len(dropped) == stats["windows_dropped"] < 30
    lost = sum(event.fields["samples"] for event in dropped)
    assert stats["samples_dropped"] == lost
    with open_reader(tmp_path / "s") as reader:
        quality = reader.quality()
    assert quality["lost"]["window_dropped"] == lost
    assert quality["windows"]["have"] == 31 - len(dropped)


def test_a_window_that_does_not_fit_is_refused_alone(tmp_path):
    """The worker says why, lives on, and stores the next window."""
    with linked(tmp_path / "s") as (link, events):
        bad = make_window(0, random_hits(0))
        bad.row_hits = b"?"
        link.send_window(bad)
        link.send_window(make_window(1, random_hits(1)))
        assert link.wait_acknowledged(1, PATIENCE)
        assert not link.wait_acknowledged(0, PATIENCE)
        assert events.wait("refused").fields["reason"] == "invalid"
        assert link.stats()["windows_refused"] == {"invalid": 1}
        assert link.stats()["deaths"] == 0
        lost = link.stats()["samples_dropped"]
    with open_reader(tmp_path / "s") as reader:
        assert reader.quality()["windows"] == {"have": 1, "missing": 1}
    assert lost == bad.quality["samples"]


def test_a_window_that_crashes_the_worker_is_given_up(tmp_path):
    """After three crashes it is lost and counted; the others are stored."""
    with linked(tmp_path / "s", resolver="plain_names:CrashingNames") as (link, events):
        link.send_images([(ImageInfo(uid=99, kind="file", path="/crash"), None)])
        link.send_window(make_window(0, random_hits(0)))
        link.send_window(make_window(1, [Hit(0, "x", 1, 0, ((99, 1),), 5, 5)]))
        link.send_window(make_window(2, random_hits(2)))
        assert link.wait_acknowledged(2, PATIENCE)
        assert not link.wait_acknowledged(1, PATIENCE)
        assert events.wait("given_up").fields == {"sequence": 1, "samples": 5}
        assert link.stats()["deaths"] == 3
    with open_reader(tmp_path / "s") as reader:
        assert reader.quality()["windows"] == {"have": 2, "missing": 1}
        assert reader.quality()["lost"]["window_dropped"] == 5


def test_files_of_images_reach_the_worker(tmp_path):
    """More files than one message holds arrive, in order, and are closed here."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with linked(tmp_path / "s") as (link, _events):
        images = []
        for uid in range(10, 160):
            path = tmp_path / f"image{uid}"
            path.write_bytes(b"x")
            images.append(
                (
                    ImageInfo(uid=uid, kind="file", path=str(path)),
                    os.open(path, os.O_RDONLY | os.O_CLOEXEC),
                )
            )
        link.send_images(images)
        link.send_window(make_window(0, [Hit(0, "x", 1, 0, ((150, 1),), 5, 5)]))
        assert link.wait_acknowledged(0, PATIENCE)
        with open_reader(tmp_path / "s") as reader:
            result = reader.report(ReportQuery(sort=("image",)))
            assert result.keys["image"] == [str(tmp_path / "image150")]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_files_that_wait_too_long_are_closed(tmp_path):
    """A stopped worker does not make the daemon run out of descriptors."""
    with linked(tmp_path / "s") as (link, _events):
        link.send_window(make_window(0, random_hits(0)))
        assert link.wait_acknowledged(0, PATIENCE)
        pid = link.stats()["pid"]
        os.kill(pid, signal.SIGSTOP)
        path = tmp_path / "image"
        path.write_bytes(b"x")
        before = len(list(Path("/proc/self/fd").iterdir()))
        for uid in range(100, 1100):
            info = ImageInfo(uid=uid, kind="file", path=str(path))
            link.send_images([(info, os.open(path, os.O_RDONLY | os.O_CLOEXEC))])
        assert len(list(Path("/proc/self/fd").iterdir())) < before + 400
        os.kill(pid, signal.SIGCONT)
        link.send_window(make_window(1, [Hit(0, "x", 1, 0, ((100, 1), (1099, 1)), 5, 5)]))
        assert link.wait_acknowledged(1, PATIENCE)
        assert link.stats()["image_files_shed"] > 0


def test_a_second_worker_on_a_store_is_refused_by_pid(tmp_path):
    """One store, one worker: the other is told who has it."""
    lock = WriterLock(tmp_path)
    link = WorkerLink(tmp_path, resolver=RESOLVER)
    with pytest.raises(StoreError, match=f"pid {os.getpid()}"):
        link.start(PATIENCE)
    lock.release()
    link.close(PATIENCE)


def test_the_worker_ends_with_its_daemon(tmp_path):
    """A daemon that is killed leaves no worker behind."""
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from opd.store.handover import WorkerLink\n"
        f"link = WorkerLink(Path(sys.argv[1]), resolver={RESOLVER!r})\n"
        "link.start(60)\n"
        "while not link.stats()['pid']: time.sleep(0.01)\n"
        "print(link.stats()['pid'], flush=True)\n"
        "time.sleep(600)\n"
    )
    daemon = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with daemon:
        worker = int(daemon.stdout.readline())
        assert Path(f"/proc/{worker}").exists()
        daemon.kill()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            status = Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if status == "Z":
            return  # nobody reaps it here, but it is dead
        time.sleep(0.01)
    pytest.fail("the worker outlived its daemon")

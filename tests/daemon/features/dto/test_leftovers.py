"""Directories that dead processes left are cleared, those of live ones never."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from opd.features.dto.leftovers import (
    COPY,
    INDEX,
    LINKS,
    OBJECTS,
    clear_left,
    own_directory,
    remove,
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Give a cache, and temporary files a directory of the test's own."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path / "cache"


def held_by_another(place):
    """Start a process that holds one of each kind: its pid, and where they are."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        with (
            own_directory(OBJECTS, place) as one,
            own_directory(LINKS, place) as two,
            own_directory(INDEX) as three,
            own_directory(COPY) as four,
        ):
            (one / "ab").mkdir()
            (one / "ab" / "object").write_text("x")
            os.write(write, f"{one} {two} {three} {four}".encode())
            signal.pause()
    os.close(write)
    with os.fdopen(read) as told:
        paths = os.read(told.fileno(), 4096).decode()
    return pid, [Path(path) for path in paths.split()]


def test_what_dead_ones_left_goes(place):
    """Not while their process lives."""
    pid, paths = held_by_another(place)
    try:
        clear_left(place)
        assert all(path.is_dir() for path in paths)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert len(paths) == 4
    assert all(path.is_dir() for path in paths)
    with own_directory(INDEX) as mine:
        clear_left(place)
        assert mine.is_dir()
    assert not any(path.exists() for path in paths)


def test_only_what_is_ours_goes(place, tmp_path):
    """No file, no link, nothing of another name, nothing of another user."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("kept")
    (place / f"{OBJECTS}link").symlink_to(elsewhere)
    (place / f"{LINKS}file").write_text("kept")
    (place / "0123abcd").mkdir()
    kept = [place / f"{OBJECTS}link", place / f"{LINKS}file", place / "0123abcd"]
    if os.geteuid() == 0:
        (tmp_path / "tmp" / f"{INDEX}theirs").mkdir()
        os.chown(tmp_path / "tmp" / f"{INDEX}theirs", 12345, 12345)
        kept.append(tmp_path / "tmp" / f"{INDEX}theirs")
    clear_left(place)
    assert all(os.path.lexists(path) for path in kept)
    assert (elsewhere / "file").exists()


def test_one_who_makes_and_one_who_clears_at_once(place):
    """Whoever got a directory has it until the block ends."""
    wrong: list[str] = []
    stop = threading.Event()

    def clears():
        while not stop.is_set():
            clear_left(place)

    def makes():
        for number in range(40):
            with own_directory(OBJECTS, place) as path:
                (path / "mine").write_text(str(number))
                if (path / "mine").read_text() != str(number):
                    wrong.append(str(path))

    clearing = threading.Thread(target=clears)
    making = [threading.Thread(target=makes) for _ in range(2)]
    clearing.start()
    for thread in making:
        thread.start()
    for thread in making:
        thread.join()
    stop.set()
    clearing.join()
    assert not wrong
    assert not list(place.iterdir())


def test_a_read_only_tree_goes_too():
    """As some builds leave their downloads."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        top = Path(name)
        deep = top / "new-1" / "a" / "b"
        deep.mkdir(parents=True)
        (deep / "file").write_text("x")
        (top / "outside").mkdir()
        (deep / "link").symlink_to(top / "outside")
        (top / "outside").chmod(0o500)
        deep.chmod(0o500)
        deep.parent.chmod(0o000)
        pid = os.fork()
        if pid == 0:
            if os.geteuid() == 0:
                for path in (top, top / "new-1", deep.parent, deep):
                    os.chown(path, 12345, 12345)
                os.setresuid(12345, 12345, 12345)
            remove(top / "new-1")
            os._exit(0)
        os.waitpid(pid, 0)
        assert not (top / "new-1").exists()
        assert (top / "outside").stat().st_mode & 0o777 == 0o500

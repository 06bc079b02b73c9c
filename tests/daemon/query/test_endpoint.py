"""The socket file: claimed, refused, replaced."""

from __future__ import annotations

import grp
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from opd.errors import ConfigError, EndpointInUseError
from opd.query import endpoint, listener

HOLD = (
    "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]);"
    "s.listen(1); print('ready', flush=True); time.sleep(60)"
)


def hold(path):
    """A process that listens at ``path``."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("tcp://127.0.0.1:5555", "CURVE"),
        ("inproc://x", "ipc://PATH"),
        ("ipc://", "ipc://PATH"),
        ("/run/opd.sock", "ipc://PATH"),
        ("ipc://@abstract", "permissions"),
        ("ipc://*", "permissions"),
        ("ipc:///" + "x" * 103, "longer"),
        ("ipc:///tmp/\udcff", "UTF-8"),
    ],
)
def test_other_transports_are_refused(url, word):
    """Only the path of a file that fits is an endpoint."""
    with pytest.raises(ConfigError, match=word):
        endpoint.socket_path(url)


def test_a_live_holder_is_named(tmp_path):
    """The error has the pid of the process that listens; its socket still works."""
    path = tmp_path / "opd.sock"
    process = hold(path)
    try:
        with pytest.raises(EndpointInUseError, match=f"pid {process.pid} "):
            listener.claim(str(path))
        assert endpoint.holder_of(str(path)).pid == process.pid
    finally:
        process.kill()
        process.communicate()


def test_a_holder_with_a_full_backlog_is_named(tmp_path):
    """A process that accepts nothing any more is found through /proc."""
    path = tmp_path / "opd.sock"
    process = hold(path)
    waiting = []
    try:
        while True:
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(0)
            waiting.append(one)
            try:
                one.connect(str(path))
            except BlockingIOError:
                break
        assert endpoint.holder_of(str(path)).pid == process.pid
    finally:
        for one in waiting:
            one.close()
        process.kill()
        process.communicate()


def test_the_file_of_a_dead_daemon_is_replaced(tmp_path):
    """A socket file that nobody listens at does not keep a daemon from starting."""
    path = tmp_path / "opd.sock"
    process = hold(path)
    process.kill()
    process.communicate()
    assert path.exists()
    claimed = listener.claim(str(path))
    assert endpoint.holder_of(str(path)).pid == os.getpid()
    claimed.release()
    assert not path.exists()


def test_of_many_that_start_at_once_one_wins(tmp_path):
    """Two daemons cannot both replace the same stale file."""
    path = tmp_path / "opd.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    got, refused = [], []

    def claim():
        try:
            got.append(listener.claim(str(path)))
        except EndpointInUseError:
            refused.append(1)

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), len(refused)) == (1, 7)
    got[0].release()


def test_a_file_that_is_no_socket_stays(tmp_path):
    """A claim never deletes what it did not make."""
    path = tmp_path / "opd.sock"
    path.write_text("precious")
    with pytest.raises(ConfigError, match="not a socket"):
        listener.claim(str(path))
    assert path.read_text() == "precious"


def test_a_successors_file_stays(tmp_path):
    """A release leaves the file of another daemon alone."""
    path = tmp_path / "opd.sock"
    claimed = listener.claim(str(path))
    path.unlink()
    other = listener.claim(str(path))
    claimed.release()
    assert path.exists()
    other.release()


def test_modes_and_groups(tmp_path):
    """A directory that is made is 0750 with the group; one that is there is left alone."""
    if os.geteuid() == 0:
        group = next(entry for entry in grp.getgrall() if entry.gr_gid not in (0, os.getegid()))
    else:
        group = grp.getgrgid(os.getegid())
    old = os.umask(0o077)
    try:
        made = listener.claim(str(tmp_path / "new" / "opd.sock"), group=group.gr_name)
        there = tmp_path / "there"
        there.mkdir()
        there.chmod(0o755)
        left = listener.claim(str(there / "opd.sock"), group=group.gr_name)
    finally:
        os.umask(old)
    directory, file = (tmp_path / "new").stat(), Path(made.path).stat()
    assert (stat.S_IMODE(directory.st_mode), directory.st_gid) == (0o750, group.gr_gid)
    assert (stat.S_IMODE(file.st_mode), file.st_gid) == (0o660, group.gr_gid)
    assert stat.S_IMODE(there.stat().st_mode) == 0o755
    assert there.stat().st_gid == os.getegid()
    made.release()
    left.release()


def test_a_missing_group_is_no_trouble(tmp_path):
    """Without the group the directory keeps the daemon's own."""
    listener.claim(str(tmp_path / "new" / "opd.sock"), group="no-such-group-here").release()
    assert (tmp_path / "new").stat().st_gid == os.getegid()

"""One probe at a time on a machine: daemons and opctl without one, whoever comes second."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from opd.errors import OperationFailedError
from opd.probes import alone
from places import BIN

LONG = "rest=60,repeats=1"


@pytest.fixture(autouse=True)
def lock(tmp_path, monkeypatch):
    """A lock of one's own."""
    path = tmp_path / "probe.lock"
    monkeypatch.setenv(alone.VARIABLE, str(path))
    return path


@pytest.fixture
def start(tmp_path):
    """Start opctl without a daemon; what is left is ended."""
    begun = []

    def opctl(*words, store="a"):
        command = [BIN / "opctl", "--session-dir", tmp_path / store, "probe", *words]
        begun.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return begun[-1]

    yield opctl
    for process in begun:
        process.kill()
        process.communicate()


def wait_for(condition, seconds=30.0):
    """Wait until it holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def held(path):
    """The pid that the machine's turn is with, 0 for none."""
    if not path.exists():
        return 0
    fd = os.open(path, os.O_RDONLY)
    try:
        holder = alone.holder_of(fd)
    finally:
        os.close(fd)
    return holder.pid if holder else 0


def test_a_second_one_is_refused_and_names_the_first(start, lock):
    """Of another store too; nothing is kept of it; after kill -9 the next one runs."""
    first = start("run", "calibrate", LONG)
    wait_for(lambda: held(lock) == first.pid)
    for words in (("run", "calibrate"), ("compare", "calibrate", "calibrate")):
        second = start(*words, store="b")
        _out, said = second.communicate(timeout=60)
        assert second.returncode == 1
        assert f"process {first.pid} (opctl) holds {lock}".encode() in said
        assert b"Ctrl-C" in said
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert held(lock) == 0
    third = start("run", "calibrate", "repeats=1,samples=2", "--format", "json", store="b")
    out, said = third.communicate(timeout=60)
    assert third.returncode == 0, said
    assert json.loads(out)["id"] == 1


def test_a_daemon_and_opctl_without_one_take_turns(start_daemon, start, lock):
    """Each refuses while the other's runs; a schedule of the daemon waits."""
    daemon = start_daemon()
    asked = threading.Thread(
        target=daemon.opctl, args=("probe", "run", "calibrate", LONG), kwargs={"check": False}
    )
    asked.start()
    wait_for(lambda: held(lock) == daemon.process.pid)
    local = start("run", "calibrate")
    _out, said = local.communicate(timeout=60)
    assert (local.returncode, b"opctl probe cancel" in said) == (1, True)
    assert f"process {daemon.process.pid} (opd)".encode() in said
    daemon.opctl("probe", "cancel")
    asked.join(30)
    local = start("run", "calibrate", LONG)
    wait_for(lambda: held(lock) == local.pid)
    refused = daemon.opctl("probe", "run", "calibrate", check=False)
    assert (refused.returncode, f"process {local.pid} (opctl)" in refused.stderr) == (1, True)
    daemon.opctl("probe", "run", "calibrate", "repeats=1,samples=2,every=1h")
    local.send_signal(signal.SIGINT)
    local.wait()
    wait_for(lambda: len(daemon.ask("probe", "list")["runs"]) == 2)


def test_the_places_of_the_lock(tmp_path, monkeypatch):
    """The variable; the run directory of the service and root; a user's own; the store."""
    none = str(tmp_path / "none")
    assert alone.places("/s", {alone.VARIABLE: "/x"}, uid=0) == [Path("/x")]
    root = [Path("/run/opd/probe.lock"), Path("/s/probe.lock")]
    assert alone.places("/s", {}, uid=0) == root
    assert alone.places("/s", {"XDG_RUNTIME_DIR": str(tmp_path)}, uid=0) == root
    service = alone.places("/s", {"RUNTIME_DIRECTORY": "/run/a:/run/b"}, uid=0)
    assert service[0] == Path("/run/a/probe.lock")
    monkeypatch.setattr(alone, "SYSTEM", tmp_path / "system")
    user = {"XDG_RUNTIME_DIR": str(tmp_path)}
    own = [tmp_path / "opd/probe.lock", Path("/s/probe.lock")]
    assert alone.places("/s", user, uid=4242) == own
    assert alone.places("/s", {"XDG_RUNTIME_DIR": none}, uid=4242) == own[1:]
    (tmp_path / "system").mkdir()
    (tmp_path / "system/probe.lock").touch()
    assert alone.places("/s", user, uid=4242) == [tmp_path / "system/probe.lock", *own]


def test_the_next_place_is_taken_where_one_cannot_be(tmp_path, monkeypatch):
    """A link or a FIFO in the way is not followed; where nothing is left it says what failed."""
    monkeypatch.delenv(alone.VARIABLE)
    monkeypatch.setattr(alone, "SYSTEM", tmp_path / "system")
    (tmp_path / "system").mkdir()
    (tmp_path / "system/probe.lock").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "pipe"))
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe/probe.lock")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with alone.alone(tmp_path / "store"):
        assert held(tmp_path / "store/probe.lock") == os.getpid()
        assert not (tmp_path / "elsewhere").exists()
    assert held(tmp_path / "store/probe.lock") == 0
    (tmp_path / "file").touch()
    monkeypatch.setenv(alone.VARIABLE, str(tmp_path / "file/probe.lock"))
    with pytest.raises(OperationFailedError, match=r"file/probe.lock: Not a directory"):
        alone.take(tmp_path)


def test_who_holds_it_may_not_be_seen(tmp_path, lock, monkeypatch):
    """Where the kernel shows no locks, the file is named at least."""
    code = (
        "import os, sys; from opd.probes.alone import take; take(sys.argv[1]);"
        " print('held', flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(alone.OtherProbeRunsError) as caught:
            alone.take(tmp_path)
        assert f"process {other.pid} (" in caught.value.message
        with monkeypatch.context() as blind:
            blind.setattr(alone, "_LOCKS", tmp_path / "none")
            with pytest.raises(alone.OtherProbeRunsError, match="not seen from here holds"):
                alone.take(tmp_path)
        other.stdin.close()
        other.wait()
    with alone.alone(tmp_path):
        assert held(lock) == os.getpid()

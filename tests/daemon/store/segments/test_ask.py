"""The SQL child as whoever asks sees it: limits, ends, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from segment_history import History

from opd.errors import OperationFailedError, StoreError, UsageError
from opd.query import tables
from opd.store.segments.ask import Asker, Limits

pytest.importorskip("duckdb")

# Runs until it is stopped.
ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"


@pytest.fixture
def history(tmp_path):
    """A store with one window."""
    made = History(tmp_path / "store")
    made.add(0)
    yield made
    made.close()


@pytest.fixture
def spill(tmp_path, monkeypatch):
    """Where children keep what they spill."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def asker(history, spill):
    """Asks that store."""
    made = Asker(history.directory)
    yield made
    made.close()
    assert list(spill.iterdir()) == []


def value(answer):
    """The one cell of an answer."""
    return next(iter(tables.to_rows(answer["rows"])[0].values()))


def wait_for(condition, seconds=30):
    """Until then."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


def state(pid):
    """The process's state as the kernel has it; "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def has_ended(pid):
    """Whether a child is waited for by nobody but its parent: its threads are gone too."""
    return state(pid) == "Z" and len(list(Path(f"/proc/{pid}/task").iterdir())) == 1


def test_one_child_answers_one_query_after_another(asker, history):
    """And says what it uses."""
    assert value(asker.ask("SELECT sum(samples) FROM samples", Limits())) == history.totals()[0]
    pid = asker.stats()["pid"]
    assert value(asker.ask("SELECT 2", Limits())) == 2
    stats = asker.stats()
    assert (stats["pid"], stats["children"], stats["queries"]) == (pid, 1, 2)
    assert stats["cpu_seconds"] > 0
    assert 0 < stats["pss_bytes"] < 150 << 20
    assert Path(f"/proc/{pid}/comm").read_text() == "opd-sql\n"


def test_many_who_ask_at_once_wait_for_their_turn(asker):
    """Each gets its own answer."""
    answers = {}

    def ask(number):
        answers[number] = value(asker.ask(f"SELECT {number}", Limits()))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: number for number in range(8)}
    assert asker.stats()["children"] == 1


def test_a_mistake_is_told_as_one_and_the_child_goes_on(asker):
    """UsageError, as in one process."""
    with pytest.raises(UsageError, match="syntax error"):
        asker.ask("selec", Limits())
    assert value(asker.ask("SELECT 1", Limits())) == 1
    assert asker.stats()["children"] == 1


def test_a_query_over_its_time_is_stopped_and_the_child_goes_on(asker):
    """It says how long it had."""
    asker.ask("SELECT 1", Limits())
    with pytest.raises(OperationFailedError, match=r"no answer within 0\.5 s"):
        asker.ask(ENDLESS, Limits(seconds=0.5))
    assert value(asker.ask("SELECT 1", Limits())) == 1
    stats = asker.stats()
    assert (stats["children"], stats["cancelled"], stats["killed"]) == (1, 1, 0)


def test_a_query_whose_asker_left_is_stopped(asker):
    """So that the next one does not wait for nobody's answer."""
    asker.ask("SELECT 1", Limits())
    left = threading.Event()
    threading.Timer(0.5, left.set).start()
    with pytest.raises(OperationFailedError, match="has left"):
        asker.ask(ENDLESS, Limits(seconds=60), gone=left.is_set)
    with pytest.raises(OperationFailedError, match="has left"):
        asker.ask("SELECT 1", Limits(), gone=left.is_set)
    assert value(asker.ask("SELECT 1", Limits())) == 1
    assert asker.stats()["children"] == 1


def test_a_child_that_does_not_obey_is_killed(asker):
    """And the next query has a new one."""
    asker.ask("SELECT 1", Limits())
    os.kill(asker.stats()["pid"], signal.SIGSTOP)
    with pytest.raises(OperationFailedError, match="no answer within"):
        asker.ask("SELECT 1", Limits(seconds=0.2))
    assert value(asker.ask("SELECT 1", Limits())) == 1
    stats = asker.stats()
    assert (stats["children"], stats["killed"]) == (2, 1)


def test_a_child_killed_during_a_query_is_an_error_that_says_so(asker):
    """And the next query has a new one."""
    asker.ask("SELECT 1", Limits())
    pid = asker.stats()["pid"]
    threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(OperationFailedError, match=r"ended by signal 9 .*next query starts a new"):
        asker.ask(ENDLESS, Limits())
    assert value(asker.ask("SELECT 1", Limits())) == 1
    assert asker.stats()["died"] == 1


def test_a_child_killed_between_queries_is_not_noticed(asker):
    """The next query has a new one."""
    asker.ask("SELECT 1", Limits())
    pid = asker.stats()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: has_ended(pid))
    assert value(asker.ask("SELECT 1", Limits())) == 1
    assert asker.stats()["children"] == 2


def test_a_child_that_nobody_asks_goes_to_rest(history, spill):
    """And leaves nothing: no process, no folder; a query then has a new one."""
    asker = Asker(history.directory, idle_s=0.3)
    asker.ask("SELECT 1", Limits())
    pid = asker.stats()["pid"]

    def at_rest():
        asker.reap()
        return asker.stats()["pid"] is None

    wait_for(at_rest)
    assert state(pid) == ""
    assert list(spill.iterdir()) == []
    assert value(asker.ask("SELECT 1", Limits())) == 1
    asker.close()


def test_closing_ends_a_query_that_runs(history):
    """At once; whoever waits is told."""
    asker = Asker(history.directory)
    asker.ask("SELECT 1", Limits())
    failures = []

    def ask():
        try:
            asker.ask(ENDLESS, Limits())
        except OperationFailedError as error:
            failures.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.3)
    began = time.monotonic()
    asker.close()
    thread.join()
    assert time.monotonic() - began < 20
    assert len(failures) == 1
    with pytest.raises(OperationFailedError, match="is ending"):
        asker.ask("SELECT 1", Limits())


def test_the_child_ends_with_whoever_started_it(history, spill, monkeypatch):
    """Also when that is killed in the middle of a query."""
    monkeypatch.setenv("TMPDIR", str(spill))
    script = (
        "import sys, threading, time; from pathlib import Path\n"
        "from opd.store.segments.ask import Asker, Limits\n"
        "asker = Asker(Path(sys.argv[1])); asker.ask('SELECT 1', Limits())\n"
        "print(asker.stats()['pid'], flush=True); asker.ask(sys.argv[2], Limits())\n"
    )
    command = [sys.executable, "-c", script, str(history.directory), ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        time.sleep(0.3)
        parent.kill()
    wait_for(lambda: state(pid) in ("", "Z"))
    assert list(spill.iterdir()) == []


def test_no_store_is_told_as_such(tmp_path):
    """Not as a child that died."""
    asker = Asker(tmp_path)
    with pytest.raises(StoreError, match="no store there"):
        asker.ask("SELECT 1", Limits())
    asker.close()


def test_without_duckdb_it_says_what_to_install(history, tmp_path, monkeypatch):
    """And is no crash."""
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "duckdb.py").write_text("raise ImportError('No module named duckdb')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/shadow{os.pathsep}{os.environ['PYTHONPATH']}")
    asker = Asker(history.directory)
    with pytest.raises(OperationFailedError, match="pip install duckdb numpy"):
        asker.ask("SELECT 1", Limits())
    asker.close()


def test_a_gigabyte_in_one_cell_is_refused(asker):
    """By the child's limit, which it survives."""
    with pytest.raises(OperationFailedError, match="needs more than it may have"):
        asker.ask("SELECT repeat('x', 1000000000)", Limits())
    assert value(asker.ask("SELECT 1", Limits())) == 1
    assert asker.stats()["children"] == 1

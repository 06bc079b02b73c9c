"""Sessions and marks of a real daemon, by opctl, live and from the store alone."""

from __future__ import annotations

import json
import os
import subprocess
import time

import pytest

from places import BIN


def offline(store, *arguments):
    """Run opctl on a store without a daemon."""
    command = [BIN / "opctl", "--session-dir", str(store), "--format", "json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def shared_daemon(start_daemon):
    """One daemon for the tests that only ask."""
    return start_daemon("-e", "cpu-clock:99hz", "--interval", "1")


def names(answer):
    """The names of sessions."""
    return [session["name"] for session in answer["sessions"]]


def symbols(daemon, session, image):
    """The symbols of a program in a session."""
    where = f"image='{image}'"
    answer = daemon.ask(
        *("report", "--session", session, "--sort", "symbol", "--top", "0", "--where", where)
    )
    return {row["symbol"] for row in answer["rows"]}


def test_sessions_end_and_begin_while_sampling_goes_on(start_daemon, busy):
    """Work before a save is in that session only, work after it in the next, and none is lost."""
    daemon = start_daemon("-e", "cpu-clock:999hz", "--interval", "0.5")
    subprocess.run([busy, "plain", "0.4"], check=True, capture_output=True)
    assert daemon.ask("save", "first")["session"] == "first"
    subprocess.run([busy, "anonymous", "0.4"], check=True, capture_output=True)
    kept = daemon.ask("reset")["session"]
    assert kept.startswith("live-")
    daemon.ask("dump")
    listed = daemon.ask("sessions")
    assert names(listed) == ["first", kept, "live"]
    assert [session["saved"] for session in listed["sessions"]] == [True, False, False]
    assert "plain_work" in symbols(daemon, "first", busy)
    assert "plain_work" not in symbols(daemon, kept, busy)
    for name in ("first", kept):
        quality = daemon.ask("report", "--session", name)["quality"]
        assert quality["windows"]["missing"] == 0
    status = daemon.ask("status")
    assert status["quality"]["lost"]["window_dropped"] == 0
    # A kill of the worker and a restart change nothing of it.
    os.kill(status["worker"]["pid"], 9)
    daemon.ask("dump")
    assert names(daemon.ask("sessions")) == ["first", kept, "live"]
    assert daemon.stop() == 0
    assert names(offline(daemon.store, "sessions")) == ["first", kept, "live"]
    total = offline(daemon.store, "report", "--session", "first")["total"]
    assert total == listed["sessions"][0]["samples"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["save", ""], 2, "empty"),
        (["save", "live"], 2, "running session"),
        (["save", "x" * 101], 2, "at most 100 characters"),
        (["save", "a\tb"], 2, "control character"),
        (["mark", "two\nlines"], 2, "control character"),
        (["mark", " "], 2, "text"),
        (["mark"], 2, "--list"),
        (["mark", "x", "--at", "soon"], 2, "not a time"),
        (["mark", "--list", "x"], 2, "no TEXT"),
        (["report", "--since", "mark:nothing"], 2, "no mark 'nothing'"),
        (["report", "--session", "nothing"], 2, "no session 'nothing'"),
    ],
)
def test_what_is_wrong_is_said(shared_daemon, arguments, status, said):
    """Exit status and word for each wrong name and mark."""
    done = shared_daemon.opctl(*arguments, check=False)
    assert done.returncode == status
    assert said in done.stderr


def test_a_name_is_taken_once(start_daemon):
    """The second save of a name is refused and the running session goes on."""
    daemon = start_daemon("-e", "cpu-clock:99hz")
    daemon.opctl("save", "once")
    done = daemon.opctl("save", "once", check=False)
    assert done.returncode == 2
    assert "there is a session 'once' already" in done.stderr
    assert names(daemon.ask("sessions")) == ["once", "live"]


def test_marks_are_found_again(shared_daemon):
    """By list, by range and as a time; one may be set in the past."""
    daemon = shared_daemon
    begin = time.time_ns()
    daemon.opctl("mark", "deploy 1.42")
    past = daemon.ask("mark", "the day before", "--at", "-1d")
    assert abs(past["at_ns"] - (begin - 86400 * 10**9)) < 60 * 10**9
    texts = [mark["text"] for mark in daemon.ask("mark", "--list", "--since", "10m")["marks"]]
    assert "deploy 1.42" in texts
    assert "the day before" not in texts
    assert "the day before" in daemon.opctl("mark", "--list").stdout
    daemon.ask("dump")
    for spelled in ("mark:deploy 1.42", "mark:DEPLOY"):
        answer = daemon.ask("report", "--since", spelled)
        assert answer["quality"]["windows"]["have"] >= 1
    both = daemon.opctl(
        "report", "--since", "mark:deploy", "--until", "mark:day before", check=False
    )
    assert both.returncode == 2
    assert "is not before" in both.stderr


def test_another_user_may_not(shared_daemon):
    """save, reset and mark are for root and the daemon's own uid; listing is for all."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    directory = shared_daemon.directory
    for path in (directory, directory.parent, directory.parent.parent):
        path.chmod(0o755)
    (directory / "opd.sock").chmod(0o777)
    (directory / "opd.sock.pub").chmod(0o777)
    for words in (["save", "x"], ["reset"], ["mark", "x"]):
        done = _as_nobody(shared_daemon, *words)
        assert done.returncode == 77, done.stderr
        assert "uid 65534" in done.stderr
    assert "live" in _as_nobody(shared_daemon, "sessions").stdout


_AS_NOBODY = """
import ctypes, os, sys
from opd.cli.opctl import main
os.seteuid(65534)
ctypes.CDLL(None).setfsuid(0)  # this thread goes on reading its modules; it does not connect
sys.exit(main())
"""


def _as_nobody(daemon, *arguments):
    command = [BIN / "python", "-c", _AS_NOBODY, "--endpoint", daemon.endpoint, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

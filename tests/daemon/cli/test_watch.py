"""opctl watch beside a server that publishes, ends and comes back."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from opd.query.server import Server

ROOT = Path(__file__).parents[3]
OPCTL = [sys.executable, "-m", "opd.cli.opctl"]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("daemon", "plugins", "native")),
}
WINDOW = {"run": "r", "sequence": 7, "samples": 198, "new": True}


class Backend:
    """Says hello."""

    def hello(self):
        """Nothing special."""
        return {"capabilities": {}}


class Publishing:
    """A server that publishes a window and a log line every few milliseconds."""

    def __init__(self, directory):
        self.endpoint = f"ipc://{directory}/opd.sock"
        self._directory = directory
        self._ending = threading.Event()
        self.start()

    def start(self):
        """Begin, or begin again."""
        self._ending.clear()
        self._server = Server(self.endpoint, Backend(), state_dir=self._directory)
        self._server.start()
        self._thread = threading.Thread(target=self._publish)
        self._thread.start()

    def stop(self):
        """End the server."""
        self._ending.set()
        self._thread.join()
        self._server.stop()

    def _publish(self):
        while not self._ending.wait(0.02):
            self._server.publish("window", WINDOW)
            self._server.publish("log", {"level": "error", "event": "evil\n\x1b[31m"})


@pytest.fixture
def publishing(tmp_path):
    """See Publishing."""
    made = Publishing(tmp_path)
    yield made
    made.stop()


def watch(publishing, *words):
    """Run opctl watch to its end."""
    return subprocess.run(
        [*OPCTL, "watch", *words, "--endpoint", publishing.endpoint],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
        timeout=90,
    )


def test_topics_are_lines(publishing):
    """One line a message, what is not printable spelled out; --count ends it with 0."""
    done = watch(publishing, "window", "--count", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[1:] for line in done.stdout.splitlines()] == [
        ["window", "run=r", "sequence=7", "samples=198", "new=True"]
    ] * 3
    done = watch(publishing, "log", "-n", "1")
    assert done.stdout.count("\n") == 1
    assert "event=evil\\x0a\\x1b[31m" in done.stdout


def test_json_is_a_document_a_line(publishing):
    """Time with offset, topic and the message as it came; all topics by default."""
    lines = watch(publishing, "--format", "json", "-n", "6").stdout.splitlines()
    heard = [json.loads(line) for line in lines]
    assert {message["topic"] for message in heard} == {"window", "log"}
    assert next(item for item in heard if item["topic"] == "window")["message"] == WINDOW
    assert dt.datetime.fromisoformat(heard[0]["time"]).utcoffset() is not None


def test_csv_has_the_message_in_a_cell(publishing):
    """One header, then a row a message."""
    text = watch(publishing, "window", "--format", "csv", "-n", "2").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [json.loads(row["message"]) for row in rows] == [WINDOW] * 2


def test_for_ends_it(publishing):
    """--for is a time, and nothing more is needed."""
    done = watch(publishing, "stats", "--for", "0.5")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_daemon_that_returns_is_watched_again(publishing):
    """It says when the daemon goes and comes, and hears it afterwards."""
    command = [*OPCTL, "watch", "window", "--format", "json", "--endpoint", publishing.endpoint]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout.readline()
        publishing.stop()
        assert "is gone; waiting for it" in process.stderr.readline()
        publishing.start()
        assert "is there again" in process.stderr.readline()
        for _ in range(200):
            assert json.loads(process.stdout.readline())["message"] == WINDOW
        process.send_signal(2)
        process.communicate()
        assert process.returncode == 0


def test_a_daemon_that_stays_away_is_status_69(publishing):
    """When the time is over and nobody is there."""
    command = [*OPCTL, "watch", "window", "--for", "4", "--endpoint", publishing.endpoint]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout.readline()
        publishing.stop()
        _, said = process.communicate()
    publishing.start()
    assert (process.returncode, said.count("\n")) == (69, 2)
    assert "has not come back" in said


def test_what_is_wrong_is_status_2(publishing):
    """An unknown topic with those there are, a time that is none, a store."""
    assert "there are: window stats probe log" in watch(publishing, "widnow").stderr
    for words in (
        ("widnow",),
        ("--for", "0"),
        ("--count", "x"),
        ("--session-dir", "/tmp"),
        ("--since", "1m"),
    ):
        assert watch(publishing, *words).returncode == 2


def test_nobody_there_is_status_69(tmp_path):
    """At once, with how to start one."""
    command = [*OPCTL, "watch", "--endpoint", f"ipc://{tmp_path}/none"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 69
    assert "start one" in done.stderr

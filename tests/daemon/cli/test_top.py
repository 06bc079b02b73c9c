"""opctl top on pipes and on terminals."""

from __future__ import annotations

import contextlib
import csv
import datetime as dt
import fcntl
import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SERVE = ROOT / "tests" / "daemon" / "query" / "backend_for_tests.py"
OPCTL = [sys.executable, "-m", "opd.cli.opctl"]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")},
    "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("daemon", "plugins", "native")),
    "TERM": "xterm",
}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    """The endpoint of a daemon process."""
    folder = tmp_path_factory.mktemp("top")
    made = f"ipc://{folder}/run/opd.sock"
    command = [sys.executable, str(SERVE), made, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout.readline() == "ready\n"
        yield made
        process.kill()


def top(endpoint, *words):
    """Run it to its end."""
    done = subprocess.run(
        [*OPCTL, "top", "--endpoint", endpoint, *words],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_blocks_follow_each_other(endpoint):
    """Off a terminal each view is a report of its own, an empty line between two."""
    text = top(endpoint, "--interval", "0.05", "--count", "3", "--sort", "symbol")
    blocks = text.split("\n\n")
    assert len(blocks) == 3
    for block in blocks:
        first, quality, header, *lines = block.strip().splitlines()
        assert first.startswith("# cpu-clock")
        assert "lost 3" in quality
        assert header.split() == ["samples", "percent", "cores", "symbol"]
        assert len(lines) == 4


def test_once_is_one_view(endpoint):
    """With --once the answer is that of a report."""
    assert top(endpoint, "--once").count("samples") == 2
    answer = json.loads(top(endpoint, "--once", "--format", "json", "--where", "comm=x"))
    assert answer["total"] == 900
    assert dt.datetime.fromisoformat(answer["time"]).utcoffset() is not None


def test_csv_has_one_header_and_times(endpoint):
    """The rows of all views are one table."""
    text = top(endpoint, "--interval", "0.05", "--count", "2", "--sort", "symbol", "--format=csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == ["time", "samples", "weight", "percent", "cores", "symbol"]
    assert [row["samples"] for row in rows] == ["812", "77", "9", "2"] * 2
    assert all(dt.datetime.fromisoformat(row["time"]) for row in rows)


class Terminal:
    """A program on a terminal of a size."""

    def __init__(self, words, columns, lines=24):
        self._master, slave = pty.openpty()
        self.resize(columns, lines)
        self.process = subprocess.Popen(
            words, stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=ENVIRONMENT
        )
        os.close(slave)
        self.text = ""

    def resize(self, columns, lines=24):
        """Give it another size."""
        size = struct.pack("4H", lines, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def read(self, wanted, seconds=60):
        """Read until something was drawn; what was read for it."""
        piece, end = "", time.monotonic() + seconds
        while wanted not in piece:
            assert time.monotonic() < end, piece
            if select.select([self._master], [], [], 0.2)[0]:
                try:
                    data = os.read(self._master, 65536)
                except OSError:  # how a terminal ends
                    data = b""
                assert data, piece
                piece += data.decode()
        self.text += piece
        return piece

    def end(self):
        """Read the rest; what it left on the terminal, its status, and what it complained."""
        rest = ""
        with contextlib.suppress(OSError):  # how a terminal ends
            while data := os.read(self._master, 65536):
                rest += data.decode()
        _, said = self.process.communicate()
        os.close(self._master)
        return rest, self.process.returncode, said


LONG = [*OPCTL, "top", "--interval", "600"]


def test_a_new_size_is_drawn_at_once(endpoint):
    """Long before the next view, and no line is longer than the terminal."""
    path = "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus"
    terminal = Terminal([*LONG, "--sort", "comm,image", "--endpoint", endpoint], 150)
    terminal.read(path)
    terminal.resize(50)
    terminal.process.send_signal(signal.SIGWINCH)
    terminal.read("…")
    terminal.process.send_signal(signal.SIGINT)
    rest, status, said = terminal.end()
    assert (status, said) == (0, b"")
    assert path not in rest
    assert "cc1plus" in rest
    assert "Traceback" not in rest


def test_ctrl_c_leaves_the_last_view(endpoint):
    """The screen from before comes back, and under it stands what was seen last."""
    terminal = Terminal([*LONG, "--endpoint", endpoint], 100)
    shown = terminal.read("_PyEval_EvalFrame")
    assert "\x1b[?1049h" in shown
    terminal.process.send_signal(signal.SIGINT)
    rest, status, said = terminal.end()
    assert (status, said) == (0, b"")
    assert "\x1b[?1049l" in rest
    after = rest.rpartition("\x1b[?1049l")[2]
    assert "_PyEval_EvalFrame" in after
    assert "\x1b[31m" not in shown + rest


def test_a_daemon_that_goes_away_is_told_on_a_usable_terminal(tmp_path):
    """Status 1 with a line, after the screen was given back."""
    made = f"ipc://{tmp_path}/run/opd.sock"
    command = [sys.executable, str(SERVE), made, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout.readline() == "ready\n"
        terminal = Terminal([*OPCTL, "top", "--interval", "0.3", "--endpoint", made], 100)
        terminal.read("_PyEval_EvalFrame")
        process.kill()
        process.wait()
        rest, status, said = terminal.end()
    assert status in (1, 69)
    assert "\x1b[?1049l" in rest
    assert said.count(b"\n") == 1
    assert b"went away" in said or b"no opd" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--interval", "0"), "--interval"), (("--since", "1m"), "opctl report")],
)
def test_what_is_wrong_is_status_2(words, said):
    """Before anybody is asked."""
    done = subprocess.run(
        [*OPCTL, "top", *words], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr

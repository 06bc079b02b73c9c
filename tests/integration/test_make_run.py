"""`make run`, as somebody at a terminal uses it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from places import BIN

ROOT = Path(__file__).parents[2]


def read_until(fd, word, seconds):
    """What a terminal showed until ``word`` came."""
    seen, until = b"", time.monotonic() + seconds
    while word not in seen:
        assert time.monotonic() < until, seen.decode(errors="replace")[-2000:]
        if select.select([fd], [], [], 0.5)[0]:
            try:
                seen += os.read(fd, 65536)
            except OSError:  # the other side of the terminal is gone
                assert word in seen, seen.decode(errors="replace")[-2000:]
    return seen


@pytest.mark.skipif(
    Path(sys.prefix).resolve() != (ROOT / ".venv").resolve(), reason="tests run outside .venv"
)
def test_ctrl_c_ends_the_live_view_with_a_report(start_daemon, tmp_path):
    """Ctrl-C at a terminal stops the view, prints the report and leaves nothing behind."""
    probe = start_daemon()  # skips where perf events are refused
    assert probe.stop() == 0
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TERM": "xterm"}
    child, fd = pty.fork()
    if child == 0:
        os.chdir(ROOT)
        os.execve(  # noqa: S606
            "/bin/bash", ["bash", str(ROOT / "scripts/run"), ""], environment
        )
    read_until(fd, b"percent", 60)
    os.write(fd, b"\x03")
    shown = read_until(fd, b"The whole time", 60)
    shown += read_until(fd, b"quality", 60)
    _, status = os.waitpid(child, 0)
    os.close(fd)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"no opd listens" not in shown
    assert list(tmp_path.iterdir()) == []


def test_seconds_must_be_a_number():
    """A wrong SECONDS is refused with a word before anything starts."""
    done = subprocess.run(
        [ROOT / "scripts/run", "soon"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "SECONDS" in done.stderr
    assert BIN.exists()

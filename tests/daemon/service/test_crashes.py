"""What a process that crashes leaves, and that one which ends well leaves nothing."""

import os
import signal
import subprocess
import sys

import pytest

from opd.service import crashes

CODE = """
import os, signal, sys
from pathlib import Path
from opd.service.crashes import CrashFile
file = CrashFile(Path(sys.argv[1]), "test")
file.arm()
def somewhere():
    if sys.argv[2] == "well":
        file.disarm()
    else:
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))
somewhere()
"""


def end(directory, how):
    """A process that ends so; its status."""
    command = [sys.executable, "-c", CODE, str(directory), how]
    return subprocess.run(command, check=False, capture_output=True).returncode


@pytest.mark.parametrize("how", ["SIGABRT", "SIGSEGV"])
def test_a_crash_leaves_the_stack_where_it_was(tmp_path, how):
    """One file with the function in it, told of once."""
    assert end(tmp_path, how) == -getattr(signal, how)
    (trace,) = crashes.take_stock(tmp_path)
    assert "somewhere" in trace.read_text()
    assert crashes.take_stock(tmp_path) == []
    assert crashes.traces(tmp_path) == [trace]


def test_a_good_end_leaves_nothing(tmp_path):
    """The empty file is taken away."""
    assert end(tmp_path, "well") == 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_kill_leaves_is_cleared_away(tmp_path):
    """SIGKILL writes nothing; the empty file goes with the next start, a living one's stays."""
    assert end(tmp_path, "SIGKILL") == -signal.SIGKILL
    living = tmp_path / f"crash-opd.{os.getpid()}"
    living.touch()
    assert crashes.take_stock(tmp_path) == []
    assert list(tmp_path.iterdir()) == [living]


def test_only_the_last_ones_are_kept(tmp_path):
    """Traces are bounded; the oldest go."""
    for number in range(crashes.KEPT + 3):
        path = tmp_path / f"crash-opd.{100000 + number}"
        path.write_text("stack")
        os.utime(path, (number, number))
    fresh = crashes.take_stock(tmp_path)
    assert [path.name.split(".")[1] for path in fresh] == [
        str(100000 + number) for number in range(3, crashes.KEPT + 3)
    ]


def test_without_a_place_it_still_runs(tmp_path):
    """A directory that is not there costs the file, not the process."""
    assert end(tmp_path / "missing", "well") == 0

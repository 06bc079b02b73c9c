"""A full disk: sampling and answers go on, it is said, windows wait, and it ends."""

from __future__ import annotations

import contextlib
import subprocess
import time

import pytest

SIZE = "2m"


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own with little room."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "opd-test", folder]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    yield folder
    # Lazily: of a test that failed, the daemon still runs.
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(path):
    """Write until nothing fits."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\xff" * 4096)


def problem_of(daemon, *, expected):
    """Wait until status has a problem, or has none; the problem."""
    until = time.monotonic() + 60
    while True:
        problem = daemon.ask("status").get("problem", "")
        if bool(problem) == expected or time.monotonic() > until:
            return problem
        time.sleep(0.2)


def test_a_full_disk_is_said_and_got_over(start_daemon, busy, small_disk):
    """Status names the problem while nothing can be stored; with room again all of it is."""
    arguments = ("-e", "cpu-clock:99hz", "--interval", "0.5", "--session-dir")
    daemon = start_daemon(*arguments, str(small_disk / "store"))
    daemon.ask("dump")
    assert "problem" not in daemon.ask("status")
    fill(small_disk / "ballast")
    subprocess.run([busy, "plain", "0.5"], check=True, capture_output=True)
    assert "disk_full" in problem_of(daemon, expected=True)
    assert "disk_full" in daemon.opctl("status").stdout
    assert daemon.opctl("report", "--top", "5").returncode == 0
    (small_disk / "ballast").unlink()
    assert problem_of(daemon, expected=False) == ""
    daemon.opctl("stop")
    daemon.ask("dump")
    status = daemon.ask("status")
    assert status["quality"]["lost"]["window_dropped"] == 0
    assert sum(row["samples"] for row in daemon.rows("comm")) == status["samples"]
    assert daemon.stop() == 0

"""A real daemon under many tops."""

from __future__ import annotations

import subprocess
import time

import pytest

from places import BIN

pytestmark = pytest.mark.privileged


def test_tops_share_windows(start_daemon):
    """Three that ask ten times a second end no more than a window a second."""
    daemon = start_daemon("--interval", "3600")
    command = [str(BIN / "opctl"), "--endpoint", daemon.endpoint, "--format", "json", "top"]
    command += ["--interval", "0.1", "--count", "20", "--sort", "comm"]
    before = daemon.ask("status")["worker"]["windows_stored"]
    began = time.monotonic()
    tops = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [top.communicate(timeout=90)[0].splitlines() for top in tops]
    took = time.monotonic() - began
    stored = daemon.ask("status")["worker"]["windows_stored"] - before
    assert [top.returncode for top in tops] == [0, 0, 0]
    assert [len(lines) for lines in answers] == [20] * 3
    assert 1 <= stored <= took + 2
    assert daemon.stop() == 0


def test_top_shows_what_runs_now(start_daemon, busy):
    """What burns a CPU in the interval is at the top of it, cores and all."""
    daemon = start_daemon("-e", "cpu-clock:499hz", "--interval", "3600")
    with subprocess.Popen([busy, "plain", "30"], stdout=subprocess.DEVNULL) as load:
        time.sleep(1.5)
        daemon.ask("top", "--once", "--interval", "1")
        time.sleep(2)
        answer = daemon.ask("top", "--once", "--interval", "1", "--where", f"pid={load.pid}")
        load.kill()
    assert [row["comm"] for row in answer["rows"][:1]] == ["busy"]
    assert 0 < answer["rows"][0]["cores"] <= 1.1
    assert answer["total"] <= answer["of_total"]
    assert daemon.stop() == 0

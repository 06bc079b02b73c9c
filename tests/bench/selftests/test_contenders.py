"""Contenders sample, tell what they took, and leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from bench.harness import contenders
from bench.harness.accounting import Account

# Real programs on a machine that may be busy.
pytestmark = pytest.mark.timeout(600)

BURN = [sys.executable, "-c", "while True: sum(range(1000))"]


@pytest.mark.privileged
@pytest.mark.parametrize("name", ["opd", "perf"])
def test_a_contender_counts_samples_and_ends(name, start_daemon):
    """A second of a busy CPU gives samples with names; no process and no file stays."""
    start_daemon().stop()  # skips where the kernel refuses perf events
    contender = contenders.KNOWN[name]
    if reason := contender.absent():
        pytest.skip(reason)
    with Account(f"test-{name}") as account:
        runner = contender(account, 999)
        busy = subprocess.Popen(BURN)
        try:
            runner.start()
            time.sleep(1)
            assert runner.memory()["pss"] > 0
            runner.stop()
            taken = runner.examine()
        finally:
            busy.kill()
            busy.wait()
            runner.close()
        assert taken.samples > 0
        assert taken.bytes > 0
        assert taken.lost == 0
        assert 0.5 < taken.image_named <= 1
        assert account.cpu_seconds() > 0
        assert account.pids() == []
        assert not runner.folder.exists()


def test_close_ends_what_still_runs():
    """After a failure nothing of a contender goes on."""

    class Stubborn(contenders.Contender):
        name = "stubborn"

    with Account("test-stubborn") as account:
        runner = Stubborn(account, 99)
        process = account.start(["sleep", "1000"])
        runner.close()
        assert process.poll() == -9
        assert account.pids() == []


def test_who_is_not_installed_is_told(monkeypatch):
    """A peer that is absent is named with the reason; an unknown one is an error."""
    monkeypatch.setenv("PATH", "/nonexistent")
    present, lines = contenders.present(["opd", "perf"])
    assert present == [contenders.OpdContender]
    assert lines == ["absent: perf: perf is not installed"]
    with pytest.raises(ValueError, match="no contender 'gprof'; there are: opd perf"):
        contenders.present(["gprof"])

"""The watchdog is fed by progress: a drain thread that hangs starves it, nothing else does."""

import contextlib
import os
import signal
import socket
import subprocess
import time

import pytest

from tracing import hanging, thread_named

WATCHDOG_S = 2.0


class Manager:
    """As much of a service manager as a daemon can see: the notify socket and its watchdog."""

    def __init__(self, path):
        self.environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(path),
            "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6)),
        }
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def hear(self, seconds):
        """All lines that come within ``seconds``."""
        lines, until = [], time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._socket.settimeout(left)
            with contextlib.suppress(TimeoutError):
                lines += self._socket.recv(4096).decode().split("\n")
        return lines

    def wait_for(self, line, seconds=30.0):
        """Wait until ``line`` comes; the seconds it took."""
        began = time.monotonic()
        while line not in self.hear(0.1):
            assert time.monotonic() < began + seconds, f"{line} did not come"
        return time.monotonic() - began

    def close(self):
        """Be gone."""
        self._socket.close()


@pytest.fixture
def manager(tmp_path):
    """A manager that wants to hear of the daemon every two seconds."""
    one = Manager(tmp_path / "notify")
    yield one
    one.close()


@pytest.mark.parametrize("sampling", ["on", "stopped"])
def test_progress_feeds_it_and_a_hanging_drain_thread_starves_it(start_daemon, manager, sampling):
    """READY, then WATCHDOG in time; with only the drain thread stopped none, and it says why."""
    daemon = start_daemon("-e", "cpu-clock:99hz", "--interval", "1", env=manager.environment)
    manager.wait_for("READY=1")
    if sampling == "stopped":
        daemon.opctl("stop")
    for _ in range(3):
        manager.wait_for("WATCHDOG=1", WATCHDOG_S)
    with hanging(thread_named(daemon.process.pid, "opd-drain")):
        # What it was fed before the hang may still come, and one turn that saw it move.
        manager.hear(WATCHDOG_S / 2)
        heard = manager.hear(2 * WATCHDOG_S)
        assert "WATCHDOG=1" not in heard
        assert "watchdog.starved" in daemon.log()
        assert "the drain thread" in daemon.log()
        # The rest of the daemon lives: this is no SIGSTOP.
        assert daemon.process.poll() is None
        assert daemon.opctl("events").returncode == 0
    manager.wait_for("WATCHDOG=1", 2 * WATCHDOG_S)
    assert daemon.stop() == 0


def test_a_recording_needs_no_progress(start_daemon, manager, tmp_path, perf, busy):
    """A daemon that serves a recording drains nothing, and is fed by answering."""
    data = tmp_path / "perf.data"
    command = [perf, "record", "-q", "-e", "cpu-clock", "-o", data, "--", busy, "plain", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"perf cannot record here: {done.stderr.strip()[-200:]}")
    daemon = start_daemon("--replay", str(data), env=manager.environment)
    manager.wait_for("WATCHDOG=1")
    manager.wait_for("WATCHDOG=1", WATCHDOG_S)
    assert daemon.stop() == 0


def test_a_reload_is_announced_and_ended(start_daemon, manager):
    """RELOADING with the time, then READY; STOPPING at the end."""
    daemon = start_daemon("-e", "cpu-clock:99hz", env=manager.environment)
    manager.wait_for("READY=1")
    daemon.process.send_signal(signal.SIGHUP)
    heard = manager.hear(2)
    assert "RELOADING=1" in heard
    assert "READY=1" in heard[heard.index("RELOADING=1") :]
    daemon.process.terminate()
    manager.wait_for("STOPPING=1")
    assert daemon.process.wait(30) == 0

"""Fixtures of all tests: a daemon of one's own, compiled programs, a clean environment."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from other_users import place  # noqa: F401 - a fixture of all tests
from places import BIN, PROGRAMS
from systemd_machine import machine  # noqa: F401 - a fixture of all tests

READY_TIMEOUT_S = 30.0
TESTS = Path(__file__).parent
# What waits most begins first.
SLOW = ("systemd", "integration", "contracts")
# Made-up users and the machine's namespaces: one test at a time has them.
ALONE = ("systemd/", "integration/test_own_processes.py", "integration/test_peers.py")

# A shell lets what it starts in the background ignore Ctrl-C, and so would all
# that is started here.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Several test processes share the files of tests: those of one stay together."""
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path = nodeid.split("::", 1)[0]
            return "alone" if path.removeprefix("tests/").startswith(ALONE) else path

    return Files(config, log)


def pytest_collection_modifyitems(items):
    """Slow ones first."""
    items.sort(key=lambda item: item.path.relative_to(TESTS).parts[0] not in SLOW)


@pytest.fixture(scope="session", autouse=True)
def _own_turn(tmp_path_factory):
    """Probes run one at a time on a machine: on this test process's."""
    os.environ["OPD_PROBE_LOCK"] = str(tmp_path_factory.mktemp("turn") / "probe.lock")
    yield
    del os.environ["OPD_PROBE_LOCK"]


@pytest.fixture(autouse=True)
def _environment_is_left_alone():
    """A test that changes the environment changes it back."""
    before = dict(os.environ)
    yield
    now = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
    before.pop("PYTEST_CURRENT_TEST", None)
    assert now == before


class RunningDaemon:
    """A real opd with a socket and a store of its own."""

    def __init__(self, directory, arguments, program=(BIN / "opd",), **popen):
        self.directory = directory
        self.store = directory / "store"
        self.endpoint = f"ipc://{directory}/opd.sock"
        self.log_path = directory / "log"
        with self.log_path.open("ab") as log:
            command = [*map(str, program), "--session-dir", str(self.store)]
            command += ["--endpoint", self.endpoint, "--log-format", "json", *arguments]
            self.process = subprocess.Popen(command, stderr=log, **popen)

    def log(self):
        """Give what was logged so far."""
        return self.log_path.read_text()

    def wait_ready(self):
        """Wait until it answers; the exit status when it ended instead."""
        until = time.monotonic() + READY_TIMEOUT_S
        while "daemon.ready" not in self.log():
            if self.process.poll() is not None:
                return self.process.returncode
            assert time.monotonic() < until, self.log()
            time.sleep(0.02)
        return None

    def opctl(self, *arguments, check=True):
        """Run opctl against it."""
        command = [str(BIN / "opctl"), "--endpoint", self.endpoint, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
        assert not check or done.returncode == 0, done.stderr
        return done

    def ask(self, *arguments):
        """Give opctl's answer from its JSON."""
        return json.loads(self.opctl("--format", "json", *arguments).stdout)

    def rows(self, *keys):
        """Dump, then give all rows of the first event by these keys."""
        self.ask("dump")
        return self.ask("report", "--sort", ",".join(keys), "--top", "0")["rows"]

    def stop(self, signal_number=15):
        """End it; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        return self.process.wait(60)


@pytest.fixture(scope="session")
def start_daemon():
    """Give a function that starts a daemon; skips where the kernel refuses perf events."""
    started = []

    def start(*arguments, ready=True, directory=None, **popen):
        folder = directory or Path(tempfile.mkdtemp(prefix="opd-test-"))
        daemon = RunningDaemon(folder, arguments, **popen)
        started.append(daemon)
        if ready and daemon.wait_ready() is not None:
            if daemon.process.returncode == 77:
                pytest.skip(f"perf_event_open is refused here: {daemon.log().strip()[-300:]}")
            pytest.fail(daemon.log())
        return daemon

    yield start
    for daemon in started:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()
        shutil.rmtree(daemon.directory, ignore_errors=True)


@pytest.fixture(scope="session")
def busy(tmp_path_factory):
    """The program that burns CPU in functions with telling names."""
    target = tmp_path_factory.mktemp("programs") / "busy"
    flags = ["-O1", "-g", "-fno-omit-frame-pointer", "-pthread"]
    subprocess.run(["gcc", *flags, PROGRAMS / "busy.c", "-o", target], check=True)
    return target


@pytest.fixture(scope="session")
def perf():
    """The path of perf, the judge; skips when it is not installed."""
    path = shutil.which("perf")
    if path is None:
        pytest.skip("perf is not installed")
    return path

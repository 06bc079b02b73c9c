"""The client against servers that are absent, slow, stopped or killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from opd.errors import (
    NoDaemonError,
    OperationFailedError,
    UnknownNameError,
    UsageError,
)
from opd.query.client import Client

SERVE = Path(__file__).with_name("backend_for_tests.py")


@pytest.fixture
def process(tmp_path):
    """A daemon process of its own."""
    endpoint = f"ipc://{tmp_path}/run/opd.sock"
    command = [sys.executable, str(SERVE), endpoint, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as made:
        assert made.stdout.readline() == "ready\n"
        made.endpoint = endpoint
        yield made
        made.kill()


def test_results_and_errors_come_back(server):
    """A call returns the result or raises what the daemon raised."""
    with Client(server.endpoint) as client:
        assert client.daemon_pid == os.getpid()
        assert client.call("report", {"top": 1})["total"] == 900
        with pytest.raises(UnknownNameError, match="symbol"):
            client.call("report", {"sort": ["smybol"]})
        assert client.call("status")["samples"] == 900


@pytest.mark.parametrize("there", [False, True])
def test_no_daemon_is_known_at_once(tmp_path, there):
    """Neither a missing nor a stale socket file is waited for."""
    path = tmp_path / "opd.sock"
    if there:
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
    with pytest.raises(NoDaemonError, match=r"start one: opd --endpoint ipc://"):
        Client(f"ipc://{path}")


def test_other_transports_are_a_usage_error():
    """A tcp endpoint is refused with the word for it."""
    with pytest.raises(UsageError, match="CURVE"):
        Client("tcp://127.0.0.1:5555")


@pytest.mark.parametrize("method", ["status", "report", "dump"])
def test_a_stopped_daemon_is_named(process, method):
    """A daemon that does not answer is an error with its pid, long calls included."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        with (
            Client(process.endpoint, answer_seconds=1.5) as client,
            pytest.raises(OperationFailedError, match=f"pid {process.pid}"),
        ):
            client.call(method)
    finally:
        os.kill(process.pid, signal.SIGCONT)


def test_a_daemon_that_dies_is_noticed(process):
    """The end of the daemon ends the wait for its answer."""
    with Client(process.endpoint) as client:
        client.call("hello")
        os.kill(process.pid, signal.SIGSTOP)
        timer = threading.Timer(0.3, process.kill)
        timer.start()
        with pytest.raises(OperationFailedError, match="went away"):
            client.call("dump")
        timer.join()


def test_a_long_call_outlives_the_answer_limit(server, backend):
    """A dump may take longer than the limit while the daemon shows that it lives."""
    timer = threading.Timer(2.5, backend.release.set)
    timer.start()
    began = time.monotonic()
    with Client(server.endpoint, answer_seconds=1.2) as client:
        assert client.call("dump") == {"dumped": True}
    assert time.monotonic() - began > 2
    timer.join()


def test_shutdown_can_be_waited_for(process):
    """wait_until_gone returns when the process has ended."""
    with Client(process.endpoint) as client:
        client.call("shutdown")
        waiter = threading.Thread(target=process.wait)
        waiter.start()
        assert client.wait_until_gone(20)
        waiter.join()
    assert process.returncode == 0


def fill(path):
    """Connections that wait to be accepted, as many as there may be."""
    waiting = []
    while True:
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(0)
        waiting.append(one)
        try:
            one.connect(str(path))
        except BlockingIOError:
            return waiting


def test_a_busy_daemon_is_waited_for(tmp_path):
    """A daemon whose backlog is full for a moment is not called dead."""
    path = tmp_path / "opd.sock"
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(path))
        busy.listen(2)
        waiting = fill(path)
        timer = threading.Timer(0.3, lambda: [busy.accept()[0].close() for _ in waiting[1:]])
        timer.start()
        with Client(f"ipc://{path}") as client:
            assert client.daemon_pid == os.getpid()
        timer.join()
        for one in waiting:
            one.close()


def test_a_daemon_that_accepts_nobody_is_named(tmp_path):
    """When the backlog stays full for the answer limit, the error has the holder's pid."""
    path = tmp_path / "opd.sock"
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.bind(str(path))
        stuck.listen(2)
        waiting = fill(path)
        with pytest.raises(OperationFailedError, match=f"pid {os.getpid()} .* does not answer"):
            Client(f"ipc://{path}", answer_seconds=0.3)
        for one in waiting:
            one.close()

"""The service manager's protocol, against a real datagram socket."""

import os
import socket
import time

import pytest

from opd.service.sdnotify import Notifier


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    """A socket to receive on, and the address as systemd would give it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@opd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name[1:] if name[0] == "@" else name)
        receiver.settimeout(10)
        yield receiver, name


def test_the_life_of_a_service(manager):
    """Each call is one datagram with the documented lines."""
    receiver, address = manager
    notifier = Notifier(address)
    calls = [
        (notifier.ready("serving"), "READY=1\nSTATUS=serving"),
        (notifier.ready(), "READY=1"),
        (notifier.status("two\nlines=READY=1"), "STATUS=two lines=READY=1"),
        (notifier.watchdog(), "WATCHDOG=1"),
        (notifier.main_pid(77), "MAINPID=77"),
        (notifier.stopping(), "STOPPING=1"),
    ]
    for sent, expected in calls:
        assert sent
        assert receiver.recv(4096).decode() == expected


def test_a_reload_carries_the_monotonic_time(manager):
    """Type=notify-reload compares it with its own clock."""
    receiver, address = manager
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert Notifier(address).reloading()
    first, second = receiver.recv(4096).decode().split("\n")
    assert first == "RELOADING=1"
    stamp = int(second.removeprefix("MONOTONIC_USEC="))
    assert before <= stamp <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def test_without_a_manager_nothing_happens():
    """No variable, no datagram, no error."""
    notifier = Notifier.from_environment({})
    assert notifier.watchdog_s is None
    assert not notifier.ready()


@pytest.mark.parametrize(
    "address", ["/nowhere/notify", "vsock:2:1", "", "relative", "@" + "x" * 300, "/a\0b"]
)
def test_a_manager_that_is_gone_stops_nothing(address):
    """Every bad address is a quiet False."""
    assert not Notifier(address).stopping()


def test_the_environment_is_read_once_and_cleared():
    """Children neither speak for the daemon nor feed its watchdog."""
    environ = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}
    notifier = Notifier.from_environment(environ)
    assert notifier.watchdog_s == 3.0
    assert environ == {}


@pytest.mark.parametrize(
    "environ",
    [{"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"}],
)
def test_a_watchdog_of_nobody_or_another(environ):
    """Garbage, zero and somebody else's watchdog are none."""
    assert Notifier.from_environment(environ).watchdog_s is None

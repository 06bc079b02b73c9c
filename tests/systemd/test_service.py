"""The shipped units under a real systemd: started, asked, reloaded, killed, hung, stopped."""

import json
import time

import pytest

from tracing import hanging, thread_named


@pytest.fixture
def running(machine):
    """The machine with opd just started, and stopped afterwards."""
    machine.run("systemctl", "reset-failed", "opd")
    done, text = machine.run("systemctl", "start", "opd")
    if not done and "PERMISSION" in machine.run("journalctl", "-u", "opd", "-o", "cat")[1]:
        pytest.skip("perf_event_open is refused here")
    assert done, text + machine.run("journalctl", "-u", "opd", "-n", "40", "--no-pager")[1]
    yield machine
    assert machine.run("systemctl", "stop", "opd")[0]


def main_pid(machine):
    """The daemon's pid, as the machine knows it."""
    return int(machine.show("opd", "MainPID"))


def wait_for(condition, seconds=30.0):
    """Poll until it is true."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.1)


def journal(machine):
    """The unit's journal entries so far."""
    text = machine.run("journalctl", "-u", "opd", "-o", "json", "--no-pager")[1]
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_start_returns_when_it_is_ready_and_status_says_so(running):
    """Type=notify: after `systemctl start` it answers, as user opd, in its slice."""
    assert running.show("opd", "ActiveState") == "active"
    assert running.show("opd", "StatusText") == "sampling"
    assert running.show("opd", "ControlGroup") == "/opd.slice/opd.service"
    pid = main_pid(running)
    done, text = running.run("cat", f"/proc/{pid}/status")
    uid = running.run("id", "-u", "opd")[1].strip()
    assert done
    assert f"Uid:\t{uid}\t{uid}" in text
    assert "NoNewPrivs:\t1" in text
    assert "Seccomp:\t2" in text
    done, text = running.run("opctl", "--format", "json", "status")
    assert done, text
    status = json.loads(text)
    assert (status["pid"], status["sampling"]) == (pid, True)


def test_its_directories_are_the_users(running):
    """/run/opd and /var/lib/opd are opd's, closed to others; the socket is the group's."""
    text = running.run("stat", "-c", "%a %U %G", "/run/opd", "/var/lib/opd", "/run/opd/opd.sock")[1]
    assert text.splitlines() == ["750 opd opd", "750 opd opd", "660 opd opd"]


def test_it_names_the_kernel_and_binaries_that_only_root_may_read(running):
    """With its capabilities, and nothing more, answers have names: private, deleted, kernel."""
    script = (
        "set -e; mkdir -p -m 0700 /var/private; cp /usr/bin/sha256sum /var/private/secret;"
        "chmod 0700 /var/private/secret; timeout 2 /var/private/secret /dev/zero &"
        "sleep 0.5; rm /var/private/secret; wait"
    )
    assert running.run("sh", "-c", script)[0]
    assert running.run("opctl", "dump")[0]
    done, text = running.run(
        *("opctl", "--format", "json", "report", "--sort", "image,symbol", "--top", "0")
    )
    assert done, text
    rows = json.loads(text)["rows"]
    secret = [row for row in rows if row["image"] == "/var/private/secret"]
    assert secret
    assert all(row["symbol"] != "[unknown]" for row in secret)
    kernel = [row for row in rows if row["image"] == "[kernel]"]
    assert kernel
    named = sum(row["samples"] for row in kernel if row["symbol"] != "[unknown]")
    assert named > 0.9 * sum(row["samples"] for row in kernel)


def test_reload_keeps_the_process_and_takes_new_settings(running):
    """`systemctl reload`: same pid, same socket, the new setting in force."""
    pid = main_pid(running)
    file = "/etc/opd/conf.d/test.toml"
    assert running.run("sed", "-i", "s/cpu-clock/task-clock/", file)[0]
    assert running.run("systemctl", "reload", "opd")[0]
    try:

        def events():
            text = running.run("opctl", "--format", "json", "status")[1]
            return [event["name"] for event in json.loads(text)["events"]]

        wait_for(lambda: events() == ["task-clock"])
        assert main_pid(running) == pid
    finally:
        assert running.run("sed", "-i", "s/task-clock/cpu-clock/", file)[0]


def test_killed_it_is_started_anew(running):
    """Kill -9 of the daemon: systemd starts the next, which answers; no worker is left over."""
    before = main_pid(running)
    assert running.run("kill", "-9", before)[0]
    wait_for(lambda: main_pid(running) not in (0, before))
    wait_for(lambda: running.show("opd", "SubState") == "running")
    assert running.run("opctl", "status")[0]
    daemons = running.run("pgrep", "-c", "-x", "opd|opd-store")[1].strip()
    assert daemons == "2"
    assert any("status=9/KILL" in str(entry["MESSAGE"]) for entry in journal(running))


def test_a_hanging_drain_thread_is_a_restart(running):
    """WatchdogSec=: only the drain thread stops, and systemd ends and restarts the daemon."""
    before = main_pid(running)
    outside = running.outside_pid(before)
    assert outside
    with hanging(thread_named(outside, "opd-drain")) as take_note:

        def restarted():
            take_note()
            return main_pid(running) not in (0, before)

        wait_for(restarted)
    wait_for(lambda: running.show("opd", "SubState") == "running")
    messages = [str(entry["MESSAGE"]) for entry in journal(running)]
    assert any("Watchdog timeout" in message for message in messages)
    assert any("watchdog.starved" in message for message in messages)
    assert running.run("opctl", "status")[0]


def test_the_journal_has_priorities_and_no_escape_codes(running):
    """Lines carry <N>, which the journal keeps apart, under the name opd."""
    lines = [entry for entry in journal(running) if entry.get("SYSLOG_IDENTIFIER") == "opd"]
    ready = [entry for entry in lines if "daemon.ready" in str(entry["MESSAGE"])]
    assert ready
    assert {entry["PRIORITY"] for entry in ready} == {"6"}
    assert not any(str(entry["MESSAGE"]).startswith("<") for entry in lines)
    assert not any("\x1b" in str(entry["MESSAGE"]) for entry in lines)


def test_wrong_settings_are_not_tried_again(machine):
    """Exit 78 leaves it failed at once, with the reason in the journal."""
    assert machine.run("sh", "-c", "echo '[daemon]\ninterval = 0' >/etc/opd/conf.d/z.toml")[0]
    try:
        assert not machine.run("systemctl", "start", "opd")[0]
        assert machine.show("opd", "NRestarts") == "0"
        assert machine.show("opd", "ExecMainStatus") == "78"
        assert any("interval" in str(entry["MESSAGE"]) for entry in journal(machine))
    finally:
        assert machine.run("rm", "/etc/opd/conf.d/z.toml")[0]
        machine.run("systemctl", "reset-failed", "opd")


def test_stop_stores_everything_and_leaves_no_process(machine):
    """`systemctl stop` is a clean end: exit 0, the unit's cgroup empty."""
    assert machine.run("systemctl", "start", "opd")[0]
    assert machine.run("systemctl", "stop", "opd")[0]
    assert machine.show("opd", "ExecMainStatus") == "0"
    assert machine.show("opd", "Result") == "success"
    assert machine.show("opd", "ControlGroup") == ""

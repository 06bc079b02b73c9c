"""The governor on a real daemon under a real load: less is sampled, and what is said stays true."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest


def cpu_seconds(pid):
    """CPU time of a live process, from the scheduler."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def cores_of(daemon, pid, since, until):
    """Cores that the report gives a process in a range of time."""
    answer = daemon.ask(
        *("report", "--since", f"{since:.3f}", "--until", f"{until:.3f}"),
        *("--sort", "pid", "--top", "0"),
    )
    return sum(row["cores"] for row in answer["rows"] if row["pid"] == pid), answer


@pytest.fixture
def burning(busy):
    """A process that burns CPU all the while; its pid."""
    with subprocess.Popen([busy, "plain", "1000"], stdout=subprocess.PIPE, text=True) as process:
        yield int(process.stdout.readline())
        process.kill()


def wait_for(daemon, done, seconds=180):
    """Poll the governor's status until ``done`` says so; it then."""
    until = time.monotonic() + seconds
    while not done(governor := daemon.ask("status")["governor"]):
        assert time.monotonic() < until, (governor, daemon.log()[-2000:])
        time.sleep(1)
    return governor


def test_an_overload_lowers_the_rate_and_no_answer_goes_wrong(start_daemon, burning, tmp_path):
    """A budget that the rate asked for cannot meet: lowered, said everywhere, weights true."""
    config = tmp_path / "opd.toml"
    config.write_text("[governor]\ncpu_percent = 0.05\nleast_hz = 199\n")
    daemon = start_daemon("--config", str(config), "-e", "cpu-clock:4999hz", "--interval", "1")
    lowered = wait_for(daemon, lambda governor: governor["share"] < 0.5)
    assert lowered["cpu_percent_budget"] == pytest.approx(0.05)
    assert lowered["share"] >= 199 / 4999
    assert '"governor.lowered"' in daemon.log()
    assert "of the rates asked" in daemon.opctl("status").stdout

    # Weights: the CPU time that the scheduler saw is what the report says, at the lower rate.
    share = daemon.ask("status")["governor"]["share"]
    began, used = time.time(), cpu_seconds(burning)
    time.sleep(10)
    ended, used = time.time(), cpu_seconds(burning) - used
    daemon.ask("dump")
    cores, answer = cores_of(daemon, burning, began, ended)
    assert cores == pytest.approx(used / (ended - began), rel=0.2)
    quality = answer["quality"]
    assert quality["hz_asked"] == 4999
    assert quality["hz_effective"] <= 4999 * share * 1.1
    assert quality["governed_seconds"] > 0

    # Without a budget it is at once what was asked for.
    config.write_text('[governor]\ncpu_percent = "off"\n')
    daemon.process.send_signal(signal.SIGHUP)
    recovered = wait_for(daemon, lambda governor: governor["share"] == 1.0)
    assert recovered["cpu_percent_budget"] is None
    time.sleep(2)
    began = time.time()
    time.sleep(4)
    daemon.ask("dump")
    _, answer = cores_of(daemon, burning, began + 1, time.time())
    assert answer["quality"]["hz_effective"] > 4000
    assert answer["quality"]["governed_seconds"] == 0

    # Over the whole range, with every change of rate inside, the weights add up too.
    whole = daemon.ask("report", "--sort", "comm", "--top", "0")
    cores = sum(row["cores"] for row in whole["rows"])
    assert 0.2 < cores < 1.1 * (len(list(Path("/sys/devices/system/cpu").glob("cpu[0-9]*"))))
    assert daemon.stop() == 0
    assert "duty.failed" not in daemon.log()


def test_memory_over_its_limit_is_said_and_given_back(start_daemon, tmp_path):
    """The least limit there is: caches are dropped, then stacks; sampling goes on."""
    config = tmp_path / "opd.toml"
    config.write_text("[governor]\nmemory_mib = 32\n")
    daemon = start_daemon("--config", str(config), "--interval", "1")
    governor = wait_for(daemon, lambda governor: governor["memory_over"] >= 2)
    assert governor["memory_bytes_limit"] == 32 << 20
    assert governor["stacks_divided_by"] > 1
    assert '"memory.over"' in daemon.log()
    before = daemon.ask("status")["samples"]
    daemon.ask("dump")
    assert daemon.ask("report")["total"] > 0
    assert daemon.ask("status")["samples"] >= before
    config.write_text("[governor]\nmemory_mib = 4096\n")
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(daemon, lambda governor: governor["stacks_divided_by"] == 1)
    assert '"memory.recovered"' in daemon.log()
    assert daemon.stop() == 0
    assert "duty.failed" not in daemon.log()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ('cpu_percent = "of"', "did you mean off?"),
        ("cpu_percent = 0", "0.01"),
        ("memory_mib = 3", "opd does not run in less"),
        ("least_hz = 0", "1 or more"),
    ],
)
def test_wrong_budgets_are_refused(start_daemon, tmp_path, setting, said):
    """Exit 78, with file, key and what is right."""
    config = tmp_path / "opd.toml"
    config.write_text(f"[governor]\n{setting}\n")
    daemon = start_daemon("--config", str(config), ready=False)
    assert daemon.process.wait(60) == 78
    assert said in daemon.log()
    assert f"{config}: governor.{setting.split()[0]}" in daemon.log()

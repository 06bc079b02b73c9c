"""IBS features of a daemon: PMUs of a sysfs that is mounted over the real one, a real kernel.

The machines of tests have no IBS. A PMU whose type the kernel does not know is
refused as a missing one is; one with the type of software events is opened for
real, and its samples come with a record that is none.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from places import BIN

sys.path.insert(0, str(Path(__file__).parent.parent / "daemon" / "features" / "ibs"))
from fake_pmus import make_devices

DEVICES = "/sys/bus/event_source/devices"
MISSING = "no ibs_{} PMU (virtual machine / not AMD / disabled in BIOS: caps 0)"


@pytest.fixture
def opd_with(tmp_path, start_daemon):
    """Give a function that starts opd with PMUs of these types; skips where mounts are refused."""

    def start(*arguments, types, machine="zen4", **more):
        devices = tmp_path / "devices"
        for real in Path(DEVICES).iterdir():
            (devices / real.name).mkdir(parents=True)
            (devices / real.name / "type").write_text((real / "type").read_text())
        make_devices(devices, machine, types=types)
        program = ["unshare", "-m", "sh", "-c"]
        program += [f'mount --bind "$0" {DEVICES} && exec "$@"', devices, BIN / "opd"]
        probe = ["unshare", "-m", "sh", "-c", f'mount --bind "$0" {DEVICES}', str(devices)]
        if subprocess.run(probe, check=False, capture_output=True).returncode != 0:
            pytest.skip("nothing may be mounted here")
        return start_daemon(*arguments, program=tuple(program), **more)

    return start


def warnings(daemon, event):
    """Log lines of an event."""
    lines = [json.loads(line) for line in daemon.log().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def test_without_ibs_sampling_goes_on_and_says_so(start_daemon):
    """As asked by the founding sentence; with --strict that is exit status 78."""
    feature = "--ext-feature=ibs_fetch:events=IBS_FETCH_ALL"
    daemon = start_daemon(feature)
    (line,) = warnings(daemon, "feature.unavailable")
    assert line["reason"] == MISSING.format("fetch")
    status = daemon.ask("status")
    assert status["features"]["ibs_fetch"] == {
        "state": "unavailable",
        "reason": MISSING.format("fetch"),
    }
    assert daemon.ask("dump") is not None
    assert daemon.ask("report")["total"] >= 0
    for event in ("IBS_FETCH_ALL", "ibs_fetch"):
        asked = daemon.opctl("report", "-e", event, check=False)
        assert asked.returncode == 2
        assert f"no event '{event}'" in asked.stderr
        assert f"feature ibs_fetch is unavailable: {MISSING.format('fetch')}" in asked.stderr
    assert daemon.stop() == 0
    strict = start_daemon("--strict", feature, ready=False)
    assert strict.process.wait(60) == 78
    assert MISSING.format("fetch") in strict.log()


def test_a_type_that_the_kernel_does_not_know_is_refused_by_it(opd_with):
    """Each step down is in the log with its errno; the other events are sampled."""
    daemon = opd_with("-x", "ibs_op:events=IBS_OP_ALL,user=false", types=(4094, 4095))
    status = daemon.ask("status")
    state = status["features"]["ibs_op"]
    assert state["state"] == "unavailable"
    assert state["reason"].startswith("the kernel refused ibs_op: ")
    assert state["reason"].endswith("(ENOENT)")
    steps = [line for line in warnings(daemon, "event.fallback") if line["asked"] == "ibs_op"]
    assert [(step["errno"], step["instead"]) for step in steps] == [
        ("ENOENT", "ibs_op/config=0x80000/"),
        ("ENOENT", "ibs_op/config=0x80000,raw record only/"),
    ]
    daemon.ask("dump")
    names = [event["name"] for event in daemon.ask("events")["events"]]
    assert "IBS_OP_ALL" not in names
    assert daemon.stop() == 0


def test_an_option_that_the_cpu_lacks_makes_it_unavailable(opd_with):
    """The reason names the option and what it needs."""
    daemon = opd_with("-x", "ibs_op:ldlat=128", types=(10, 11))
    reason = daemon.ask("status")["features"]["ibs_op"]["reason"]
    assert reason == "ibs_op here has no ldlat (it needs Zen5 on, Linux 6.12)"
    assert daemon.stop() == 0


def test_samples_without_a_record_are_counted_as_such(opd_with, busy):
    """They count under the event itself; no derived event comes of them, and stats tell."""
    daemon = opd_with(
        *("-x", "ibs_op:cnt_ctl=0,count=1000000,events=IBS_OP_ALL+IBS_OP_LOAD,memaccess=true"),
        *("--interval", "1"),
        types=(1, 1),
        machine="family10h",
    )
    subprocess.run([busy, "plain", "1"], check=False, timeout=60)
    daemon.ask("dump")
    names = [event["name"] for event in daemon.ask("events")["events"]]
    assert names[-3:] == ["ibs_op", "IBS_OP_ALL", "IBS_OP_LOAD"]
    plain = daemon.ask("report", "-e", "ibs_op", "--sort", "comm", "--top", "0")
    assert plain["total"] > 0
    assert plain["weight_total"] == 1_000_000 * plain["total"]
    assert plain["quality"]["degraded"]["inexact_ip"] == plain["total"]
    assert daemon.ask("report", "-e", "IBS_OP_ALL")["total"] == 0
    own = daemon.ask("stats", "ibs_op")["features"]["ibs_op"]["own"]
    assert own["inexact"] >= plain["total"]
    assert own["bare"] + own["invalid"] >= plain["total"]
    assert own["IBS_OP_ALL"] == own["lost"] == 0
    assert daemon.ask("mem")["accesses"]["offered"] == 0
    assert daemon.stop() == 0


def test_samples_of_a_mode_that_is_not_wanted_are_dropped(opd_with, busy):
    """Where the kernel was not asked to: also from the event itself."""
    daemon = opd_with(
        *("-x", "ibs_op:cnt_ctl=0,count=1000000,kernel=false,swfilt=false"),
        *("--interval", "1"),
        types=(1, 1),
        machine="family10h",
    )
    subprocess.run([busy, "plain", "1"], check=False, timeout=60)
    daemon.ask("dump")
    rows = daemon.ask("report", "-e", "ibs_op", "--sort", "mode")["rows"]
    assert [row["mode"] for row in rows] == ["user"]
    own = daemon.ask("stats", "ibs_op")["features"]["ibs_op"]["own"]
    assert own["inexact"] > rows[0]["samples"]
    assert daemon.stop() == 0

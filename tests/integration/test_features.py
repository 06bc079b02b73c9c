"""Extended features in a real daemon: unavailable, strict, settings, replay, third parties."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from installed_plugins import PLUGINS, lay_out
from perfdata_writer import USER, Attr, PerfData
from places import BIN

ROOT = Path(__file__).parents[2]
MANUAL = ROOT / "docs" / "plugins.md"
WAIT_S = 60.0


def wait_for(look):
    """Wait until ``look`` gives something; that."""
    until = time.monotonic() + WAIT_S
    while not (found := look()):
        assert time.monotonic() < until
        time.sleep(0.1)
    return found


@pytest.fixture
def recorded(tmp_path):
    """The environment with a plugin whose machine lacks something."""
    site = tmp_path / "site"
    points = {"recorded": "recorded"}
    return lay_out(site, "opd_recorded", points, module=PLUGINS / "recorded.py")


def test_what_the_machine_cannot_run_is_said_and_the_rest_goes_on(start_daemon, recorded):
    """Unavailable with its reason, in the log and in every answer about it."""
    daemon = start_daemon("-e", "cpu-clock", "-x", "recorded", "-x", "null", env=recorded)
    reason = "this machine has no such PMU"
    status = daemon.ask("status")
    assert status["features"]["recorded"] == {"state": "unavailable", "reason": reason}
    assert status["features"]["null"] == {"state": "running"}
    assert f"unavailable: {reason}" in daemon.opctl("features", "recorded").stdout
    assert f"unavailable: {reason}" in daemon.opctl("status").stdout
    daemon.ask("dump")
    assert daemon.ask("report", "-e", "NULL_RECORD")["total"] >= 1
    assert daemon.opctl("features", "nothing", check=False).returncode == 2
    assert daemon.stop() == 0
    assert reason in daemon.log()


def test_strict_refuses_to_start_without(start_daemon, recorded):
    """Exit status 78, the reason on stderr."""
    daemon = start_daemon("--strict", "-x", "recorded", env=recorded, ready=False)
    assert daemon.process.wait(WAIT_S) == 78
    assert "feature recorded: unavailable: this machine has no such PMU" in daemon.log()


def test_strict_starts_with_what_can_run(start_daemon):
    """It concerns features only: the ladder of events still falls back."""
    daemon = start_daemon("--strict", "-x", "null")
    assert daemon.ask("status")["features"] == {"null": {"state": "running"}}


def test_a_recording_may_stand_for_the_machine(start_daemon, recorded, tmp_path):
    """replay=FILE is imported as a session; nothing of the machine is asked for."""
    data = PerfData([Attr("cpu-clock", ids=(11,))])
    data.comm(pid=7, comm="demo", time=1000, execs=True)
    for at in range(5):
        data.sample(event=0, pid=7, ip=0x400123, time=2000 + at, chain=[USER, 0x400123])
    data.finished_round()
    data.write(tmp_path / "perf.data")
    ext = f"recorded:replay={tmp_path / 'perf.data'}"
    daemon = start_daemon("-e", "cpu-clock", "--strict", "-x", ext, env=recorded)

    def replayed():
        state = daemon.ask("status")["features"]["recorded"]
        return state if state["state"] == "replayed" else None

    session = wait_for(replayed)["session"]
    assert daemon.ask("report", "--session", session)["total"] == 5
    elsewhere = daemon.opctl("report", "-e", "recorded", check=False)
    assert elsewhere.returncode == 2
    assert f"feature recorded was replayed: see --session {session}" in elsewhere.stderr


@pytest.mark.parametrize("replay", ["/no/such/file", "/"])
def test_a_recording_that_cannot_be_read_is_78(recorded, replay):
    """Before anything is started."""
    done = subprocess.run(
        [BIN / "opd", "--check-config", "-x", f"recorded:replay={replay}"],
        env=recorded,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 78
    assert f"feature recorded: replay: {replay}" in done.stderr
    assert done.stdout == ""


def test_settings_ask_for_features_and_sighup_changes_them(start_daemon, tmp_path):
    """A table is as good as a flag; sampling begins anew with what is asked for now."""
    settings = tmp_path / "opd.toml"
    settings.write_text("[feature.null]\nrecords = 3\nsymbols = ['a', 'b']\n")
    daemon = start_daemon("-e", "cpu-clock", "--config", str(settings), "-x", "null:records=5")
    null, *others = daemon.ask("features")["features"]
    assert {one["state"] for one in others if one["name"] == "skeleton"} == {"off"}
    assert "scale=a whole number from 1 to 1000" in daemon.opctl("features", "skeleton").stdout
    assert null["set"] == {"records": 5, "weight": 1, "bytes": 4096, "symbols": ["a", "b"]}
    settings.write_text("[feature.null]\nenabled = false\n[feature.skeleton]\nscale = 2\n")
    daemon.process.send_signal(signal.SIGHUP)
    names = wait_for(lambda: _names(daemon) if "skeleton" in _names(daemon) else None)
    assert names == ["skeleton", "null"]
    settings.write_text("[feature.skeleton]\nscael = 2\n")
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "no option 'scael'" in daemon.log())
    assert _names(daemon) == names
    daemon.ask("dump")
    assert daemon.ask("report", "-e", "SKELETON_SWITCHES")["total"] >= 1


def _names(daemon):
    return [one["name"] for one in daemon.ask("features")["features"] if "set" in one]


def test_a_feature_may_have_an_event_of_the_kernel(start_daemon, tmp_path):
    """It is sampled beside the others; one that is refused costs its feature alone."""
    points = {"kernel": "kernel_events"}
    site = tmp_path / "site"
    environment = lay_out(site, "opd_kernel", points, module=PLUGINS / "kernel_events.py")
    names = ("kernel_good", "kernel_refused", "kernel_broken")
    asked = [word for name in names for word in ("-x", name)]
    daemon = start_daemon("-e", "cpu-clock", *asked, env=environment)
    states = daemon.ask("status")["features"]
    assert states["kernel_good"] == {"state": "running"}
    assert "the kernel refused cs-kernel_refused: " in states["kernel_refused"]["reason"]
    assert "it failed when cs-kernel_broken was open: " in states["kernel_broken"]["reason"]
    own = daemon.ask("stats", "kernel_good")["features"]["kernel_good"]["own"]
    assert own["index"] == 1
    assert own["own"] >= 2
    assert own["errno"] > 0
    daemon.ask("dump")
    assert daemon.ask("report", "-e", "cs-kernel_good")["total"] > 0
    assert daemon.ask("report", "-e", "cpu-clock")["event"] == "cpu-clock"
    assert daemon.stop() == 0


def test_statistics_are_told_when_they_are_asked_for(start_daemon):
    """Opctl stats, SIGUSR1, and the end; and the cost is its feature's."""
    daemon = start_daemon("-e", "cpu-clock", "-x", "skeleton")
    daemon.ask("dump")
    stats = daemon.ask("stats", "skeleton")["features"]["skeleton"]
    assert stats["own"]["windows"] >= 1
    assert stats["hooks"]["each_window"]["cpu_ns"] > 0
    cost = daemon.ask("status", "--cost")["cost"]
    assert any(row["stage"] == "feature skeleton" for row in cost["stages"])
    daemon.process.send_signal(signal.SIGUSR1)
    wait_for(lambda: daemon.log().count('"feature.stats"') == 1)
    assert daemon.stop() == 0
    assert daemon.log().count('"feature.stats"') == 2


@pytest.mark.timeout(300)
def test_a_third_partys_package_is_found_run_and_queried(start_daemon, tmp_path):
    """The manual's plugin, under another name: built, installed beside opd, asked for."""
    package = tmp_path / "opd-plugin-mine"
    _write_package(package)
    wheels = tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    offline = ["--quiet", "--no-index", "--no-deps"]
    subprocess.run(
        [*pip, "wheel", *offline, "--no-build-isolation", "-w", wheels, package], check=True
    )
    python = _environment_beside_ours(tmp_path / "venv")
    [wheel] = wheels.iterdir()
    subprocess.run([*pip, "--python", python, "install", *offline, wheel], check=True)
    start = (python, "-c", "from opd.cli.programs import opd; raise SystemExit(opd())")
    listed = subprocess.run(
        [*start, "--list-features", "--format", "json"], capture_output=True, check=True
    )
    mine = {one.get("name"): one for one in json.loads(listed.stdout)["features"]}["mine"]
    assert (mine["package"], mine["available"]) == ("opd_plugin_mine 1.0", True)
    daemon = start_daemon("-e", "cpu-clock", "-x", "mine:scale=1", program=start)
    for _ in range(3):
        daemon.ask("dump")
    answer = daemon.ask("report", "-e", "MINE_SWITCHES", "--sort", "comm,image,symbol")
    [row] = answer["rows"]
    assert (row["comm"], row["image"], row["symbol"]) == ("kernel", "[mine]", "all CPUs")
    assert row["samples"] >= 3
    assert row["looks"] == row["samples"]
    assert row["interrupts"] > 0
    assert [column["name"] for column in answer["extra"]] == ["interrupts", "looks"]
    table = daemon.opctl("report", "-e", "MINE_SWITCHES").stdout
    assert re.search(r"symbol +interrupts +looks", table)
    query = "SELECT sum(weight) AS n FROM samples WHERE event = 'MINE_SWITCHES.looks'"
    assert daemon.ask("sql", query)["rows"][0]["n"] >= row["looks"]
    names = {one["name"] for one in daemon.ask("events")["events"]}
    assert {"MINE_SWITCHES", "MINE_SWITCHES.looks", "MINE_SWITCHES.interrupts"} <= names


def _write_package(folder):
    """The package of the manual, with another word in the place of skeleton."""
    text = MANUAL.read_text()
    code = "\n\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    [build] = [
        block for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL) if "build" in block
    ]
    module = folder / "opd_plugin_mine" / "__init__.py"
    module.parent.mkdir(parents=True)
    words = {"skeleton": "mine", "Skeleton": "Mine", "SKELETON": "MINE"}
    for file, content in ((module, code), (folder / "pyproject.toml", build)):
        file.write_text(re.sub("|".join(words), lambda found: words[found[0]], content))


def _environment_beside_ours(folder):
    """A fresh environment that sees opd and what it needs; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [site] = folder.glob("lib/python*/site-packages")
    [ours] = [path for path in sys.path if path.endswith("site-packages")][:1]
    (site / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    return folder / "bin" / "python"

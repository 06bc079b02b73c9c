"""Plugins that raise, hang, return nonsense or allocate without end, in every hook."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time

import pytest

from installed_plugins import PLUGINS, lay_out
from places import BIN

sys.path.insert(0, str(PLUGINS))
import misbehaving

LOADING = {f"load-{how}": f"misbehaving:load_{how}" for how in misbehaving.HOWS}
POINTS = {"misbehaving": "misbehaving", "misspelt": "misbehaving:misspelt", **LOADING}
# One that goes on where others fail.
GOOD = "null"
SETTINGS = "[daemon]\nhook_seconds = 0.5\nhook_mib = 32\ninterval = 1.0\n"
WINDOWS = 3
PATIENCE_S = 90.0


@pytest.fixture
def environment(tmp_path):
    """Where the plugin is found, and nothing else of ours."""
    return lay_out(tmp_path / "site", "opd_misbehaving", POINTS, module=PLUGINS / "misbehaving.py")


def test_a_bad_plugin_is_listed_with_what_is_wrong(environment):
    """Whatever a plugin does before it offers anything, the others are listed."""
    done = subprocess.run(
        [BIN / "opd", "--list-features", "--format", "json"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=90,
    )
    found = json.loads(done.stdout)["features"]
    broken = {one["plugin"]: one["broken"] for one in found if "broken" in one}
    assert "RuntimeError: on purpose" in broken["load-raise"]
    assert "took longer than 5 s" in broken["load-hang"]
    assert "expected a list of Feature, got '42'" in broken["load-nonsense"]
    assert re.search("MiB, more than 256|longer than 5 s", broken["load-allocate"])
    assert "opd_sfile_sink" in broken["misspelt"]
    listed = {one["name"]: one for one in found if "name" in one}
    assert listed["null"]["available"]
    assert listed["bad_raise_opd_ext_init"]["package"] == "opd_misbehaving 1.0"
    assert "it could not say" in listed["bad_hang_unavailable"]["reason"]


@pytest.mark.privileged
@pytest.mark.timeout(300)
def test_bad_hooks_cost_their_feature_and_nothing_else(tmp_path, start_daemon, environment):
    """Each is quarantined with its hook and reason told; sampling, null and exit go on."""
    settings = tmp_path / "opd.toml"
    settings.write_text(SETTINGS)
    names = [f"bad_{how}_{hook}" for how in misbehaving.HOWS for hook in misbehaving.HOOKS]
    arguments = [word for name in (*names, GOOD) for word in ("-x", name)]
    # Without those that are broken: a feature is looked for in all.
    lay_out(tmp_path / "site", "opd_misbehaving", {"misbehaving": "misbehaving"})
    daemon = start_daemon("-e", "cpu-clock", "--config", str(settings), *arguments, env=environment)
    before = daemon.ask("status")["samples"]
    until = time.monotonic() + PATIENCE_S
    # Not all hooks get their turn at once: those that overrun take the time of others.
    for turn in itertools.count():
        features = [one for one in daemon.ask("features")["features"] if "set" in one]
        quiet = [one["name"] for one in features if not _has_failed(one)]
        if not quiet:
            break
        assert time.monotonic() < until, quiet
        daemon.ask("dump")
        daemon.ask("stats")
        daemon.ask("save", f"kept{turn}")
        daemon.ask("dump")
        daemon.ask("reset")
    for _ in range(WINDOWS):
        daemon.ask("dump")
    status = daemon.ask("status")
    assert status["samples"] > before
    assert status["features"][GOOD] == {"state": "running"}
    assert status["features"]["bad_hang_each_window"]["failures"] >= 1
    good = daemon.ask("report", "-e", "NULL_RECORD", "--sort", "symbol")
    assert good["total"] >= WINDOWS
    assert good["rows"][0]["bytes"] == 4096 * good["total"]
    assert daemon.ask("stats", GOOD)["features"][GOOD]["own"]["create"] >= 1
    assert daemon.stop() == 0
    failed = [json.loads(line) for line in daemon.log().splitlines() if "feature.failed" in line]
    assert {line["feature"] for line in failed} == set(names)
    assert {line["plugin"] for line in failed} == {"misbehaving"}
    assert {line["hook"] for line in failed} == set(misbehaving.HOOKS)


@pytest.mark.privileged
def test_a_failure_is_published(tmp_path, start_daemon, environment):
    """Subscribers of the log hear of it."""
    lay_out(tmp_path / "site", "opd_misbehaving", {"misbehaving": "misbehaving"})
    name = "bad_raise_opd_ext_print_stats"
    daemon = start_daemon("-e", "cpu-clock", "-x", name, env=environment)
    watch = [BIN / "opctl", "--endpoint", daemon.endpoint, "--format", "json", "watch", "log"]
    with subprocess.Popen([*watch, "--count", "1"], stdout=subprocess.PIPE, text=True) as heard:
        until = time.monotonic() + PATIENCE_S
        while heard.poll() is None:
            assert time.monotonic() < until
            # It may begin to listen late: the hook fails again after its quarantine.
            daemon.ask("stats")
            time.sleep(0.5)
        message = json.loads(heard.stdout.readline())["message"]
    assert (message["event"], message["feature"]) == ("feature.failed", name)


def _has_failed(one):
    """Whether a bad feature failed, which it does in the hook and the way of its name."""
    if one["name"] == GOOD or one["name"].endswith("opd_ext_deinit"):
        return True
    if not one.get("failures"):
        return False
    reasons = {
        "raise": ("RuntimeError: on purpose",),
        "hang": ("took longer than 0.5 s",),
        "nonsense": ("expected",),
        # Whichever it uses up first, on a machine that may be slow.
        "allocate": ("MiB, more than 32", "took longer than 0.5 s"),
    }
    _bad, how, hook = one["name"].split("_", 2)
    assert one["last_error"].startswith(f"{hook}: "), one["last_error"]
    assert any(reason in one["last_error"] for reason in reasons[how]), one["last_error"]
    return True

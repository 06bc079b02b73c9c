"""The shipped units: what systemd itself says of them, and that they say what we say."""

import configparser
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "systemd"
NAMES = ("opd.service", "opd.slice", "opd-probe.slice")
# Tenths: an exposure of at most 3.2.
MOST_EXPOSED = 32


@pytest.fixture(scope="module")
def analyze():
    """Give a function that runs systemd-analyze; skips where it is not installed."""
    path = shutil.which("systemd-analyze")
    if path is None:
        pytest.skip("systemd-analyze is not installed (package systemd)")

    def run(*arguments):
        return subprocess.run([path, *arguments], capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="module")
def service():
    """The service's directives by name, each a list of values."""
    text = (UNITS / "opd.service").read_text()
    values = {}
    for line in text.partition("[Service]")[2].splitlines():
        if re.match(r"[A-Z]\w+=", line):
            name, _, value = line.partition("=")
            values.setdefault(name, []).append(value)
    return values


def test_verify_prints_nothing(analyze):
    """No unknown key, no missing file, no ordering cycle."""
    done = analyze("verify", *(str(UNITS / name) for name in NAMES))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_exposure_is_at_most_3_2(analyze):
    """The gate on hardening: systemd-analyze security fails above the threshold."""
    arguments = ("security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager")
    done = analyze(*arguments, str(UNITS / "opd.service"))
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_the_gate_can_fail(analyze, tmp_path):
    """Without its hardening the same unit does not pass: the threshold bites."""
    text = (UNITS / "opd.service").read_text()
    soft = re.sub(r"(?ms)^# ---- what it may not do$.*^# ---- left out", "# ----", text)
    (tmp_path / "opd.service").write_text(soft)
    arguments = ("security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager")
    assert analyze(*arguments, str(tmp_path / "opd.service")).returncode != 0


def test_it_runs_as_a_user_with_the_capabilities_it_names(service):
    """The bounding set is the ambient one, and never CAP_SYS_ADMIN."""
    assert service["User"] == ["opd"]
    assert service["AmbientCapabilities"] == service["CapabilityBoundingSet"]
    assert "CAP_SYS_ADMIN" not in service["AmbientCapabilities"][0]


def test_each_capability_is_explained(service):
    """In the unit, and in the table of what breaks without it."""
    text, document = (
        (UNITS / "opd.service").read_text(),
        (ROOT / "docs" / "service.md").read_text(),
    )
    for name in service["AmbientCapabilities"][0].split():
        assert re.search(rf"(?m)^# {name.removeprefix('CAP_')} +\w", text), name
        assert re.search(rf"(?m)^\| `{name}` \|", document), name


# What systemd-analyze calls checks that are no directive of their own.
_NO_DIRECTIVE = {
    "RootDirectoryOrRootImage": "RootDirectory=",
    "PrivateMounts": "ProtectSystem=",  # any of these has mounts of its own
    "DeviceAllow": "ProtectClock=",  # which lets the clock be read
}


def test_what_an_assessment_misses_is_left_out_with_a_reason(analyze, service):
    """Each hardening directive of systemd that is not on stands in the unit, and why."""
    unit = str(UNITS / "opd.service")
    done = analyze("security", "--offline=true", "--no-pager", "--json=short", unit)
    reasons = (UNITS / "opd.service").read_text().partition("# ---- left out, and why")[2]
    missing = [check["json_field"] for check in json.loads(done.stdout) if not check["set"]]
    assert "PrivateTmp" in missing
    for check in missing:
        directive = check.split("_")[0]
        said = _NO_DIRECTIVE.get(check, f"{directive}=")
        assert directive in service or said.rstrip("=") in service or f"# {said}" in reasons, check


@pytest.mark.parametrize("name", ["sysusers.d/opd.conf", "tmpfiles.d/opd.conf"])
def test_their_files_are_lines_of_their_format(name):
    """Type, name or path, and the fields that belong to them."""
    lines = [line for line in (UNITS / name).read_text().splitlines() if line and line[0] != "#"]
    assert lines
    for line in lines:
        kind, _, rest = line.partition(" ")
        assert kind in {"u", "d"}
        assert "opd" in rest


def test_settings_of_the_slices_are_limits():
    """Both slices account, and bound memory and tasks."""
    for name in ("opd.slice", "opd-probe.slice"):
        parser = configparser.ConfigParser(delimiters=("=",), strict=False)
        parser.optionxform = str
        parser.read(UNITS / name)
        assert parser["Slice"]["MemoryAccounting"] == "yes"
        assert parser["Slice"]["MemoryMax"]
        assert parser["Slice"]["TasksMax"]

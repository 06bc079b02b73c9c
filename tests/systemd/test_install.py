"""`make install` below DESTDIR: what lies where, what it keeps, what uninstall takes away."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from places import BIN

# The C core is compiled, on a machine that may be busy.
pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]


def install(dest, action="install", prefix="/usr/local", wheel=""):
    """Run the script behind the make targets."""
    environment = {**os.environ, "BIN": str(BIN), "PYTHON": sys.executable}
    environment |= {"PREFIX": prefix, "DESTDIR": str(dest), "WHEEL": str(wheel)}
    return subprocess.run(
        [ROOT / "scripts" / "install", action],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


def wheel_of_the_tree():
    """The wheel that the first installation made."""
    return next((ROOT / "build" / "install").glob("*.whl"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A root directory with opd installed; skips where the libraries cannot be fetched."""
    dest = tmp_path_factory.mktemp("root")
    done = install(dest)
    if done.returncode != 0 and ("No matching distribution" in done.stderr):
        pytest.skip(f"the libraries cannot be fetched here: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    return dest


def test_everything_is_where_systemd_and_people_look(installed):
    """Programs, units, users, directories, settings, the documentation that the units name."""
    for name in (
        "usr/local/lib/systemd/system/opd.service",
        "usr/local/lib/systemd/system/opd.slice",
        "usr/local/lib/systemd/system/opd-probe.slice",
        "usr/local/lib/sysusers.d/opd.conf",
        "usr/local/lib/tmpfiles.d/opd.conf",
        "usr/local/share/doc/opd/service.md",
        "usr/local/share/doc/opd/events.md",
        "etc/opd/opd.toml",
        "etc/opd/conf.d/README",
    ):
        assert (installed / name).is_file(), name
    for name in ("opd", "opctl"):
        link = installed / "usr/local/bin" / name
        assert str(link.readlink()) == f"/usr/local/lib/opd/bin/{name}"


def test_nothing_in_it_knows_the_destdir(installed):
    """Scripts name the interpreter where it will lie."""
    home = installed / "usr/local/lib/opd"
    first = (home / "bin/opd").read_text().splitlines()[0]
    assert first == "#!/usr/local/lib/opd/bin/python"
    assert str(installed) not in (home / "pyvenv.cfg").read_text()


def test_it_runs(installed):
    """The environment is whole: the program starts from it, not from the source tree."""
    home = installed / "usr/local/lib/opd"
    code = "import opd, opd_native._core; print(opd.__file__)"
    done = subprocess.run(
        [home / "bin/python", "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert str(home) in done.stdout


def test_it_brings_the_events_of_cpus(installed):
    """Files of events are found in the installed package, not in the source tree."""
    home = installed / "usr/local/lib/opd"
    code = "import sys; from opd.cli.opd import main; sys.exit(main())"
    words = ["--cpu-type", "x86-64/family10", "--check-events", "CPU_CLK_UNHALTED", "IBS_OP_ALL"]
    done = subprocess.run(
        [home / "bin/python", "-I", "-c", code, *words], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0 ibs_op\n"
    files = sorted((home / "lib").glob("python3*/site-packages/opd/etc/events/x86-64/*/events"))
    assert {"family10", "family1a", "ibs"} <= {file.parent.name for file in files}


def test_settings_that_somebody_changed_stay(installed):
    """The new reference lies beside them."""
    settings = installed / "etc/opd/opd.toml"
    settings.write_text("[daemon]\ninterval = 5.0\n")
    done = install(installed, wheel=wheel_of_the_tree())
    assert done.returncode == 0, done.stderr
    assert settings.read_text() == "[daemon]\ninterval = 5.0\n"
    new = settings.with_name("opd.toml.new")
    assert new.read_text() == (ROOT / "etc/opd/opd.toml").read_text()
    assert "kept" in done.stdout


def test_uninstall_leaves_settings_alone(installed):
    """Programs and units go, /etc/opd stays."""
    done = install(installed, "uninstall")
    assert done.returncode == 0, done.stderr
    left = sorted(
        str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()
    )
    assert left == ["etc/opd/conf.d/README", "etc/opd/opd.toml", "etc/opd/opd.toml.new"]


def test_elsewhere_the_unit_has_the_full_path(installed, tmp_path):
    """A PREFIX that systemd does not search: /etc/systemd, and ExecStart= with the path."""
    done = install(tmp_path, prefix="/opt/opd", wheel=wheel_of_the_tree())
    assert done.returncode == 0, done.stderr
    assert installed != tmp_path
    unit = (tmp_path / "etc/systemd/system/opd.service").read_text()
    assert "\nExecStart=/opt/opd/bin/opd\n" in unit
    assert "file:/opt/opd/share/doc/opd/service.md" in unit
    assert (tmp_path / "etc/tmpfiles.d/opd.conf").is_file()


def test_a_relative_prefix_is_refused(tmp_path):
    """Exit 2, before anything is written."""
    done = install(tmp_path, prefix="usr")
    assert done.returncode == 2
    assert "absolute" in done.stderr
    assert list(tmp_path.iterdir()) == []

"""A real systemd as PID 1, in namespaces of its own: units can be started for what they are."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from places import BIN

UNITS = Path(__file__).parents[1] / "systemd"
# Short enough for a test; systemd feeds on what the daemon says four times as often.
DROP_IN = "[Service]\nWatchdogSec=3\n"
SETTINGS = '[daemon]\ninterval = 1.0\n[sampling]\nevents = ["cpu-clock"]\n'
BOOT = Path(__file__).parent / "systemd" / "boot"
BOOT_TIMEOUT_S = 30.0


class CannotBootError(Exception):
    """Why there is no systemd to be had here."""


class Machine:
    """Boots below ``base``, with the files of ``tree`` laid over this machine's root."""

    def __init__(self, base, tree):
        self._cgroup = _cgroup2() / f"opd-test-{os.getpid()}"
        try:
            self._cgroup.mkdir()
        except OSError as error:
            raise CannotBootError(f"no cgroup of its own: {error}") from error
        self.log_path = base / "console"
        work = base / "boot"
        work.mkdir()
        spaces = ("--mount", "--pid", "--cgroup", "--ipc", "--uts")
        # Into its cgroup first: that is to be the root of the namespace.
        command = ["sh", "-c", 'echo $$ >"$0" && exec "$@"', self._cgroup / "cgroup.procs"]
        command += ["unshare", *spaces, "--fork", "--kill-child", BOOT, work, tree]
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._pid = 0
        try:
            self._wait_booted()
        except BaseException:
            self.stop()
            raise

    def _wait_booted(self):
        until = time.monotonic() + BOOT_TIMEOUT_S
        while time.monotonic() < until and self._process.poll() is None:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
            with contextlib.suppress(OSError, ValueError):
                self._pid = int(children.read_text())
                comm = Path(f"/proc/{self._pid}/comm").read_text().strip()
                if comm == "systemd" and self.run("systemctl", "is-active", "sysinit.target")[0]:
                    return
            time.sleep(0.1)
        raise CannotBootError(f"systemd did not start: {self.log_path.read_text()[-500:]}")

    def run(self, *command, timeout=60):
        """Run a command inside: whether it succeeded, and all that it printed."""
        enter = ["nsenter", f"--target={self._pid}", "--mount", "--pid", "--cgroup", "--ipc"]
        done = subprocess.run(
            [*enter, "--uts", "--", *map(str, command)],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        return done.returncode == 0, done.stdout + done.stderr

    def show(self, unit, name):
        """A property of a unit."""
        return self.run("systemctl", "show", "--value", "--property", name, unit)[1].strip()

    def outside_pid(self, pid):
        """The pid by which a process inside is known out here; 0 when it is gone."""
        for status in Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError):
                for line in status.read_text().splitlines():
                    spaces = line.split()
                    if spaces[0] == "NSpid:" and len(spaces) == 3 and int(spaces[2]) == pid:
                        return int(spaces[1])
        return 0

    def stop(self):
        """End everything inside and take the cgroups away."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        until = time.monotonic() + 10
        while self._cgroup.exists() and time.monotonic() < until:
            for directory, _, _ in os.walk(self._cgroup, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(directory)  # noqa: PTH106
            time.sleep(0.05)


def _cgroup2():
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    raise CannotBootError("no cgroup v2 hierarchy is mounted")


@pytest.fixture(scope="session")
def machine(tmp_path_factory, busy):
    """A booted machine with the units in place; skips, with the reason, where there is none."""
    if os.geteuid() != 0:
        pytest.skip("a systemd of its own needs root")
    missing = [name for name in ("unshare", "nsenter") if shutil.which(name) is None]
    if missing or not Path("/lib/systemd/systemd").exists():
        pytest.skip(f"not installed: {', '.join(missing) or 'systemd'}")
    base = tmp_path_factory.mktemp("machine")
    tree = base / "tree"
    library, programs = tree / "usr/local/lib", tree / "usr/local/bin"
    system = library / "systemd/system"
    system.mkdir(parents=True)
    programs.mkdir()
    for name in ("opd.service", "opd.slice", "opd-probe.slice"):
        shutil.copy(UNITS / name, system)
    for name in ("sysusers.d", "tmpfiles.d"):
        shutil.copytree(UNITS / name, library / name)
    for name in ("opd", "opctl"):
        (programs / name).symlink_to(BIN / name)
    (tree / "srv").mkdir()
    shutil.copy(busy, tree / "srv/busy")
    drop_ins = tree / "etc/systemd/system/opd.service.d"
    drop_ins.mkdir(parents=True)
    (drop_ins / "test.conf").write_text(DROP_IN)
    settings = tree / "etc/opd/conf.d"
    settings.mkdir(parents=True)
    (settings / "test.toml").write_text(SETTINGS)
    try:
        one = Machine(base, tree)
    except CannotBootError as error:
        pytest.skip(f"no systemd can be started here: {error}")
    yield one
    one.stop()

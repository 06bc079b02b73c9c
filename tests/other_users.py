"""Runs opd as other users, with chosen groups and capabilities.

The interpreter of the tests may lie where only its owner may look, so others
get a virtual environment of their own, which finds everything that ours has.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

SERVICE_CAPABILITIES = ("perfmon", "sys_ptrace", "checkpoint_restore", "dac_read_search", "syslog")
# Ids that no real user has here: made up, and never looked up by name.
USER, OTHER_USER, GROUP = 64017, 64018, 64019

_IMPORTS = "import opd.service.daemon, opd.store.worker, opd_native._core, zmq"


class Place:
    """A directory that everybody may enter, with an interpreter that everybody may run."""

    def __init__(self):
        self.path = Path(tempfile.mkdtemp(prefix="opd-users-"))
        self.path.chmod(0o755)
        self.python = self._make_python()

    def _make_python(self):
        tried = []
        for base in (sys.executable, "/usr/bin/python3"):
            home = self.path / f"python{len(tried)}"
            done = subprocess.run(
                [base, "-m", "venv", "--without-pip", home],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0:
                version = f"python{sys.version_info.major}.{sys.version_info.minor}"
                folder = home / "lib" / version / "site-packages"
                folder.mkdir(parents=True, exist_ok=True)
                ours = sysconfig.get_paths()["purelib"]
                (folder / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
                # Not at once: what starts without privileges must find its way by itself.
                command = [home / "bin" / "python", "-c", _IMPORTS]
                done = subprocess.run(
                    [*as_user(USER), "sh", "-c", 'exec "$0" "$@"', *command],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if done.returncode == 0:
                    return home / "bin" / "python"
            tried.append(f"{base}: {done.stderr.strip()[-200:]}")
        pytest.skip("no interpreter that another user may run: " + "; ".join(tried))

    def opctl(self, user, endpoint, *arguments, groups=()):
        """Run opctl as somebody; what it did."""
        command = [*as_user(user, groups=groups), self.python, "-m", "opd.cli.opctl"]
        return subprocess.run(
            [*command, "--endpoint", endpoint, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def folder(self, name, owner=0, mode=0o755):
        """A new directory in it."""
        path = self.path / name
        path.mkdir()
        path.chmod(mode)
        os.chown(path, owner, owner)
        return path

    def remove(self):
        """Take it away with all that is in it."""
        shutil.rmtree(self.path)


def as_user(user, *, group=None, groups=(), capabilities=()):
    """The words in front of a command that run it as a user with just these capabilities."""
    added = ",".join(f"+{name}" for name in capabilities)
    sets = f"-all,{added}" if added else "-all"
    group = user if group is None else group
    words = ["setpriv", f"--reuid={user}", f"--regid={group}"]
    words += [f"--groups={','.join(map(str, groups))}"] if groups else ["--clear-groups"]
    words += [f"--bounding-set={sets}", f"--inh-caps={sets}"]
    return [*words, *([f"--ambient-caps={sets}"] if added else [])]


@pytest.fixture(scope="session")
def place():
    """Where other users can run opd; skips where setpriv or root are missing."""
    if os.geteuid() != 0:
        pytest.skip("running as other users needs root")
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed (package util-linux)")
    probe = subprocess.run(
        [*as_user(USER, capabilities=SERVICE_CAPABILITIES), "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        pytest.skip(f"setpriv is refused here: {probe.stderr.strip()}")
    one = Place()
    yield one
    one.remove()

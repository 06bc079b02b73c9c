"""Real cgroups for tests, made where the machine lets one, named as managers name theirs."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup")
PATIENCE_S = 10.0


def second_version():
    """Where version 2 is mounted; None when it is not."""
    for folder in (ROOT, ROOT / "unified"):
        if (folder / "cgroup.subtree_control").exists():
            return folder
    return None


def first_version():
    """Where a hierarchy of version 1 is mounted that places processes; None when there is none."""
    for name in ("systemd", "memory", "pids", "cpu"):
        if (ROOT / name / "tasks").exists():
            return ROOT / name
    return None


class Cgroups:
    """Makes cgroups below one hierarchy and removes them."""

    def __init__(self, hierarchy):
        self.hierarchy = hierarchy
        self._made = []

    def make(self, path):
        """Make the cgroup and those above it; a skip where that is refused."""
        folder = self.hierarchy
        for name in path.strip("/").split("/"):
            folder /= name
            if folder.exists():
                continue
            try:
                folder.mkdir()
            except OSError as error:
                pytest.skip(f"{folder} cannot be made: {error.strerror}")
            self._made.append(folder)
        return folder

    def inside(self, path, *command):
        """The command that runs there: it is moved before its exec, as managers do it."""
        procs = self.make(path) / "cgroup.procs"
        return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', *map(str, (procs, *command))]

    def move(self, pid, path):
        """Move a running process."""
        (self.make(path) / "cgroup.procs").write_text(str(pid))

    def remove(self):
        """Remove what was made, once what ran there has ended."""
        until = time.monotonic() + PATIENCE_S
        for folder in reversed(self._made):
            while True:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    pass
                except OSError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.02)
                    continue
                break


@contextlib.contextmanager
def cgroups_of(hierarchy, version):
    """Cgroups below a hierarchy; skips where it is not there."""
    if hierarchy is None:
        pytest.skip(f"no hierarchy of version {version} is mounted below {ROOT}")
    made = Cgroups(hierarchy)
    try:
        yield made
    finally:
        made.remove()

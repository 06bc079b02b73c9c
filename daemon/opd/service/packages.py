"""Notices that packages were installed, upgraded or removed, and which, where a log says so."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# What package managers write when they change something.
DATABASES = (
    ("dpkg", "var/lib/dpkg/status"),
    ("rpm", "usr/lib/sysimage/rpm/rpmdb.sqlite"),
    ("rpm", "var/lib/rpm/rpmdb.sqlite"),
    ("rpm", "var/lib/rpm/Packages"),
    ("pacman", "var/lib/pacman/local"),
    ("apk", "lib/apk/db/installed"),
)
_DPKG_LOG = "var/log/dpkg.log"
_TAIL_BYTES = 256 << 10
_SHOWN = 6
_ENTRY = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (install|upgrade|remove) ([^ :]+)\S* (\S+) (\S+)"
)
_WORDS = {"install": "installed", "upgrade": "upgraded", "remove": "removed"}

Mark = tuple[int, str, str]


class Watch:
    """Looks at the databases' files; a change counts once they have rested for a look."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._last: dict[str, str] = {}

    def look(
        self, seen: dict[str, str], now_ns: int, marks: list[Mark], now: dict[str, str]
    ) -> None:
        """Add a mark for each database that is not as ``seen``, and what to see it by."""
        for manager, path in DATABASES:
            state = self._state(path)
            what = f"packages {path}"
            rested = self._last.get(path) == state
            self._last[path] = state
            if not state or not rested or seen.get(what) == state:
                continue
            now[what] = state
            if what not in seen:
                continue
            at = min(int(state.split()[0]), now_ns)
            text = self._changes(int(seen[what].split()[0]), now_ns) if manager == "dpkg" else ""
            marks.append((at, "packages", f"{manager}: {text or 'packages changed'}"))

    def _state(self, path: str) -> str:
        """When it changed last, and which file it is; "" when there is none."""
        try:
            status = (self._root / path).stat()
        except OSError:
            return ""
        return f"{status.st_mtime_ns} {status.st_ino} {status.st_size}"

    def _changes(self, since_ns: int, until_ns: int) -> str:
        """What dpkg's log says it did since then; "" when it says nothing."""
        try:
            with (self._root / _DPKG_LOG).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TAIL_BYTES))
                tail = file.read(_TAIL_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""
        done: dict[str, str] = {}
        for when, action, package, old, new in _ENTRY.findall(tail):
            try:
                at = time.mktime(time.strptime(when, "%Y-%m-%d %H:%M:%S"))
            except (ValueError, OverflowError):
                continue
            # The log has whole seconds, and is written a little before the database.
            if since_ns // 1_000_000_000 < at <= until_ns / 1e9 + 1:
                versions = {"install": new, "upgrade": f"{old} → {new}", "remove": old}[action]
                done[package] = f"{_WORDS[action]} {package} {versions}"
        texts = list(done.values())
        more = len(texts) - _SHOWN
        return ", ".join(texts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")

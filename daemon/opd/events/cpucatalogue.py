"""The events files of one CPU type, read when an event of theirs is asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from opd.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from opd.events.cpuevents import CpuEvents


_FILE_BYTES_MOST = 1 << 20


def _cputype() -> ModuleType:
    from opd.events import cputype  # for the events that perf knows it is not needed

    return cputype


class Catalogue:
    """The events files of one CPU type, read when they are first needed.

    ``cpu_type`` "": this machine's. ``events_dir`` "": /etc/opd/events.
    """

    def __init__(self, *, cpu_type: str = "", events_dir: str = "", proc: str = "/proc") -> None:
        self._asked, self._events_dir, self._proc = cpu_type, events_dir, proc
        self._read: CpuEvents | None = None
        self._here = ""

    @property
    def path(self) -> tuple[Path, ...]:
        """Where files are looked for."""
        path: tuple[Path, ...] = _cputype().search_path(self._events_dir)
        return path

    @property
    def here(self) -> str:
        """The CPU type of this machine."""
        self._here = self._here or _cputype().detect(proc=self._proc)
        return self._here

    @property
    def events(self) -> CpuEvents:
        """All events. Raises ConfigError for broken files, EventError for an unknown type."""
        if self._read is None:
            from opd.events.cpuevents import load

            cputype = _cputype()
            wanted = self._asked or self.here
            if not self._asked and cputype.find_file(wanted, "events", self.path) is None:
                wanted = cputype.GENERIC
            name = cputype.check_type(wanted, self.path)
            self._read = load(name, self.path)
        return self._read

    @property
    def cpu_type(self) -> str:
        """The type whose events these are."""
        return self.events.cpu_type

    @property
    def foreign(self) -> bool:
        """Whether they are those of another CPU than this machine's.

        A type that only its name tells is this machine's: somebody says so.
        """
        return self.cpu_type != self.here and self.cpu_type in _cputype().DETECTED

    @property
    def amd(self) -> bool:
        """Whether this machine's CPU is AMD's."""
        return bool(_cputype().is_amd(proc=self._proc))

    def others_with(self, name: str) -> list[str]:
        """CPU types other than this one whose files have an event of that name."""
        from opd.events.cpuevents import load

        found: list[str] = []
        types = _cputype().known_types(self.path)
        if not _mentioned(name, self.path):
            return found
        for each in types:
            try:
                if each != self.cpu_type and name in load(each, self.path).by_name:
                    found.append(each)
            except ConfigError:
                continue  # broken files of a type that nobody asked for
        return found

    def check(self) -> None:
        """Read the files where somebody chose them. Raises as ``events`` does."""
        wanted = self._asked or self.here
        if self._asked or _cputype().find_file(wanted, "events", self.path[:1]) is not None:
            _ = self.events


def _mentioned(name: str, path: tuple[Path, ...]) -> bool:
    """Whether any events file has a line of that name; none is understood for it."""
    wanted = re.compile(rb"name:%b[ \t]" % re.escape(name.encode(errors="replace")))
    for place in path:
        for file in [*place.glob("*/events"), *place.glob("*/*/events")]:
            try:
                with file.open("rb") as stream:
                    if wanted.search(stream.read(_FILE_BYTES_MOST)):
                        return True
            except OSError:
                continue  # of a type that nobody asked for
    return False

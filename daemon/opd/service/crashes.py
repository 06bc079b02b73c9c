"""Where a process that crashes leaves its Python stacks, and what earlier ones left.

A fatal signal (also the watchdog's SIGABRT) writes the stack of every thread
into a file of the process's own in the session directory. One that ends well
takes its empty file away.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
from pathlib import Path
from typing import IO

KEPT = 8
TRACE_BYTES_MOST = 256 << 10
_SEEN = ".seen"


class CrashFile:
    """The file of this process, open from ``arm`` to ``disarm``."""

    def __init__(self, session_dir: Path, name: str) -> None:
        self._path = session_dir / f"crash-{name}.{os.getpid()}"
        self._file: IO[bytes] | None = None

    def arm(self) -> None:
        """Have fatal signals write there; without a place for it, to stderr."""
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
            self._file = os.fdopen(fd, "wb")
        except OSError:
            faulthandler.enable()
            return
        faulthandler.enable(self._file)

    def disarm(self) -> None:
        """End well: the file goes when nothing is in it."""
        faulthandler.disable()
        if self._file is None:
            return
        self._file.close()
        self._file = None
        with contextlib.suppress(OSError):
            if self._path.stat().st_size == 0:
                self._path.unlink()


def traces(session_dir: Path) -> list[Path]:
    """The files in which something crashed, newest last."""
    found = []
    for path in session_dir.glob("crash-*.*"):
        with contextlib.suppress(OSError):
            status = path.stat()
            if status.st_size > 0:
                found.append((status.st_mtime_ns, path))
    return [path for _, path in sorted(found)]


def take_stock(session_dir: Path) -> list[Path]:
    """The traces that no start has told of yet; told of from now on.

    Old ones beyond ``KEPT``, and empty ones of processes that were killed
    without a word, go.
    """
    for path in session_dir.glob("crash-*.*"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(path.name.split(".")[1])
            if path.stat().st_size == 0 and not Path(f"/proc/{pid}").exists():
                path.unlink()
    fresh = []
    every = traces(session_dir)
    for path in every[:-KEPT]:
        with contextlib.suppress(OSError):
            path.unlink()
    for path in every[-KEPT:]:
        if path.suffix != _SEEN:
            with contextlib.suppress(OSError):
                fresh.append(path.rename(path.with_name(path.name + _SEEN)))
    return fresh

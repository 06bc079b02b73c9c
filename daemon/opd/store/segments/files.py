"""The segment files of a session directory: their names, ages and sizes.

``segments/<session>-<run8>-<YYYYmmddTHH>.parquet``: the session's name as it
was when the file was written, made safe for a file name, the first eight
digits of the run, and the hour in UTC. Nobody else reads these names: a
session may be renamed, and what is in a file is told by the file
(:mod:`opd.store.segments.footer`). Imported by all; knows nothing of DuckDB.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from pathlib import Path
from typing import NamedTuple

FOLDER = "segments"
SPILL_NAME = ".spill"
HOUR_NS = 3_600_000_000_000

_HOUR_FORM = "%Y%m%dT%H"
_SUFFIX = ".parquet"
_NAME = re.compile(r"(?P<session>.+)-(?P<run>[0-9a-f]{8})-(?P<hour>\d{8}T\d{2})\.parquet")
_UNSAFE = re.compile(r"[^A-Za-z0-9._~]")
_RUN = re.compile(r"[0-9a-f]{8}")
_SESSION_BYTES = 100
# What a writer that was killed leaves behind; never ends in .parquet.
_UNFINISHED = ".part"


class Segment(NamedTuple):
    """One file. ``hour``: hours since 1970, of the windows in it by their start."""

    path: Path
    session: str
    run8: str
    hour: int
    bytes: int

    @property
    def start_ns(self) -> int:
        """Where its hour begins."""
        return self.hour * HOUR_NS

    @property
    def end_ns(self) -> int:
        """Where its hour ends; a window that began in it may end later."""
        return (self.hour + 1) * HOUR_NS


def segment_name(session: str, run: str, hour: int) -> str:
    """The file name of an hour of a run.

    >>> segment_name("deploy 1/42", "0123456789abcdef", 491_000)
    'deploy_1_42-01234567-20260105T08.parquet'
    """
    safe = _UNSAFE.sub("_", session)[:_SESSION_BYTES] or "_"
    start = dt.datetime.fromtimestamp(hour * 3600, dt.UTC)
    return f"{safe}-{short_run(run)}-{start.strftime(_HOUR_FORM)}{_SUFFIX}"


def short_run(run: str) -> str:
    """Eight hexadecimal digits for a run, its own first ones where it has them."""
    if _RUN.match(run):
        return run[:8]
    import hashlib  # seldom needed, and it loads OpenSSL

    return hashlib.blake2b(run.encode(errors="replace"), digest_size=4).hexdigest()


def unfinished_name(name: str) -> str:
    """What a segment is called while it is written by this process."""
    return f".{name}.{os.getpid()}{_UNFINISHED}"


def list_segments(directory: Path) -> list[Segment]:
    """The segments of a session directory, oldest hour first; none without the folder.

    Raises OSError when the folder cannot be read.
    """
    found = []
    try:
        entries = list(os.scandir(directory / FOLDER))
    except FileNotFoundError:
        return []
    for entry in entries:
        match = _NAME.fullmatch(entry.name)
        if match is None:
            continue
        try:
            hour = dt.datetime.strptime(match["hour"], _HOUR_FORM).replace(tzinfo=dt.UTC)
            size = entry.stat(follow_symlinks=False).st_size
        except (ValueError, FileNotFoundError):  # no such day; removed meanwhile
            continue
        number = int(hour.timestamp()) // 3600
        found.append(Segment(Path(entry.path), match["session"], match["run"], number, size))
    return sorted(found, key=lambda segment: (segment.hour, segment.path.name))


def remove_unfinished(directory: Path) -> int:
    """Remove what killed writers left; how many. Only the writer calls this."""
    removed = 0
    for path in (directory / FOLDER).glob(f".*{_UNFINISHED}"):
        path.unlink(missing_ok=True)
        removed += 1
    return removed

"""Directories of one process, that others may take away once it is dead and not before.

Each holds a file that its process has locked: a lock ends with who holds it,
however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OBJECTS, LINKS = "objects-", "link-"
INDEX, COPY = "opd-dto-index-", "opd-dto-copy-"
_LOCK = ".opd-lock"


@contextlib.contextmanager
def own_directory(prefix: str, place: Path | None = None) -> Iterator[Path]:
    """A new directory in ``place`` (None: that of temporary files), gone after the block."""
    path, fd = _made(prefix, place)
    try:
        yield path
    finally:
        remove(path)
        os.close(fd)


def _made(prefix: str, place: Path | None) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        try:
            fd = _opened(path)
        except FileNotFoundError:
            continue  # taken for a dead one's, as it was not locked yet
        # Where locks do not work nobody gets one, and so nobody takes it away.
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return path, fd
        os.close(fd)


def _opened(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path / _LOCK, flags, 0o600)


def clear_left(place: Path) -> None:
    """Take away what dead processes of this user left: in ``place``, and of temporary files."""
    temporary = Path(tempfile.gettempdir())
    for where, prefixes in ((place, (OBJECTS, LINKS)), (temporary, (INDEX, COPY))):
        for prefix in prefixes:
            for left in where.glob(f"{prefix}*"):
                _clear(left)


def _clear(left: Path) -> None:
    with contextlib.suppress(OSError):  # somebody else took it away, or it is not ours
        info = os.lstat(left)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
            return
        fd = _opened(left)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(left)
        finally:
            os.close(fd)


def remove(path: Path) -> None:
    """Delete a directory, also what a build has made read-only in it, as far as one may."""
    shutil.rmtree(path, ignore_errors=True)
    if not os.path.lexists(path):
        return
    with contextlib.suppress(OSError):
        path.chmod(0o700)
    for top, folders, _files in os.walk(path):
        for folder in folders:
            with contextlib.suppress(OSError):
                if not (below := Path(top, folder)).is_symlink():
                    below.chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)

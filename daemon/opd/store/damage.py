"""Moves a damaged store out of the way, so that profiling goes on in a new one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from opd.errors import StoreError
from opd.store.schema import APPLICATION_ID, FILE_NAME

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

ASIDE = f"{FILE_NAME}.corrupt-"
_MAGIC = b"SQLite format 3\0"
# Where SQLite's header has what PRAGMA application_id says.
_APPLICATION_AT = 68


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite found the file itself to be wrong."""
    name = getattr(error, "sqlite_errorname", "") or ""
    return name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def is_ours(directory: Path) -> bool:
    """Whether what is left of the file's header says that opd wrote it."""
    try:
        with (directory / FILE_NAME).open("rb") as file:
            header = file.read(_APPLICATION_AT + 4)
    except OSError:
        return False
    return header[_APPLICATION_AT:] == APPLICATION_ID.to_bytes(4, "big")


def set_aside(directory: Path) -> Path:
    """Rename the store, with its log, that nobody has open to write; its new path.

    Raises StoreError when that cannot be done.
    """
    base = time.strftime(f"{ASIDE}%Y%m%dT%H%M%SZ", time.gmtime())
    target, more = directory / base, 1
    while target.exists():
        more += 1
        target = directory / f"{base}-{more}"
    store = directory / FILE_NAME
    try:
        for suffix in ("-wal", ""):
            path = directory / f"{FILE_NAME}{suffix}"
            if path.exists():
                path.rename(f"{target}{suffix}")
        (directory / f"{FILE_NAME}-shm").unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{store}: cannot move it aside: {error.strerror}") from error
    return target


def list_aside(directory: Path) -> list[Path]:
    """What was set aside, oldest first."""
    return sorted(path for path in directory.glob(f"{ASIDE}*") if not path.name.endswith("-wal"))

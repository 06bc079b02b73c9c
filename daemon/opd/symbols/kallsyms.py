"""The kernel's symbol list. Reading it takes 0.1 s of CPU, so its packed form is kept in a file.

The file is of one boot and one list of modules, and of its owner alone, since
it tells where the kernel lies in memory.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from opd.sampling.kernel import boot_id
from opd.service.paths import cache_dir
from opd_native.errors import NativeError
from opd_native.identity import identity_of
from opd_native.kallsyms import Kallsyms, kernel_modules

LIST = "/proc/kallsyms"
MODULES = "/proc/modules"
FILE_NAME = "kallsyms"


def open_kallsyms(directory: str | None = None) -> Kallsyms:
    """The running kernel's list. NativeError as Kallsyms raises it.

    ``directory``: where the file is kept, else the cache directory of this
    user; "" for none. What keeps it from being kept does not matter: the
    list is read then.
    """
    directory = cache_dir() if directory is None else directory
    key = _key() if directory else b""
    if not key:
        return Kallsyms(LIST)
    path = Path(directory) / FILE_NAME
    kept = _mapped(path, key)
    if kept is not None:
        return kept
    table = Kallsyms(LIST)
    _keep(table, path, key)
    kept = _mapped(path, key)  # pages of the file can go and come back, memory cannot
    if kept is None:
        return table
    table.close()
    return kept


def _key() -> bytes:
    """What the list depends on; empty where that cannot be told."""
    boot = boot_id()
    try:
        modules = kernel_modules(MODULES)
    except NativeError:
        return b""
    return identity_of(f"{boot} {modules}".encode()) if boot else b""


def _mapped(path: Path, key: bytes) -> Kallsyms | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(fd, "rb"):
        status = os.fstat(fd)
        # Somebody else's file could name the kernel's functions as it likes.
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            return None
        try:
            return Kallsyms.mapped(fd, key)
        except NativeError:
            return None  # of another boot, or not whole: read anew


def _keep(table: Kallsyms, path: Path, key: bytes) -> None:
    temporary = path.with_name(f"{FILE_NAME}.{os.getpid()}")
    with contextlib.suppress(OSError, NativeError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
                table.save(file.fileno(), key)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

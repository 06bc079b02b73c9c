"""Opens a session store: to write by one worker, to read by anybody.

A committed transaction is in the write-ahead log's page cache before the
commit returns, so it survives ``kill -9`` of every process; only a crash of
the machine can take the last ones (``synchronous=NORMAL``: the file itself
stays whole).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from opd.errors import StoreError
from opd.store.schema import (
    APPLICATION_ID,
    FILE_NAME,
    LOCK_NAME,
    OLDEST_VERSION,
    SCHEMA,
    TABLES,
    UPGRADES,
    VERSION,
)

if TYPE_CHECKING:
    import tempfile
    from collections.abc import Iterator

# An import and the worker take turns; neither holds the file for seconds.
_BUSY_SECONDS = 30.0
# Checkpoints come early so that the log beside the file stays small.
_WAL_PAGES = 256
WAL_BYTES = _WAL_PAGES * 4096


def printable(text: str) -> str:
    r"""The text as valid UTF-8: bytes that are not become ``\xNN``.

    >>> printable("caf\udce9")
    'caf\\xe9'
    """
    if text.isascii():
        return text
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def open_writer(directory: Path) -> sqlite3.Connection:
    """The store of ``directory`` opened to write, created when missing (0750).

    Raises StoreError naming the path: not creatable, not ours, or written by
    a newer opd.
    """
    path = directory / FILE_NAME
    try:
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        # Created by us so that the mode is ours and not SQLite's 0644.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640))
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path}: cannot open the store: {error}") from error
    try:
        _prepare(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise StoreError(f"{path}: cannot open the store: {error}") from error
    except UnicodeDecodeError as error:  # of the message that quotes a damaged schema
        connection.close()
        raise DamagedStoreError(f"{path}: cannot open the store: it is damaged") from error
    except StoreError:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Set the connection up; create the tables in an empty file."""
    check_version(connection, path)
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint={_WAL_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
    connection.execute("PRAGMA cache_size=-4096")
    with transaction(connection):
        # Asked again under the lock: two may create the store at once.
        version = check_version(connection, path)
        if version == 0:
            _run_script(connection, SCHEMA)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        elif version < VERSION:
            for step in range(version, VERSION):
                _run_script(connection, UPGRADES[step])
        if version != VERSION:
            connection.execute(f"PRAGMA user_version={VERSION}")
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        if lost := [name for name in TABLES if name not in tables]:
            raise DamagedStoreError(f"{path}: damaged: without its table {lost[0]}")


def _run_script(connection: sqlite3.Connection, script: str) -> None:
    """Run the statements in the transaction that is open (executescript would commit it)."""
    for statement in script.split(";"):
        connection.execute(statement)


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version of the file, 0 when it is empty; StoreError when unusable."""
    # In one snapshot: a writer may make or upgrade it between the questions.
    with contextlib.nullcontext() if connection.in_transaction else snapshot(connection):
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        application = int(connection.execute("PRAGMA application_id").fetchone()[0])
        tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if not tables and not version:
        return 0
    if application != APPLICATION_ID:
        raise StoreError(f"{path}: is an SQLite file, but not a store of opd")
    if version > VERSION:
        raise StoreError(
            f"{path}: written by a newer opd (schema {version}, this one reads {OLDEST_VERSION}"
            f" to {VERSION})",
            hint="upgrade opd, or give another --session-dir",
        )
    if version < OLDEST_VERSION:
        raise StoreError(
            f"{path}: schema {version} is older than what this opd reads, {OLDEST_VERSION} to"
            f" {VERSION}",
            hint="let the opd before this one upgrade it, or give another --session-dir",
        )
    return version


@contextlib.contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """One state of the store for all that is read inside."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        # A disk error may have ended it already.
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One write transaction: committed on return, undone on any exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite may have undone it already (a full disk); then this says so.
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


class WriterLock:
    """Held by the one worker of a session directory; freed by the kernel when it dies."""

    def __init__(self, directory: Path) -> None:
        """Take the lock. StoreError names the process that has it."""
        path = directory / LOCK_NAME
        try:
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise StoreError(
                f"{directory}: another opd writes this store (pid {holder or 'unknown'})",
                hint="stop it, or give another --session-dir",
            ) from error
        with contextlib.suppress(OSError):  # a full disk: only the pid is missing
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let the next worker in."""
        os.close(self._fd)


class DamagedStoreError(StoreError):
    """The file is ours and cannot be what a writer left."""


class StoreGoneError(StoreError):
    """The open store is no longer the one at its path: removed or replaced."""


def identity_of(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file at ``path``, None when there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


class ReadConnection:
    """A read-only connection and, where one was needed, the copy it reads."""

    def __init__(self, directory: Path) -> None:
        """Open ``directory``. StoreError: no store, not ours, or a newer schema."""
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self.path = directory / FILE_NAME
        try:
            there = self.path.is_file()
        except OSError as error:  # no way in, or a name that is too long
            raise StoreError(f"{self.path}: cannot read the store: {error.strerror}") from error
        if not there:
            raise StoreError(f"{self.path}: no store there")
        try:
            self.connection = self._open()
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            self._remove_copy()
            raise StoreError(f"{self.path}: cannot read the store: {error}") from error
        try:
            version = check_version(self.connection, self.path)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self.close()
            raise StoreError(f"{self.path}: cannot read the store: {error}") from error
        except StoreError:
            self.close()
            raise
        if version == 0:
            self.close()
            raise StoreError(f"{self.path}: the store is empty")

    def close(self) -> None:
        """Close the connection; remove the copy."""
        self.connection.close()
        self._remove_copy()

    def _remove_copy(self) -> None:
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None

    def _open(self) -> sqlite3.Connection:
        """Try the file itself, then as a file that nobody changes, then a copy.

        A file in WAL mode needs its log's index beside it, which a read-only
        directory does not let SQLite make. Without a log the file alone is
        the whole store; with one, both are copied to where it can be made.
        """
        try:
            return _connect(self.path, "mode=ro")
        except sqlite3.OperationalError:
            if os.access(self.path.parent, os.W_OK):
                raise
        log = self.path.with_name(FILE_NAME + "-wal")
        if not log.exists() or log.stat().st_size == 0:
            return _connect(self.path, "mode=ro&immutable=1")
        import shutil  # seldom needed, and start-up has a budget
        import tempfile

        self._copy = tempfile.TemporaryDirectory(prefix="opd-store-")
        copy = Path(self._copy.name)
        for source in (self.path, log):
            shutil.copyfile(source, copy / source.name)
        return _connect(copy / FILE_NAME, "mode=ro")


def _connect(path: Path, options: str) -> sqlite3.Connection:
    """Connect and read once, so that what is wrong shows here."""
    uri = f"{path.absolute().as_uri()}?{options}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA query_only=1")
        connection.execute("PRAGMA cache_size=-8192")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection

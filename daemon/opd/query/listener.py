"""The daemon's side of its socket file: claimed for it alone, made safe, taken away again."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import os
import socket
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from opd.errors import ConfigError, EndpointInUseError, PermissionDeniedError
from opd.query import endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

SOCKET_MODE = 0o660
DIRECTORY_MODE = 0o750
BACKLOG = 128
_LOCK_SECONDS = 2.0


class Listener:
    """A claimed socket file, listening, for this process alone.

    ``fd`` is handed to ZeroMQ, which accepts on it and closes it; ``release``
    takes the file away again if it is still ours.
    """

    def __init__(self, path: str, plain: socket.socket) -> None:
        self.path = path
        self._plain: socket.socket | None = plain
        info = os.lstat(path)
        self._file = (info.st_dev, info.st_ino)

    def detach(self) -> int:
        """Give up the descriptor: the caller closes it. Raises after the first call."""
        if self._plain is None:
            raise ValueError("already detached")
        plain, self._plain = self._plain, None
        plain.settimeout(0)
        return plain.detach()

    def release(self) -> None:
        """Remove the file unless another daemon put its own there meanwhile."""
        if self._plain is not None:
            self._plain.close()
            self._plain = None
        with _directory_lock(self.path), contextlib.suppress(FileNotFoundError):
            info = os.lstat(self.path)
            if (info.st_dev, info.st_ino) == self._file:
                os.unlink(self.path)  # noqa: PTH108


def claim(path: str, *, group: str = "opd") -> Listener:
    """Listen at ``path``, replacing the file of a dead daemon.

    A missing directory is made 0750, group ``group`` where it exists; one that
    is there stays as it is. The socket is 0660, of the same group where this
    process may give it. Raises EndpointInUseError naming the pid of a live
    holder, PermissionDeniedError, ConfigError for a file that is no socket.
    """
    gid = _group_id(group)
    try:
        _make_directory(Path(path).absolute().parent, gid)
        with _directory_lock(path):
            plain = _bind(path)
            try:
                os.chmod(path, SOCKET_MODE)  # noqa: PTH101 - the umask took bits at bind
                if gid is not None:
                    with contextlib.suppress(PermissionError):
                        os.chown(path, -1, gid)
                plain.listen(BACKLOG)
                return Listener(path, plain)
            except BaseException:
                plain.close()
                raise
    except PermissionError as error:
        raise PermissionDeniedError(
            f"cannot listen at {path}: {error.strerror}",
            hint="run as root or choose another --endpoint",
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot listen at {path}: {error.strerror}") from error


def _bind(path: str) -> socket.socket:
    plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(plain.fileno(), SOCKET_MODE)  # the file is never more open than this
        try:
            plain.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            _remove_stale(path)
            plain.bind(path)
    except BaseException:
        plain.close()
        raise
    return plain


def _remove_stale(path: str) -> None:
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise ConfigError(f"{path} exists and is not a socket", hint="choose another --endpoint")
    holder = endpoint.holder_of(path)
    if holder is not None:
        name = ""
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{holder.pid}/comm").read_text(errors="replace").strip()
        raise EndpointInUseError(
            f"endpoint ipc://{path} is in use by pid {holder.pid}{f' ({name})' if name else ''}",
            hint="stop it with opctl shutdown, or choose another --endpoint",
            data={"pid": holder.pid},
        )
    os.unlink(path)  # noqa: PTH108


def _group_id(group: str) -> int | None:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        return None


def _make_directory(directory: Path, gid: int | None) -> None:
    if directory.is_dir():
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=DIRECTORY_MODE)
    except FileExistsError:
        return
    if gid is not None:
        with contextlib.suppress(PermissionError):
            os.chown(directory, -1, gid)
    directory.chmod(DIRECTORY_MODE)


@contextlib.contextmanager
def _directory_lock(path: str) -> Iterator[None]:
    """Hold the directory of ``path``, so that no two daemons both replace a stale file.

    Goes on without after two seconds: a lock that a stranger keeps must not
    keep opd from starting.
    """
    try:
        fd = os.open(Path(path).absolute().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
        yield
    finally:
        os.close(fd)

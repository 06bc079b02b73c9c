"""Where a daemon listens and who holds that socket, as both sides see it.

The client imports this, so it keeps to the cheap parts of the standard library.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from typing import NamedTuple

from opd.errors import ConfigError, PermissionDeniedError

PUB_SUFFIX = ".pub"
_PATH_LIMIT = 107  # sizeof(sockaddr_un.sun_path) - 1
_RETRY_SECONDS = 0.05


class Peer(NamedTuple):
    """Who is at the other end of a unix socket, as the kernel tells it."""

    uid: int
    gid: int
    pid: int


def socket_path(endpoint: str) -> str:
    """The path of an ``ipc://`` endpoint.

    Raises ConfigError for every other transport, abstract names, and paths
    that are not UTF-8 or do not fit a socket address.
    """
    try:
        endpoint.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"endpoint {endpoint!r}: is not UTF-8") from error
    scheme, separator, path = endpoint.partition("://")
    if separator and scheme == "tcp":
        raise ConfigError(
            f"endpoint {endpoint!r}: tcp is refused until it has CURVE",
            hint="use ipc://PATH, for example ipc:///run/opd/opd.sock",
        )
    if scheme != "ipc" or not path:
        raise ConfigError(
            f"endpoint {endpoint!r}: expected ipc://PATH",
            hint="for example ipc:///run/opd/opd.sock",
        )
    if path.startswith(("@", "*")) or "\0" in path:
        raise ConfigError(
            f"endpoint {endpoint!r}: needs the path of a file, whose permissions say who may ask"
        )
    if len(os.fsencode(path)) + len(PUB_SUFFIX) > _PATH_LIMIT:
        raise ConfigError(
            f"endpoint {endpoint!r}: the path is longer than"
            f" {_PATH_LIMIT - len(PUB_SUFFIX)} bytes, the most that a unix socket takes"
        )
    return path


def connect_plain(path: str, seconds: float) -> socket.socket:
    """Connect to a unix socket and nothing more; raises OSError.

    BlockingIOError: for ``seconds`` its holder accepted too few of those that
    wait to be let in.
    """
    deadline = time.monotonic() + seconds
    while True:
        plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            plain.settimeout(seconds)
            plain.connect(path)
        except BaseException as error:
            plain.close()
            if not isinstance(error, BlockingIOError) or time.monotonic() >= deadline:
                raise
        else:
            return plain
        time.sleep(_RETRY_SECONDS)


def peer_of(plain: socket.socket) -> Peer:
    """Credentials of the process that connected, or that called listen()."""
    size = struct.calcsize("3i")
    pid, uid, gid = struct.unpack(
        "3i", plain.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return Peer(uid=uid, gid=gid, pid=pid)


def holder_of(path: str) -> Peer | None:
    """The process listening at ``path``; None when nobody is (a stale file).

    Raises PermissionDeniedError when the file may not be connected to.
    """
    try:
        with connect_plain(path, 1.0) as plain:
            return peer_of(plain)
    except (ConnectionRefusedError, FileNotFoundError):
        return None
    except PermissionError as error:
        raise PermissionDeniedError(
            f"{path}: {error.strerror}", hint="run as root or choose another --endpoint"
        ) from error
    except (TimeoutError, BlockingIOError):  # a full backlog: somebody holds it and is stuck
        return Peer(uid=-1, gid=-1, pid=holder_from_proc(path))


def holder_from_proc(path: str) -> int:
    """Pid that has the listening socket bound to ``path`` open; 0 when unknown."""
    inode = ""
    with (
        contextlib.suppress(OSError),
        open("/proc/net/unix", errors="surrogateescape") as lines,  # noqa: PTH123
    ):
        for line in lines:
            fields = line.rstrip("\n").split(maxsplit=7)
            if len(fields) > 7 and fields[7] == path and fields[5] == "01":
                inode = fields[6]
    if inode:
        for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
            with contextlib.suppress(OSError):
                for fd in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
                    if os.readlink(f"/proc/{pid}/fd/{fd}") == f"socket:[{inode}]":  # noqa: PTH115
                        return int(pid)
    return 0

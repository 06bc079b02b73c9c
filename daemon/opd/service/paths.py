"""Where opd listens and keeps its history and its cache, when nobody says."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

from opd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM_ENDPOINT = "ipc:///run/opd/opd.sock"
SYSTEM_STATE_DIR = "/var/lib/opd"
SYSTEM_CACHE_DIR = "/var/cache/opd"
SOCKET_NAME = "opd.sock"


def daemon_endpoint(environ: Mapping[str, str] | None = None, *, uid: int | None = None) -> str:
    """The endpoint a daemon of this user takes, as ``ipc://PATH``.

    systemd's $RUNTIME_DIRECTORY, else /run/opd for root, else
    $XDG_RUNTIME_DIR/opd (or /run/user/UID/opd). Does not look at
    $OPD_ENDPOINT: that one overrides, it is no default. Raises ConfigError
    where a user has no runtime directory.
    """
    environ = os.environ if environ is None else environ
    uid = os.geteuid() if uid is None else uid
    if given := _first_directory(environ, "RUNTIME_DIRECTORY"):
        return f"ipc://{given}/{SOCKET_NAME}"
    if uid == 0:
        return SYSTEM_ENDPOINT
    directory = environ.get("XDG_RUNTIME_DIR", "")
    if not directory.startswith("/"):
        directory = f"/run/user/{uid}"
        # A predictable name under /tmp could be somebody else's socket.
        if not os.path.isdir(directory):  # noqa: PTH112 - pathlib costs opctl its start
            raise ConfigError(
                "no directory for the socket: XDG_RUNTIME_DIR is not set",
                hint="set XDG_RUNTIME_DIR, or name a socket with --endpoint ipc:///PATH",
            )
    return f"ipc://{directory}/opd/{SOCKET_NAME}"


def client_endpoint(environ: Mapping[str, str] | None = None, *, uid: int | None = None) -> str:
    """The endpoint a client asks: $OPD_ENDPOINT, the system's where it stands, else the user's."""
    environ = os.environ if environ is None else environ
    if given := environ.get("OPD_ENDPOINT"):
        return given
    if os.path.exists(SYSTEM_ENDPOINT.removeprefix("ipc://")):  # noqa: PTH110
        return SYSTEM_ENDPOINT
    try:
        return daemon_endpoint(environ, uid=uid)
    except ConfigError:
        return SYSTEM_ENDPOINT


def state_dir(environ: Mapping[str, str] | None = None, *, uid: int | None = None) -> str:
    """The directory of the history: absolute, maybe not there yet.

    systemd's $STATE_DIRECTORY, else /var/lib/opd for root, else
    $XDG_STATE_HOME/opd (~/.local/state/opd). Raises ConfigError for a user
    without a home.
    """
    environ = os.environ if environ is None else environ
    uid = os.geteuid() if uid is None else uid
    if given := _first_directory(environ, "STATE_DIRECTORY"):
        return given
    if uid == 0:
        return SYSTEM_STATE_DIR
    if (directory := environ.get("XDG_STATE_HOME", "")).startswith("/"):
        return f"{directory}/opd"
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        try:
            home = pwd.getpwuid(uid).pw_dir
        except KeyError as error:
            raise ConfigError(
                f"no directory for the history: user {uid} has no home",
                hint="set HOME or XDG_STATE_HOME, or name a directory with --session-dir",
            ) from error
    return f"{home}/.local/state/opd"


def cache_dir(environ: Mapping[str, str] | None = None, *, uid: int | None = None) -> str:
    """The directory for what can be made anew; "" for a user who has none.

    systemd's $CACHE_DIRECTORY, else /var/cache/opd for root, else
    $XDG_CACHE_HOME/opd (~/.cache/opd).
    """
    environ = os.environ if environ is None else environ
    uid = os.geteuid() if uid is None else uid
    if given := _first_directory(environ, "CACHE_DIRECTORY"):
        return given
    if uid == 0:
        return SYSTEM_CACHE_DIR
    if (directory := environ.get("XDG_CACHE_HOME", "")).startswith("/"):
        return f"{directory}/opd"
    home = environ.get("HOME", "")
    return f"{home}/.cache/opd" if home.startswith("/") else ""


def _first_directory(environ: Mapping[str, str], name: str) -> str:
    # systemd lists several, separated by colons; the first is the unit's own.
    first = environ.get(name, "").split(":")[0]
    return first if first.startswith("/") else ""

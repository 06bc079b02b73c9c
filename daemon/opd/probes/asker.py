"""Who asked for a probe: a probe that runs code of the asker's runs as that user.

The uid comes from the socket, never from what was sent. Who is root, or the
user that opd is, changes nothing; for others the probe's process becomes that
user before it begins, or such a probe is refused.
"""

from __future__ import annotations

import os
import pwd
from typing import Any

import msgspec

_AMBIENT, _CLEAR_ALL = 47, 4  # prctl(2)
_CAPSET_VERSION_3 = 0x20080522


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """A user, with the groups that the user database gives."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """For messages."""
        return f"uid {self.uid}"

    @property
    def is_us(self) -> bool:
        """Whether this process runs as that user."""
        return self.uid == os.geteuid()

    def spawning(self) -> dict[str, Any]:
        """Words for subprocess.Popen: become that user, in a place where that user may be."""
        if self.is_us or os.geteuid() != 0:
            return {}
        return {
            "user": self.uid,
            "group": self.gid,
            "extra_groups": list(self.groups),
            "cwd": "/",
            "env": self._environment(),
        }

    def _environment(self) -> dict[str, str]:
        """This process's, without what is the daemon's own."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.endswith("_DIRECTORY") and not name.startswith(("XDG_", "SUDO_", "LISTEN_"))
        }
        try:
            known = pwd.getpwuid(self.uid)
            return kept | {"HOME": known.pw_dir, "USER": known.pw_name, "LOGNAME": known.pw_name}
        except KeyError:
            return kept | {"HOME": "/", "USER": str(self.uid), "LOGNAME": str(self.uid)}


def asker_of(uid: int, gid: int) -> Asker:
    """The user of a connection."""
    try:
        name = pwd.getpwuid(uid).pw_name
        groups = tuple(os.getgrouplist(name, gid))
    except KeyError:
        groups = ()
    return Asker(uid=uid, gid=gid, groups=groups)


def drop_capabilities() -> None:
    """Give up all capabilities, unless this process is root. Raises OSError."""
    if os.geteuid() == 0:
        return
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    header = (ctypes.c_uint32 * 2)(_CAPSET_VERSION_3, 0)
    if libc.capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capset")

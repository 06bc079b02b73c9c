"""How a native call's failure becomes an exception."""

from __future__ import annotations

import os


class NativeError(OSError):
    """A call returned -errno. ``errno`` is positive; ``call`` says what was tried."""

    def __init__(self, errno: int, call: str) -> None:
        super().__init__(errno, f"{call}: {os.strerror(errno)}")
        self.call = call


def check(rc: int, call: str) -> int:
    """Return ``rc`` when it is not negative, else raise NativeError."""
    if rc < 0:
        raise NativeError(-rc, call)
    return rc

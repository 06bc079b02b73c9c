"""What a child of the daemon does about itself: its name, and its end."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def name_process(name: str) -> None:
    """Take a comm of at most 15 bytes, so that profiles and ps tell us from other Pythons."""
    Path("/proc/self/comm").write_text(name, encoding="ascii")


def return_memory() -> None:
    """Have malloc give freed memory back: a large window must not be paid for ever.

    By default glibc raises its mmap threshold with every large block freed,
    and keeps an arena a thread.
    """
    libc = ctypes.CDLL(None)
    for option, value in ((_M_MMAP_THRESHOLD, 128 << 10), (_M_TRIM_THRESHOLD, 128 << 10)):
        libc.mallopt(option, value)
    libc.mallopt(_M_ARENA_MAX, 2)


def die_with(parent: int) -> None:
    """Be killed when the thread that started us ends; at once when it is gone already.

    ``parent`` is the pid that started us, 0 when it is not known.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent and os.getppid() != parent:
        sys.exit(1)  # it ended before the call

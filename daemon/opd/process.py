"""What a child of the daemon does about itself: its name, and its end."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def name_process(name: str) -> None:
    """Take a comm of at most 15 bytes, so that profiles and ps tell us from other Pythons."""
    Path("/proc/self/comm").write_text(name, encoding="ascii")


def die_with(parent: int) -> None:
    """Be killed when the thread that started us ends; at once when it is gone already.

    ``parent`` is the pid that started us, 0 when it is not known.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent and os.getppid() != parent:
        sys.exit(1)  # it ended before the call

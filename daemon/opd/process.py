"""What the daemon and its children do about themselves: names, memory, their end."""

from __future__ import annotations

import gc
import os
import resource
import sys
from pathlib import Path

from opd_native.process import die_with_parent, return_memory, trim_memory

__all__ = [
    "die_with",
    "name_process",
    "pss_bytes",
    "return_memory",
    "started",
    "trim_memory",
]


def name_process(name: str) -> None:
    """Take a comm of at most 15 bytes, so that profiles and ps tell us from other Pythons.

    A child started while the daemon had its address space limited, for a hook
    of a feature (opd.features.thread), is free of that limit from here on.
    """
    Path("/proc/self/comm").write_text(name, encoding="ascii")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY == hard:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def started() -> None:
    """End what a program's way in began: collect garbage again, but not what start-up made."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def die_with(parent: int) -> None:
    """Be killed when the thread that started us ends; at once when it is gone already.

    ``parent`` is the pid that started us, 0 when it is not known.
    """
    die_with_parent()
    if parent and os.getppid() != parent:
        sys.exit(1)  # it ended before the call


def pss_bytes() -> int:
    """This process's share of memory; 0 where the kernel does not say."""
    try:
        rollup = Path("/proc/self/smaps_rollup").read_bytes()
    except OSError:
        return 0
    for line in rollup.splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return 0

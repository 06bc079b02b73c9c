"""Stops one thread of another process, and no other: a hang that can be had at will."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

import pytest

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000


def thread_named(pid, name):
    """The id of a thread by its name."""
    for comm in Path(f"/proc/{pid}/task").glob("*/comm"):
        if comm.read_text().strip() == name:
            return int(comm.parent.name)
    raise AssertionError(f"{pid} has no thread {name}")


@contextlib.contextmanager
def hanging(tid):
    """Stop the thread, as a debugger would; it goes on afterwards if it still lives.

    Gives a function to call while others end its process: a traced thread is
    not gone before its tracer took note.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(PTRACE_SEIZE, tid, None, None) != 0:
        pytest.skip(f"ptrace is refused here: {os.strerror(ctypes.get_errno())}")
    assert libc.ptrace(PTRACE_INTERRUPT, tid, None, None) == 0
    os.waitpid(tid, WALL)

    def take_note():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(tid, WALL | os.WNOHANG)

    try:
        yield take_note
    finally:
        libc.ptrace(PTRACE_DETACH, tid, None, None)

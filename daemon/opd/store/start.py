"""Starts the worker process, with a socket to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_PROGRAM = os.path.join(os.path.dirname(__file__), "__main__.py")  # noqa: PTH118, PTH120


def start_worker(
    directory: Path, options: Sequence[str]
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process and our end of the socket, which does not block. Raises OSError."""
    ours, theirs = socket.socketpair()
    command = [
        *(sys.executable, "-P", _PROGRAM),
        *("--fd", str(theirs.fileno()), "--directory", str(directory)),
        *("--parent", str(os.getpid()), *options),
    ]
    with theirs:
        try:
            # Its own process group: Ctrl-C in a terminal is for the daemon.
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], process_group=0
            )
        except OSError:
            ours.close()
            raise
    ours.setblocking(False)  # noqa: FBT003
    return child, ours

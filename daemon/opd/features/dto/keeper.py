"""Keeps a build together: ``python -I -S keeper.py COMMAND…``; its status is the command's.

Orphans of the command come here (PR_SET_CHILD_SUBREAPER), whatever session they
made their own. All are killed when the command ends and when standard input
does: that is a pipe of who started this, so that a killed one counts too. Two
processes keep watch, one above the other: a build that kills the one is ended
by the other. No module of opd is imported: it begins in 20 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path

NAME = "opd-build"
# Its status when some of the tree are still there: of another user, or never to be waked.
LEFT = 125
SWEEP_SECONDS = 10.0
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER, prctl(2)
_LOOK_MS = 1000
_PAUSE_SECONDS = 0.002


def main(command: list[str]) -> None:
    """Run the command; does not return."""
    Path("/proc/self/comm").write_text(NAME, encoding="ascii")
    _adopt()
    upper = os.getpid()
    lower = os.fork()
    if lower:
        _end_as(_keep(lower, 0))
    _adopt()
    # Its parent is looked at only now: had it ended before, that would not show later.
    _end_as(_keep(_started(command), upper))


def _adopt() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def _started(command: list[str]) -> int:
    """Start the command in a group of its own, without what is open here; its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.closerange(3, 1 << 16)
        os.execvp(command[0], command)  # noqa: S606 - the user's command is what is wanted
    except OSError as error:
        os.write(1, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _keep(child: int, parent: int) -> int:
    """Wait until the child ends, or nobody wants it any longer; end the rest; its wait status."""
    poll = select.poll()
    poll.register(0, 0)  # POLLHUP comes unasked
    poll.register(os.pidfd_open(child), select.POLLIN)
    if parent:
        try:
            poll.register(os.pidfd_open(parent), select.POLLIN)
        except ProcessLookupError:
            parent = -1
        if os.getppid() != parent:
            return _sweep({}, child)
    statuses: dict[int, int] = {}
    while not poll.poll(_LOOK_MS):
        _reap(statuses)  # orphans that have ended
    return _sweep(statuses, child)


def _reap(statuses: dict[int, int]) -> None:
    """Take the status of all that have ended."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[found[0]] = found[1]


def _sweep(statuses: dict[int, int], child: int) -> int:
    """Kill all that descends from here, until nothing is left; the child's status."""
    until = time.monotonic() + SWEEP_SECONDS
    _reap(statuses)
    while left := _descendants():
        if time.monotonic() > until:
            pids = " ".join(str(pid) for pid, _born in left[:20])
            with contextlib.suppress(OSError):
                os.write(1, f"\nthese of its processes could not be ended: {pids}\n".encode())
            return LEFT << 8
        for pid, born in left:
            _kill(pid, born)
        time.sleep(_PAUSE_SECONDS)
        _reap(statuses)
    return statuses.get(child, signal.SIGKILL)


def _descendants() -> list[tuple[int, int]]:
    """Pids of all below this process, the dead that nobody reaped too, and when each began."""
    children: dict[int, list[tuple[int, int]]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - as many as there are processes
        if entry.isdigit() and (facts := _facts(int(entry))):
            parent, born = facts
            children.setdefault(parent, []).append((int(entry), born))
    found: list[tuple[int, int]] = []
    pending = [os.getpid()]
    while pending:
        below = children.pop(pending.pop(), [])
        found += below
        pending += [pid for pid, _born in below]
    return found


def _facts(pid: int) -> tuple[int, int] | None:
    """Parent, and time of start in ticks: the fields 4 and 22 of proc_pid_stat(5)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None  # it has ended
    fields = text.rpartition(b")")[2].split()
    return int(fields[1]), int(fields[19])


def _kill(pid: int, born: int) -> None:
    """Kill a process, if the pid is still its own."""
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(pid)
        try:
            facts = _facts(pid)
            if facts is not None and facts[1] == born:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)


def _end_as(status: int) -> None:
    """End this process as the child did."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main(sys.argv[1:])

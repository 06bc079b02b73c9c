"""The processes of one user: what opd samples where it may not sample whole CPUs."""

from __future__ import annotations

import errno
import os
import resource
import time
from typing import TYPE_CHECKING, Any

from opd_native.errors import NativeError

if TYPE_CHECKING:
    from opd_native.sampler import Sampler

# Every pass looks at pids that are new; now and then all are looked at anew,
# for a process may have become this user's since (su, login), or fit by now.
PASSES_UNTIL_ALL = 10
_FLUSH_MS = 200


class OwnProcesses:
    """Adds to a targeted sampler what this user runs and nothing added so far has made.

    What an added process starts is sampled without being added: it inherits.
    An event is an open file for each thread, CPU and event, so threads are
    bounded by the limit on open files; what does not fit is counted.
    """

    def __init__(self, sampler: Sampler, *, files_a_thread: int, proc: str = "/proc") -> None:
        self._sampler = sampler
        self._proc = proc
        self.uid = os.geteuid()
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The other half is for images, clients and the store.
        self._threads_most = max(1, soft // 2 // max(1, files_a_thread))
        self._threads = 0
        self._seen: set[int] = set()
        self._left_out: set[int] = set()  # no files left for their threads
        self._refused: set[int] = set()  # not for this user to look at
        self._passes = 0

    def stats(self) -> dict[str, Any]:
        """Give the user, what was added and is not over, and what is not sampled and why."""
        return {
            "uid": self.uid,
            "threads": self._threads,
            "threads_most": self._threads_most,
            "left_out": len(self._left_out),
            "refused": len(self._refused),
        }

    def follow(self) -> None:
        """Add what is new. To be called about once a second, once sampling has started."""
        if self._passes % PASSES_UNTIL_ALL == 0:
            self._threads = self._sampler.sweep_targets()
            self._seen.clear()
            self._left_out.clear()
            self._refused.clear()
        self._passes += 1
        there = {int(name) for name in os.listdir(self._proc) if name.isdigit()}  # noqa: PTH208
        mine = [pid for pid in sorted(there - self._seen) if self._is_mine(pid)]
        self._seen = there
        self._left_out &= there
        self._refused &= there
        if not mine:
            return
        # Now every fork up to here is known, so that none is sampled twice.
        self._sampler.flush(time.monotonic_ns(), _FLUSH_MS)
        for pid in mine:
            if not self._sampler.covers(pid):
                self._add(pid)

    def _is_mine(self, pid: int) -> bool:
        path = f"{self._proc}/{pid}"
        try:
            if os.stat(path).st_uid != self.uid:  # noqa: PTH116 - once a new process
                return False
            if self.uid == 0:
                os.readlink(f"{path}/exe")  # noqa: PTH115 - kernel threads have none
        except OSError:
            return False
        return True

    def _add(self, pid: int) -> None:
        try:
            threads = len(os.listdir(f"{self._proc}/{pid}/task"))  # noqa: PTH208
            if self._threads + threads > self._threads_most:
                self._left_out.add(pid)
                return
            self._threads += self._sampler.add_process(pid)
        except NativeError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                self._refused.add(pid)
            elif error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                self._left_out.add(pid)
            elif error.errno != errno.ESRCH:
                raise
        except OSError:
            return  # it has ended meanwhile

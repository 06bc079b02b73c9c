"""Starts the child that writes segments, and ends it when it takes too long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Any

from opd.store.schema import FILE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from opd.service.log import Logger

EVERY_S = 15.0
HOUR_S = 3600.0
# After the end of an hour: its last window is under way, and may wait for the worker.
GRACE_S = 60.0
# After a start: catching up does not belong to what a start costs.
FIRST_S = 60.0
TIME_LIMIT_S = 900.0
MEMORY_MIB = 512


class SegmentDuty:
    """Called every EVERY_S on the main thread; never waits.

    Made before the store is opened. One child at a time: once an hour, and once
    after the start for the hours that nobody wrote, when there was a store.
    ``stats`` counts what became of it.
    """

    def __init__(
        self,
        directory: Path,
        log: Logger,
        *,
        enabled: bool,
        first_s: float = FIRST_S,
        time_limit_s: float = TIME_LIMIT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.enabled = enabled
        self._directory = directory
        self._log = log
        self._clock = clock
        self._time_limit_s = time_limit_s
        self._first_at = time.monotonic() + first_s
        # The last one that a child was started for. A store that is made now has
        # no hours that are over.
        self._hour = -1 if (directory / FILE_NAME).exists() else self._newest_hour()
        self._child: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._began = 0.0
        self._stats: dict[str, Any] = {
            "written": 0,
            "rewritten": 0,
            "bytes": 0,
            "runs": 0,
            "failed": 0,
            "killed": 0,
            "cpu_seconds": 0.0,
            "problem": "",
        }

    def stats(self) -> dict[str, Any]:
        """Segments written and rewritten, their bytes, runs of the child and how they ended."""
        return dict(self._stats)

    def run(self) -> None:
        """Look after the child; start one when an hour is over."""
        if self._child is not None:
            self._look_after(self._child)
        elif self.enabled and time.monotonic() >= self._first_at:
            hour = self._newest_hour()
            if hour != self._hour:
                self._hour = hour
                self._start()

    def _newest_hour(self) -> int:
        """The hour after the newest one whose windows have all come."""
        return int((self._clock() - GRACE_S) // HOUR_S)

    def stop(self) -> None:
        """End the child: what it has not finished, the next one does."""
        if self._child is not None:
            self._child.kill()
            self._reap(self._child)

    def _start(self) -> None:
        import tempfile  # start-up has a budget

        command = [sys.executable, "-P", "-m", "opd.store.segments.write"]
        command += [f"--directory={self._directory}", f"--parent={os.getpid()}"]
        command += [f"--memory-mib={MEMORY_MIB}", f"--grace={GRACE_S}"]
        # A file and not a pipe: nobody reads while it runs.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the child is reaped
        self._began = time.monotonic()
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        self._stats["runs"] += 1

    def _look_after(self, child: subprocess.Popen[bytes]) -> None:
        if child.poll() is not None:
            self._reap(child)
        elif time.monotonic() - self._began > self._time_limit_s:
            self._stats["killed"] += 1
            self._trouble(f"killed after {self._time_limit_s:g} s; the next one goes on")
            child.kill()
            self._reap(child)

    def _reap(self, child: subprocess.Popen[bytes]) -> None:
        status = child.wait()
        self._child = None
        output, self._output = self._output, None
        if output is None:
            return
        with output:
            output.seek(0)
            lines = output.read().decode(errors="replace").splitlines()
        error = ""
        for line in lines:
            try:
                said = json.loads(line)
            except ValueError:
                error = line  # the last line of a traceback
                continue
            if "segment" in said:
                self._stats["written"] += 1
                self._stats["rewritten"] += bool(said["rewritten"])
                self._stats["bytes"] += said["bytes"]
                self._log.info("segment.written", **said)
            elif "cpu_seconds" in said:
                self._stats["cpu_seconds"] += said["cpu_seconds"]
            else:
                error = str(said.get("error", line))
        if status > 0:
            self._stats["failed"] += 1
            self._trouble(error or f"ended with status {status}")

    def _trouble(self, problem: str) -> None:
        self._stats["problem"] = problem
        self._log.error("segments.failed", problem=problem)

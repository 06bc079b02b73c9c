"""The SQL child as a process: started, asked, stopped, cleared up after."""

from __future__ import annotations

import select
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from opd.errors import OpdError
from opd.store.segments import talk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# How long the child may take to obey when it is told to stop a query.
_GRACE_S = 3.0
# How often it is asked whether anybody still waits.
_LOOK_S = 0.25
_READ_BYTES = 1 << 18


class DiedError(Exception):
    """The child ended instead of answering. ``at_rest``: as it does when nobody asks."""

    def __init__(self, status: int, said: str) -> None:
        """``said``: the last line of its stderr."""
        if status < 0:
            how = f"was ended by signal {-status} ({signal.strsignal(-status)})"
        else:
            how = f"ended with status {status}"
        super().__init__(f"{how}: {said}" if said else how)
        self.at_rest = status == 0


class OverdueError(OpdError):
    """The query was stopped. ``stuck``: the child did not obey, and was killed."""

    stuck = False


class SqlChild:
    """One process of opd.store.segments.serve and the folder that it may fill."""

    def __init__(
        self, directory: Path, *, idle_s: float | None = None, memory_mib: int | None = None
    ) -> None:
        """Start it. OSError when it cannot be."""
        import tempfile  # start-up has a budget

        # Made here, so that it is removed however the child ends.
        self._spill = tempfile.TemporaryDirectory(prefix="opd-sql-", ignore_cleanup_errors=True)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "opd.store.segments.serve"]
        command += [f"--fd={theirs.fileno()}", f"--directory={directory}"]
        command.append(f"--spill={self._spill.name}")
        if idle_s is not None:
            command.append(f"--idle={idle_s}")
        if memory_mib is not None:
            command.append(f"--memory-mib={memory_mib}")
        with theirs:
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
            )
        self._connection = ours
        self._reader = talk.Reader(talk.Answer)
        self.pid = self._process.pid
        self.cpu_seconds = 0.0
        self.pss_bytes = 0

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def answer(self, ask: talk.Ask, gone: Callable[[], bool] | None) -> dict[str, Any]:
        """What it answers. Raises OpdError as it did, DiedError, OverdueError."""
        try:
            talk.send(self._connection, ask)
        except OSError as error:
            raise self._died() from error
        until = time.monotonic() + ask.seconds
        stopped: OverdueError | None = None
        while True:
            left = until - time.monotonic()
            if stopped is None and gone is not None and gone():
                stopped = OverdueError("sql: cancelled, whoever asked has left")
            elif stopped is None and left <= 0:
                stopped = OverdueError(
                    f"sql: no answer within {ask.seconds:g} s",
                    hint="ask for a shorter range with --since, or give it more --seconds",
                )
            elif left <= 0 and stopped is not None:
                self.kill()
                stopped.stuck = True
                raise stopped
            else:
                answer = self._receive(ask.id, min(left, _LOOK_S))
                if answer is not None:
                    break
                continue
            self._tell_to_stop()
            until = time.monotonic() + _GRACE_S
        self.cpu_seconds, self.pss_bytes = answer.cpu_seconds, answer.pss_bytes
        if stopped is not None:
            raise stopped
        if answer.error is not None:
            raise answer.error.error()
        return answer.result

    def kill(self) -> None:
        """End it at once; ``close`` clears up."""
        self._process.kill()

    def close(self) -> None:
        """End it, wait for it, remove its folder."""
        self._connection.close()
        self._process.kill()
        self._process.wait()
        self._said.close()
        self._spill.cleanup()

    def _tell_to_stop(self) -> None:
        try:
            talk.send(self._connection, talk.Cancel())
        except OSError as error:
            raise self._died() from error

    def _receive(self, number: int, seconds: float) -> talk.Answer | None:
        """The answer, None when it has not come yet."""
        ready, _, _ = select.select([self._connection], [], [], max(0.0, seconds))
        if not ready:
            return None
        try:
            data = self._connection.recv(_READ_BYTES)
        except OSError as error:
            raise self._died() from error
        if not data:
            raise self._died()
        for answer in self._reader.feed(data):
            if answer.id == number:
                whole: talk.Answer = answer
                return whole
        return None

    def _died(self) -> DiedError:
        """How it ended: it closed its end, so it has or does."""
        try:
            status = self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return DiedError(status, lines[-1] if lines else "")

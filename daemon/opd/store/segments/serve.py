"""The child that answers SQL: ``python -m opd.store.segments.serve --fd N --directory DIR``.

One query at a time, from whoever holds the other end of the socket, which is
the daemon or opctl. It ends with them, and after a while without questions.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import resource
import shutil
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opd.errors import OpdError, OperationFailedError
from opd.process import name_process, pss_bytes, return_memory
from opd.store.segments import talk

if TYPE_CHECKING:
    from opd.store.segments.engine import Engine

DEFAULT_IDLE_S = 60.0
DEFAULT_MEMORY_MIB = 64
DEFAULT_DISK_MIB = 1024
# Over what DuckDB counts: Python, numpy, rows on their way, strings outside its pool.
_MORE_MIB = 256
_NICE = 5
# What a query that is told to stop has until the process ends all the same.
_LINGER_S = 2.0


def main(arguments: list[str] | None = None) -> int:
    """Answer until nobody asks."""
    options = _parse(arguments)
    name_process("opd-sql")
    os.nice(_NICE)
    os.umask(0o077)
    return_memory()
    # numpy would start a thread a CPU for algebra that nobody does here.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    limit = (options.memory_mib + _MORE_MIB) << 20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with socket.socket(fileno=options.fd) as connection, contextlib.suppress(OSError):
        _Service(connection, options).run()
    shutil.rmtree(options.spill, ignore_errors=True)
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="opd.store.segments.serve")
    parser.add_argument("--fd", type=int, required=True, help="socket to whoever asks")
    parser.add_argument("--directory", required=True, help="session directory")
    parser.add_argument("--spill", required=True, help="private folder for what does not fit")
    parser.add_argument("--memory-mib", type=int, default=DEFAULT_MEMORY_MIB)
    parser.add_argument("--disk-mib", type=int, default=DEFAULT_DISK_MIB)
    parser.add_argument("--idle", type=float, default=DEFAULT_IDLE_S, help="seconds")
    return parser.parse_args(arguments)


class _Service:
    """Reads questions on a thread of its own, so that a cancel arrives during an answer."""

    def __init__(self, connection: socket.socket, options: argparse.Namespace) -> None:
        self._connection = connection
        self._options = options
        self._questions: queue.SimpleQueue[talk.Ask | None] = queue.SimpleQueue()
        self._engine: Engine | None = None
        self._problem: OpdError | None = None

    def run(self) -> None:
        threading.Thread(target=self._read, name="opd-sql-read", daemon=True).start()
        while True:
            try:
                ask = self._questions.get(timeout=self._options.idle)
            except queue.Empty:
                return
            if ask is None:
                return
            self._answer(ask)

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for message in talk.messages(self._connection, talk.ToChild):
                if isinstance(message, talk.Ask):
                    self._questions.put(message)
                elif self._engine is not None:
                    self._engine.interrupt()
        # Whoever asked is gone, and with them the reason to go on. Not by PR_SET_PDEATHSIG:
        # that is about the thread that started us, which may end long before.
        self._questions.put(None)
        if self._engine is not None:
            self._engine.interrupt()
        time.sleep(_LINGER_S)
        shutil.rmtree(self._options.spill, ignore_errors=True)
        os._exit(0)

    def _answer(self, ask: talk.Ask) -> None:
        answer: dict[str, Any] = {}
        failure: OpdError | None = None
        try:
            answer = self._open().answer(ask)
        except OpdError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - a defect is told to whoever asked
            failure = OperationFailedError(f"sql broke: {type(error).__name__}: {error}")
        usage = resource.getrusage(resource.RUSAGE_SELF)
        talk.send(
            self._connection,
            talk.Answer(
                id=ask.id,
                result=answer,
                error=talk.Failure.of(failure) if failure else None,
                cpu_seconds=usage.ru_utime + usage.ru_stime,
                pss_bytes=pss_bytes(),
            ),
        )

    def _open(self) -> Engine:
        if self._engine is None:
            from opd.store.segments.engine import Engine

            self._engine = Engine(
                Path(self._options.directory),
                Path(self._options.spill),
                memory_mib=self._options.memory_mib,
                disk_mib=self._options.disk_mib,
            )
        return self._engine


if __name__ == "__main__":
    sys.exit(main())

"""Writes the segments of hours that are over, and ends.

``python -m opd.store.segments.write --directory DIR``: started by the daemon
every so often. It only reads the store. A segment appears whole or not at all:
it is written under another name, read back, synced and renamed. Killed at any
moment it leaves a file that the next one removes, and the hour to that one.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import json
import os
import resource
import shutil
import sqlite3
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opd.errors import OpdError
from opd.process import die_with, name_process, return_memory
from opd.store.segments.files import FOLDER, SPILL_NAME, remove_unfinished

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK_NAME = ".lock"
DEFAULT_MEMORY_MIB = 512
DEFAULT_GRACE_S = 60.0
_NICE = 19


def main(arguments: list[str] | None = None) -> int:
    """Write what there is to write; a line of JSON for each segment."""
    options = _parse(arguments)
    die_with(options.parent)
    name_process("opd-segments")
    os.nice(_NICE)
    os.umask(0o027)
    gc.disable()  # it lives for seconds, and what it makes is columns
    # numpy would start a thread a CPU for algebra that nobody does here.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    return_memory()
    limit = options.memory_mib << 20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        for line in write_segments(
            Path(options.directory), memory_mib=options.memory_mib, grace_s=options.grace
        ):
            _say(line)
    except OpdError as error:
        _say({"error": str(error)})
        return 1
    except (MemoryError, OSError, sqlite3.Error) as error:
        _say({"error": f"{type(error).__name__}: {error}"})
        return 1
    finally:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        _say(
            {
                "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
                "peak_bytes": usage.ru_maxrss << 10,
            }
        )
    return 0


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="opd.store.segments.write")
    parser.add_argument("--directory", required=True, help="session directory")
    parser.add_argument("--parent", type=int, default=0, help="pid of the daemon")
    parser.add_argument("--memory-mib", type=int, default=DEFAULT_MEMORY_MIB)
    parser.add_argument("--grace", type=float, default=DEFAULT_GRACE_S, help="seconds")
    return parser.parse_args(arguments)


def write_segments(
    directory: Path,
    *,
    memory_mib: int = DEFAULT_MEMORY_MIB,
    grace_s: float = DEFAULT_GRACE_S,
    now_ns: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Write the segments that are missing; what each became, as it is there.

    Raises StoreError, sqlite3.Error, OSError; OperationFailedError without
    DuckDB. Where another process writes here already, there is nothing to do.
    """
    from opd.store.database import ReadConnection
    from opd.store.segments import plan
    from opd.store.segments.hourfile import HourFile
    from opd.store.segments.samples import read_runs

    folder = directory / FOLDER
    folder.mkdir(mode=0o750, exist_ok=True)
    with _lock(folder) as mine:
        if not mine:
            return
        remove_unfinished(directory)
        shutil.rmtree(folder / SPILL_NAME, ignore_errors=True)
        store = ReadConnection(directory)
        try:
            hours = plan.plan_hours(
                store.connection,
                directory,
                read_runs(store.connection),
                now_ns=time.time_ns() if now_ns is None else now_ns,
                grace_ns=int(grace_s * plan.SECOND_NS),
            )
            for hour in hours:
                yield HourFile(store.connection, folder, hour, memory_mib=memory_mib).write()
        finally:
            store.close()
            shutil.rmtree(folder / SPILL_NAME, ignore_errors=True)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[bool]:
    fd = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main())

"""Starts and ends the programs of tests/bench/loads."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness.accounting import Account

LOADS = Path(__file__).parent.parent / "loads"


class Builder:
    """Compiles loads into a folder of its own, each once."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="opd-bench-load-"))

    def build(self, source: str, *flags: str, name: str = "") -> Path:
        """Compile a C load, frame pointers kept; its path."""
        target = self.folder / (name or Path(source).stem)
        if not target.exists():
            command = ["gcc", "-O1", "-g", "-fno-omit-frame-pointer", *flags, str(LOADS / source)]
            subprocess.run([*command, "-o", str(target), "-lpthread"], check=True)
        return target

    def close(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def builder() -> Iterator[Builder]:
    """Give a Builder whose folder goes at the end."""
    made = Builder()
    try:
        yield made
    finally:
        made.close()


def python_load(name: str, *arguments: str) -> list[str]:
    """Give the command of a load in Python."""
    return [sys.executable, str(LOADS / name), *arguments]


@contextlib.contextmanager
def running(account: Account, *commands: list[str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run commands, each in a process group of its own that is ended at the end."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            process = account.start(command, start_new_session=True, stdout=subprocess.DEVNULL)
            started.append(process)  # at once: the next one may fail to start
        yield started
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

"""Starts and ends the programs of tests/bench/loads."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.harness.accounting import Account

# A note's head: length of the name, of the build-id, type NT_GNU_BUILD_ID; the name.
BUILD_ID_NOTE = struct.pack("<III", 4, 20, 3) + b"GNU\0"
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

    def distinct(self, source: str, count: int, *flags: str) -> list[Path]:
        """Give that many copies of a program, each with a build-id of its own."""
        original = self.build(source, *flags, name=f"{Path(source).stem}-{'-'.join(flags)}")
        data = original.read_bytes()
        place = data.index(BUILD_ID_NOTE) + len(BUILD_ID_NOTE)
        copies = []
        for number in range(count):
            copy = self.folder / f"{Path(source).stem}-{number:05}"
            build_id = hashlib.sha1(number.to_bytes(4, "little")).digest()  # noqa: S324 - a name
            copy.write_bytes(data[:place] + build_id + data[place + len(build_id) :])
            copy.chmod(0o755)
            copies.append(copy)
        return copies

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


@dataclass(frozen=True)
class Load:
    """Commands that keep the machine busy in one way, until they are killed."""

    name: str
    purpose: str
    commands: Callable[[Builder], list[list[str]]]


DISTINCT = 200
STATIC = ("-static", "-nostdlib", "-Wl,--build-id=sha1")


def _cpu(loads: Builder) -> list[list[str]]:
    return [[str(loads.build("spin.c"))], python_load("interpret.py")]


def _forks(loads: Builder) -> list[list[str]]:
    return [[str(loads.build("fork_storm.c")), "0", "/bin/true"]]


def _faults(loads: Builder) -> list[list[str]]:
    return [[str(loads.build("faults.c")), "32"]]


def _idle(loads: Builder) -> list[list[str]]:
    return [[str(loads.build("idle_threads.c")), "500"], [str(loads.build("spin.c"))]]


def _binaries(loads: Builder) -> list[list[str]]:
    programs = loads.distinct("tiny.c", DISTINCT, *STATIC, "-DROUNDS=3000000")
    return [[str(loads.build("fork_storm.c")), "0", *map(str, programs)]]


def _mixed(_: Builder) -> list[list[str]]:
    return [python_load("mixed.py", "1e9")]


KNOWN_LOADS = {
    load.name: load
    for load in (
        Load("mixed", "an interpreter with deep stacks, and short programs", _mixed),
        Load("cpu", "a C program and an interpreter, CPU-bound", _cpu),
        Load("forks", "fork and exec of /bin/true as fast as it goes", _forks),
        Load("faults", "page faults as fast as they go", _faults),
        Load("idle", "500 threads that rest, beside one that works", _idle),
        Load(
            "binaries", f"{DISTINCT} different programs in turn, each some milliseconds", _binaries
        ),
    )
}

"""What every benchmark needs: a daemon of its own, peers, loads, and plain tables."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import resource

HERE = Path(__file__).parent
LOADS = HERE / "loads"
BIN = Path(sys.executable).parent
READY_TIMEOUT_S = 10.0


@dataclass
class Usage:
    """CPU of a finished process with all children it waited for, and what it took."""

    cpu_seconds: float
    samples: int
    extra: dict[str, Any] = field(default_factory=dict)


class Opd:
    """A daemon with a socket and a store of its own."""

    def __init__(self, *arguments: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="opd-bench-"))
        self.endpoint = f"ipc://{self.directory}/opd.sock"
        self.log = (self.directory / "log").open("w+b")
        command = [str(BIN / "opd"), "--session-dir", str(self.directory / "store")]
        command += ["--endpoint", self.endpoint, "--log-format", "json", *arguments]
        self.process = subprocess.Popen(command, stderr=self.log)
        self.usage: resource.struct_rusage | None = None

    def __enter__(self) -> Self:
        until = time.monotonic() + READY_TIMEOUT_S
        while b"daemon.ready" not in (self.directory / "log").read_bytes():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError((self.directory / "log").read_text())
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.log.close()
        shutil.rmtree(self.directory)

    def ask(self, *arguments: str) -> Any:
        """Give opctl's JSON answer."""
        command = [str(BIN / "opctl"), "--endpoint", self.endpoint, "--format", "json"]
        done = subprocess.run([*command, *arguments], capture_output=True, check=True)
        return json.loads(done.stdout)

    def stop(self) -> float:
        """End the daemon; CPU seconds of it and its children."""
        if self.usage is None:
            self.process.terminate()
            _, status, self.usage = os.wait4(self.process.pid, 0)
            self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.usage.ru_utime + self.usage.ru_stime

    def store_bytes(self) -> int:
        """Give the size of all files of the store."""
        return sum(file.stat().st_size for file in (self.directory / "store").iterdir())


def perf_record(seconds: float, *arguments: str) -> Usage:
    """Run perf record on the whole system for a time."""
    with tempfile.TemporaryDirectory(prefix="opd-bench-perf-") as folder:
        output = Path(folder) / "perf.data"
        command = ["perf", "record", "-a", *arguments, "-o", str(output), "--", "sleep"]
        process = subprocess.Popen([*command, str(seconds)], stderr=subprocess.PIPE)
        assert process.stderr is not None
        text = process.stderr.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        found = re.search(r"\((\d+) samples\)", text)
        if process.returncode != 0 or found is None:
            raise RuntimeError(text)
        size = output.stat().st_size
    return Usage(usage.ru_utime + usage.ru_stime, int(found[1]), {"bytes": size})


def start_load(seconds: float) -> subprocess.Popen[bytes]:
    """Start the mixed load, which ends by itself."""
    return subprocess.Popen([sys.executable, str(LOADS / "mixed.py"), str(seconds)])


def compile_load(source: str, target: Path, *flags: str) -> None:
    """Compile a C load without frame pointers' being taken away."""
    command = ["gcc", "-O1", "-g", "-fno-omit-frame-pointer", *flags, str(LOADS / source)]
    subprocess.run([*command, "-o", str(target), "-lpthread"], check=True)


def median(values: list[float]) -> float:
    """Give the median."""
    return statistics.median(values)


def table(title: str, header: list[str], rows: list[list[str]]) -> None:
    """Print rows in columns under a title."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    print(f"\n{title}")
    for row in [header, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print("  " + "  ".join(cells).rstrip())
    sys.stdout.flush()

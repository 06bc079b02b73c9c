"""A daemon of one's own: socket, store, account."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from bench.harness.accounting import Account

BIN = Path(sys.executable).parent
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 120.0


class Opd:
    """Runs opd inside an account; a context manager that leaves nothing behind.

    ``store`` is the session directory to use instead of a temporary one; it is
    left where it is. ``governed`` is opd as it ships; else its governor is off,
    so that a rate asked for is the rate measured.
    """

    def __init__(
        self, account: Account, *arguments: str, store: Path | None = None, governed: bool = False
    ) -> None:
        self.account = account
        self.directory = Path(tempfile.mkdtemp(prefix="opd-bench-"))
        self.store = store or self.directory / "store"
        self.endpoint = f"ipc://{self.directory}/opd.sock"
        self.log_path = self.directory / "log"
        self._arguments = arguments
        if not governed:
            config = self.directory / "opd.toml"
            config.write_text('[governor]\ncpu_percent = "off"\n', encoding="ascii")
            self._arguments = ("--config", str(config), *arguments)
        self.process: subprocess.Popen[bytes] | None = None
        self.status = 0  # exit status of the last run

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The daemon's pid."""
        assert self.process is not None
        return self.process.pid

    @property
    def ended(self) -> bool:
        """Whether it is not running any more."""
        return self.process is None or self.process.poll() is not None

    def start(self) -> float:
        """Start it and wait until it is ready; seconds that took."""
        began = time.monotonic()
        offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        command = [str(BIN / "opd"), "--session-dir", str(self.store)]
        command += ["--endpoint", self.endpoint, "--log-format", "json", *self._arguments]
        with self.log_path.open("ab") as log:
            self.process = self.account.start(command, stderr=log)
        while b"daemon.ready" not in self.log_path.read_bytes()[offset:]:
            if self.process.poll() is not None or time.monotonic() > began + READY_TIMEOUT_S:
                raise RuntimeError(f"opd did not start:\n{self.log_path.read_text()}")
            time.sleep(0.005)
        return time.monotonic() - began

    def run_opctl(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """Run opctl against it, outside of the account."""
        command = [str(BIN / "opctl"), "--endpoint", self.endpoint, "--format", "json"]
        return subprocess.run([*command, *arguments], capture_output=True, check=False)

    def ask(self, *arguments: str) -> Any:
        """Give opctl's JSON answer."""
        done = self.run_opctl(*arguments)
        if done.returncode:
            raise RuntimeError(f"opctl {' '.join(arguments)}: {done.stderr.decode()}")
        return json.loads(done.stdout)

    def ask_store(self, *arguments: str) -> Any:
        """Give the JSON answer from the store alone."""
        return ask_store(self.store, *arguments)

    def stop(self, number: int = signal.SIGTERM) -> float:
        """End it and its children; seconds that took."""
        began = time.monotonic()
        if self.process is not None:
            if self.process.poll() is None:
                self.process.send_signal(number)
            try:
                self.status = self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.status = self.process.wait()
            self.process = None
        return time.monotonic() - began

    def store_files(self) -> dict[str, int]:
        """Give the size in bytes of each file of the store."""
        return store_files(self.store)

    def log_lines(self) -> list[dict[str, Any]]:
        """Give what was logged, a map a line."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


def ask_store(store: Path, *arguments: str) -> Any:
    """Give opctl's JSON answer from a store, without a daemon."""
    command = [str(BIN / "opctl"), "--session-dir", str(store), "--format", "json"]
    done = subprocess.run([*command, *arguments], capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"opctl {' '.join(arguments)}: {done.stderr.decode()}")
    return json.loads(done.stdout)


def store_files(store: Path) -> dict[str, int]:
    """Give the size in bytes of each file below a session directory."""
    sizes = {}
    for folder, _, names in os.walk(store):
        for name in names:
            path = Path(folder) / name
            try:
                sizes[str(path.relative_to(store))] = path.stat().st_size
            except FileNotFoundError:
                continue  # a journal that has just gone
    return sizes

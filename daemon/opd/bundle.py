"""What a bug report needs of a daemon and its machine, gathered in memory.

Everything is asked on its own, so that one thing which cannot be had is a line
in the manifest and never the end of the rest.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import os
import shutil
import subprocess
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import quote

from opd import __version__
from opd.errors import OpdError
from opd.machine import machine_facts, program_versions
from opd.redaction import REDACTED, redact_homes, redact_host
from opd.service.crashes import TRACE_BYTES_MOST, traces
from opd.store.schema import FILE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

STORE_FILES_MOST = 2000
_JOURNAL_LINES = 500
_JOURNAL_TIMEOUT_S = 5.0


class Daemon(Protocol):
    """A running daemon to ask."""

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """The method's result. Raises OpdError."""
        ...


class Part(NamedTuple):
    """One file of the bundle."""

    name: str
    what: str
    data: bytes


class Bundle:
    """Parts, and what is missing and why. ``redact`` hides homes, command lines, the host."""

    def __init__(self, *, redact: bool) -> None:
        self.redact = redact
        self.parts: list[Part] = []
        self.missing: list[dict[str, str]] = []
        self.made = dt.datetime.now(dt.UTC)
        self._host = os.uname().nodename
        self._hide_commands = redact

    # ---- gathering

    def add_daemon(self, daemon: Daemon) -> str:
        """All that a daemon says of itself; its session directory, "" when it does not tell."""
        status = self._ask(
            "status.json", "how it does, with its cost", daemon, "status", {"cost": True}
        )
        self._ask("doctor.json", "what this machine does not allow, as the daemon sees it",
                  daemon, "doctor")  # fmt: skip
        config = self._ask("config.json", "the settings in force", daemon, "config") or {}
        settings = config.get("settings", {})
        # What the daemon may not keep is not passed on either.
        self._hide_commands |= settings.get("privacy", {}).get("redact", "none") != "none"
        self._ask("hello.json", "what it can do", daemon, "hello")
        self._ask("features.json", "its extended features", daemon, "features")
        self._ask("stats.json", "what they count and cost", daemon, "stats")
        self._ask("sessions.json", "the sessions of its store", daemon, "sessions")
        self._ask("marks.json", "the marks of its store", daemon, "marks")
        self._quality(daemon, status)
        self._gather("log.jsonl", "the last lines of its log", lambda: _log_text(daemon))
        self._gather("processes.json", "its processes", lambda: self._processes(status))
        return str(settings.get("daemon", {}).get("session_dir", ""))

    def add_machine(self) -> None:
        """Facts of this machine and the versions of all that opd uses."""
        self._gather("machine.json", "kernel, CPU, memory and limits", self._machine)
        self._gather("versions.json", "opd, Python and the libraries", program_versions)
        self._gather("journal.txt", "the unit's lines in the journal", _journal)

    def add_doctor(self) -> None:
        """What this process sees, where no daemon tells."""
        from opd.service.capabilities import examine

        def findings() -> list[dict[str, Any]]:
            import msgspec

            found: list[dict[str, Any]] = msgspec.to_builtins(examine())
            return found

        self._gather("doctor.json", "what this machine does not allow opctl's user", findings)

    def add_store(self, session_dir: Path) -> None:
        """Sizes and schema of a store, and the stacks of what crashed over it; no profile."""
        self._gather("store.json", "sizes and schema of the store", lambda: _store(session_dir))
        try:
            found = traces(session_dir)
        except OSError as error:
            self._miss("crash", error)
            return
        for path in found:
            self._gather(f"crash/{path.name}.txt", "stacks of a crash", lambda p=path: _tail(p))  # type: ignore[misc]

    def miss(self, name: str, why: str) -> None:
        """Say that something is not in it."""
        self.missing.append({"name": name, "why": self._clean(why)})

    # ---- writing

    def manifest(self) -> dict[str, Any]:
        """What is inside; the bundle's own first file."""
        return {
            "made": self.made.isoformat(timespec="seconds"),
            "opd": __version__,
            "redacted": self.redact,
            "files": [
                {"name": part.name, "bytes": len(part.data), "what": part.what}
                for part in self.parts
            ],
            "missing": self.missing,
        }

    @property
    def name(self) -> str:
        """The bundle's directory and, with a suffix, its file."""
        return f"opd-bundle-{self.made:%Y%m%dT%H%M%SZ}"

    def write(self, file: io.BufferedIOBase, *, compression: str) -> None:
        """Write the archive; ``compression`` is gz or xz."""
        manifest = json.dumps(self.manifest(), indent=1).encode()
        with tarfile.open(fileobj=file, mode=f"w:{compression}") as archive:  # type: ignore[call-overload]
            for name, data in [
                ("manifest.json", manifest),
                *((part.name, part.data) for part in self.parts),
            ]:
                info = tarfile.TarInfo(f"{self.name}/{name}")
                info.size, info.mode, info.mtime = len(data), 0o644, int(self.made.timestamp())
                archive.addfile(info, io.BytesIO(data))

    # ---- inside

    def _ask(
        self,
        name: str,
        what: str,
        daemon: Daemon,
        method: str,
        params: dict[str, Any] | None = None,
    ) -> dict[str, Any] | None:
        try:
            answer: dict[str, Any] = daemon.call(method, params)
        except OpdError as error:
            self._miss(name, error)
            return None
        self._gather(name, what, lambda: answer)
        return answer

    def _quality(self, daemon: Daemon, status: dict[str, Any] | None) -> None:
        """Total and quality of each event's last hour; no row of the profile."""

        def ask() -> dict[str, Any]:
            found = {}
            for event in (status or {}).get("events", []):
                params = {"event": event["name"], "sort": ["event"], "top": 1}
                answer = daemon.call("report", params)
                answer.pop("rows")
                found[event["name"]] = answer
            return found

        self._gather("quality.json", "total and quality of each event, last hour", ask)

    def _machine(self) -> dict[str, Any]:
        facts = machine_facts()
        if self.redact:
            facts |= {"kernel_command_line": REDACTED, "host": "[host]"}
        return facts

    def _processes(self, status: dict[str, Any] | None) -> list[dict[str, Any]]:
        import psutil

        if status is None:
            return []
        found = []
        main = psutil.Process(int(status["pid"]))
        for process in (main, *main.children(recursive=True)):
            try:
                words = process.cmdline()
                if self._hide_commands:
                    words = [Path(words[0]).name, REDACTED] if words else []
                found.append(
                    {
                        "pid": process.pid,
                        "name": process.name(),
                        "command_line": words,
                        "uids": list(process.uids()),
                        "threads": process.num_threads(),
                        "age_seconds": round(time.time() - process.create_time(), 1),
                    }
                )
            except psutil.Error:
                continue
        return found

    def _gather(self, name: str, what: str, get: Callable[[], object]) -> None:
        try:
            value = get()
        except (OpdError, OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
            self._miss(name, error)
            return
        text = value if isinstance(value, str) else json.dumps(value, indent=1, default=_plain)
        self.parts.append(Part(name, what, self._clean(text).encode("utf-8", "replace")))

    def _miss(self, name: str, error: Exception) -> None:
        self.miss(name, str(error) or type(error).__name__)

    def _clean(self, text: str) -> str:
        return redact_host(redact_homes(text), self._host) if self.redact else text


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else repr(value)


def _log_text(daemon: Daemon) -> str:
    lines: list[str] = daemon.call("log")["lines"]
    return "\n".join(lines) + "\n" if lines else ""


def _journal() -> str:
    if shutil.which("journalctl") is None:
        raise LookupError("journalctl is not installed")
    command = ["journalctl", "--unit=opd.service", f"--lines={_JOURNAL_LINES}"]
    done = subprocess.run(
        [*command, "--no-pager", "--output=short-iso-precise", "--quiet"],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=_JOURNAL_TIMEOUT_S,
    )
    if done.returncode != 0 or not done.stdout.strip():
        raise LookupError(done.stderr.strip() or "the journal has no line of opd.service")
    return done.stdout


def _store(session_dir: Path) -> dict[str, Any]:
    if not session_dir.is_dir():
        raise LookupError(f"{session_dir}: no such directory")
    files: list[dict[str, Any]] = []
    total = count = 0
    # os.walk would pass over what may not be read.
    os.listdir(session_dir)  # noqa: PTH208
    for folder, _, names in os.walk(session_dir):
        for name in sorted(names):
            path = Path(folder, name)
            size = path.lstat().st_size
            count, total = count + 1, total + size
            if len(files) < STORE_FILES_MOST:
                files.append({"name": str(path.relative_to(session_dir)), "bytes": size})
    return {
        "directory": str(session_dir),
        "files_count": count,
        "bytes": total,
        "free_bytes": shutil.disk_usage(session_dir).free,
        **_schema(session_dir / FILE_NAME),
        "files": files,
    }


def _schema(path: Path) -> dict[str, Any]:
    import sqlite3

    try:
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
        with contextlib.closing(connection):
            names = ("user_version", "page_size", "page_count", "freelist_count")
            return {
                name.replace("user_version", "schema_version"): connection.execute(
                    f"PRAGMA {name}"
                ).fetchone()[0]
                for name in names
            }
    except sqlite3.Error as error:
        return {"schema_version": None, "why": f"{path.name}: {error}"}


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TRACE_BYTES_MOST))
        return file.read(TRACE_BYTES_MOST).decode(errors="replace")

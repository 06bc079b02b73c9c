"""Log lines of the daemon: ``log.info("noun.verb", key=value)``, to stderr.

Console lines on a terminal, else JSON; under journald without a time stamp,
which the journal has, and with the priority in front. structlog draws the
console lines and nothing else here: importing it (asyncio, ssl, logging)
costs more CPU than all the rest of a start, and a service writes JSON.
"""

from __future__ import annotations

import collections
import datetime as dt
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LogFormat = Literal["auto", "console", "json"]

# What ``recent`` can give: lines, and characters of one.
RECENT_LINES = 500
_RECENT_LENGTH = 2048
_STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"
_recent: collections.deque[str] = collections.deque(maxlen=RECENT_LINES)

# syslog(3)'s numbers, which journald reads from <N> in front of a line.
_PRIORITY = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}


class Logger:
    """Writes lines as the last ``configure`` said; any thread may call.

    ``values`` are in every line of it.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def debug(self, event: str, **values: Any) -> None:
        """Only with ``verbose``."""
        if _output.verbose:
            self._write("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        """What happened."""
        self._write("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        """What somebody should know."""
        self._write("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        """What went wrong."""
        self._write("error", event, values)

    def critical(self, event: str, **values: Any) -> None:
        """What ends the daemon."""
        self._write("critical", event, values)

    def exception(self, event: str, **values: Any) -> None:
        """An error with the traceback of the exception that is being handled."""
        import traceback  # seldom needed, and start-up has a budget

        self._write("error", event, {**values, "exception": traceback.format_exc().rstrip("\n")})

    def _write(self, level: str, event: str, values: Mapping[str, Any]) -> None:
        _output.write(level, event, {**self._values, **values})


class _Output:
    """Where lines go and what they look like."""

    def __init__(
        self, stream: TextIO, *, verbose: bool, journal: bool, console: Callable[..., str] | None
    ) -> None:
        self._stream = stream
        self._journal = journal
        self._console = console
        self.verbose = verbose
        self.lost = 0  # lines that nobody took: a closed stderr is no reason to stop

    def write(self, level: str, event: str, values: dict[str, Any]) -> None:
        now = dt.datetime.now(dt.UTC)
        rest = {"level": level, "event": event, **values}
        plain = json.dumps({"time": now.strftime(_STAMP), **rest}, default=repr)
        _recent.append(plain if len(plain) <= _RECENT_LENGTH else plain[:_RECENT_LENGTH] + "…")
        if self._console is not None:
            line = self._console(None, "", {"time": f"{now.astimezone():%H:%M:%S}", **rest})
        elif self._journal:
            line = json.dumps(rest, default=repr)  # the journal has the time
        else:
            line = plain
        if self._journal:
            # Each further line of a traceback would otherwise be an entry of its own priority.
            line = "\n".join(f"<{_PRIORITY[level]}>{part}" for part in line.splitlines())
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self.lost += 1


def configure(
    log_format: LogFormat = "auto",
    *,
    verbose: bool = False,
    stream: TextIO | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Say once, before the first line, how lines look; called again, it changes that."""
    global _output  # noqa: PLW0603 - the process has one log
    stream = sys.stderr if stream is None else stream
    environ = os.environ if environ is None else environ
    console = log_format == "console" or (log_format == "auto" and stream.isatty())
    _output = _Output(
        stream,
        verbose=verbose,
        journal=_is_journal(stream, environ),
        console=_console(colors=stream.isatty() and "NO_COLOR" not in environ) if console else None,
    )


def get_logger(**values: Any) -> Logger:
    """A logger whose lines all carry ``values``."""
    return Logger(values)


def recent(most: int) -> list[str]:
    """The last lines of this process as JSON, oldest first; one that was too long ends in …."""
    # A copy in one step: other threads go on logging.
    return list(_recent)[-most:] if most > 0 else []


def _console(*, colors: bool) -> Callable[..., str]:
    """What draws a line for people."""
    # structlog imports rich for pretty tracebacks where it is installed, which are not ours.
    hidden = "rich" not in sys.modules
    if hidden:
        sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        from structlog import dev
    finally:
        if hidden:
            del sys.modules["rich"]
    return dev.ConsoleRenderer(
        colors=colors, timestamp_key="time", exception_formatter=dev.plain_traceback
    )


def _is_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    try:
        device, inode = (int(part) for part in environ.get("JOURNAL_STREAM", "").split(":"))
        status = os.fstat(stream.fileno())
    except (ValueError, OSError):
        return False
    return (status.st_dev, status.st_ino) == (device, inode)


_output = _Output(sys.stderr, verbose=False, journal=False, console=None)

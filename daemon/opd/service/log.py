"""Log lines of the daemon: ``log.info("noun.verb", key=value)``, to stderr.

The only module that imports structlog, and only the daemon's processes import
it. Console lines on a terminal, else JSON; under journald without a time
stamp, which the journal has, and with the priority in front.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Literal, TextIO

_HIDDEN = "rich" not in sys.modules
if _HIDDEN:
    # structlog imports rich for pretty tracebacks where it is installed: 60 ms of CPU at
    # every start, for lines that a daemon does not write.
    sys.modules["rich"] = None  # type: ignore[assignment]
try:
    import structlog
finally:
    if _HIDDEN:
        del sys.modules["rich"]

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

LogFormat = Literal["auto", "console", "json"]

# syslog(3)'s numbers, which journald reads from <N> in front of a line.
_PRIORITY = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
_DEBUG = 10
_INFO = 20


class _Lines:
    """Writes lines, and counts those that nobody takes: a closed stderr is no reason to stop."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost = 0

    def msg(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self.lost += 1

    log = debug = info = warning = error = critical = exception = fatal = msg


def configure(
    log_format: LogFormat = "auto",
    *,
    verbose: bool = False,
    stream: TextIO | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Say once, before the first line, how lines look; called again, it changes that."""
    stream = sys.stderr if stream is None else stream
    environ = os.environ if environ is None else environ
    journal = _is_journal(stream, environ)
    console = log_format == "console" or (log_format == "auto" and stream.isatty())
    stamp = structlog.processors.TimeStamper(
        fmt="%H:%M:%S" if console else "iso", utc=not console, key="time"
    )
    processors: list[Any] = [structlog.processors.add_log_level]
    if not journal:
        processors.append(stamp)
    if console:
        processors.append(
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty() and "NO_COLOR" not in environ,
                timestamp_key="time",
                exception_formatter=structlog.dev.plain_traceback,
            )
        )
    else:
        processors.append(structlog.processors.format_exc_info)
        processors.append(structlog.processors.JSONRenderer(serializer=_json))
    if journal:
        processors.append(_prefixed)
    lines = _Lines(stream)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_DEBUG if verbose else _INFO),
        logger_factory=lambda *_args: lines,
        # Not cached: a reload may change format and level.
        cache_logger_on_first_use=False,
    )


def get_logger(**values: Any) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines all carry ``values``."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(**values)
    return logger


def _json(value: Any, **_options: Any) -> str:
    return json.dumps(value, default=repr)


def _prefixed(_logger: object, method: str, line: str | MutableMapping[str, Any]) -> str:
    number = _PRIORITY.get(method, _PRIORITY["error" if method == "exception" else "info"])
    # Each further line of a traceback would otherwise be an entry of its own priority.
    return "\n".join(f"<{number}>{part}" for part in str(line).splitlines())


def _is_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    try:
        device, inode = (int(part) for part in environ.get("JOURNAL_STREAM", "").split(":"))
        status = os.fstat(stream.fileno())
    except (ValueError, OSError):
        return False
    return (status.st_dev, status.st_ino) == (device, inode)

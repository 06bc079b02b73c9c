"""opctl import: bring a perf.data file into a store."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opd.cli import asking, output
from opd.errors import OpdError, OperationFailedError, UsageError

if TYPE_CHECKING:
    import argparse
    from typing import BinaryIO

EXAMPLE = "opctl --session-dir ./store import perf.data --name before"

_QUIET_SECONDS = 1.0
_EVERY_SECONDS = 0.2
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument("file", metavar="FILE", help="as written by perf record")
    parser.add_argument("--name", default="", help="the session's name (default: the file's)")


def run(arguments: argparse.Namespace) -> int:
    """Import here into ``--session-dir``, else stream the bytes to the daemon."""
    path = Path(arguments.file)
    with _open(path) as file:
        try:
            result = _import(arguments, path, file)
        except OSError as error:
            reason = error.strerror or error
            raise OperationFailedError(f"{path}: cannot read it: {reason}") from error
    output.print_result(result, arguments.format, _text(result))
    return 0


def _open(path: Path) -> BinaryIO:
    """Open a regular file. Raises UsageError for anything else, OperationFailedError."""
    try:
        _refuse_other(path, path.stat().st_mode)  # a socket cannot be opened, a tape rewinds
        # Should it be a FIFO by now, this waits for nobody to write into it.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise OperationFailedError(f"{path}: {error.strerror}") from error
    file = os.fdopen(fd, "rb")
    try:
        _refuse_other(path, os.fstat(fd).st_mode)
    except OpdError:
        file.close()
        raise
    return file


def _refuse_other(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise OperationFailedError(
            f"{path}: expected a perf.data file, this is a directory",
            hint="perf record --threads writes one; record without it",
        )
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise UsageError(f"{path}: expected a perf.data file, this is {kind}")


def _import(arguments: argparse.Namespace, path: Path, file: BinaryIO) -> dict[str, Any]:
    progress = Progress(f"importing {path.name}")
    try:
        if arguments.session_dir is None:
            with asking.connect(arguments) as client:
                size = os.fstat(file.fileno()).st_size
                sent: dict[str, Any] = client.send_file(
                    file,
                    name=arguments.name,
                    origin=path.name,
                    progress=lambda done: progress.show(done, size),
                )
                return sent
        from opd.importing import import_perf_data

        return import_perf_data(
            file.fileno(),
            arguments.session_dir,
            name=arguments.name,
            origin=path.name,
            progress=progress.show,
        )
    finally:
        progress.clear()


class Progress:
    """A line on a terminal's stderr, once something has taken a second."""

    def __init__(self, what: str) -> None:
        self._what = output.clean(what)
        self._next = time.monotonic() + _QUIET_SECONDS
        self._shown = False

    def show(self, done: int, whole: int) -> None:
        """Tell how many of how many bytes are done."""
        now = time.monotonic()
        if now < self._next or sys.stderr is None or not sys.stderr.isatty():
            return
        self._next, self._shown = now + _EVERY_SECONDS, True
        share = f"{100 * done // whole} %, " if whole else ""
        text = f"{self._what}: {share}{output.size_text(done)} of {output.size_text(whole)}"
        self._print(f"\r{text}\x1b[K")

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            self._print("\r\x1b[K")

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a terminal that has gone
            print(text, end="", file=sys.stderr, flush=True)


def _text(result: dict[str, Any]) -> str:
    already = " (was there already)" if result.get("already") else ""
    text = f"session {result.get('session')}: {result.get('samples')} samples{already}"
    if result.get("complete") is False:
        text += f"\nincomplete: {result.get('detail')}"
    return "\n".join(map(output.clean, text.split("\n")))

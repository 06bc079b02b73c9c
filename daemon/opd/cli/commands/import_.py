"""opctl import: bring a perf.data file into a store."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opd.cli import asking, output
from opd.errors import OperationFailedError

if TYPE_CHECKING:
    import argparse
    from typing import BinaryIO

EXAMPLE = "opctl --session-dir ./store import perf.data --name before"

_QUIET_SECONDS = 1.0
_EVERY_SECONDS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument("file", metavar="FILE", help="as written by perf record")
    parser.add_argument("--name", default="", help="the session's name (default: the file's)")


def run(arguments: argparse.Namespace) -> int:
    """Import here into ``--session-dir``, else stream the bytes to the daemon."""
    path = Path(arguments.file)
    try:
        file = path.open("rb")
    except OSError as error:
        raise OperationFailedError(f"{path}: {error.strerror}") from error
    with file:
        result = _import(arguments, path, file)
    output.print_result(result, arguments.format, _text(result))
    return 0


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
        if now < self._next or not sys.stderr.isatty():
            return
        self._next, self._shown = now + _EVERY_SECONDS, True
        share = f"{100 * done // whole} %, " if whole else ""
        text = f"{self._what}: {share}{output.size_text(done)} of {output.size_text(whole)}"
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _text(result: dict[str, Any]) -> str:
    already = " (was there already)" if result.get("already") else ""
    text = f"session {result.get('session')}: {result.get('samples')} samples{already}"
    if result.get("complete") is False:
        text += f"\nincomplete: {result.get('detail')}"
    return "\n".join(map(output.clean, text.split("\n")))

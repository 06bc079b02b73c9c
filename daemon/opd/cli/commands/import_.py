"""opctl import: bring a perf.data file into a store."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opd.cli import asking, output
from opd.cli.progress import ProgressLine
from opd.errors import OpdError, OperationFailedError, UsageError

if TYPE_CHECKING:
    import argparse
    from typing import BinaryIO

EXAMPLE = "opctl --session-dir ./store import perf.data --name before"

_QUIET_SECONDS = 1.0
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
    progress, what = ProgressLine(_QUIET_SECONDS), output.clean(f"importing {path.name}")

    def show(done: int, whole: int) -> None:
        if progress.is_due():
            progress.show(_share_text(what, done, whole))

    try:
        if arguments.session_dir is None:
            with asking.connect(arguments) as client:
                size = os.fstat(file.fileno()).st_size
                sent: dict[str, Any] = client.send_file(
                    file,
                    name=arguments.name,
                    origin=path.name,
                    progress=lambda done: show(done, size),
                )
                return sent
        from opd.importing import import_perf_data

        return import_perf_data(
            file.fileno(),
            arguments.session_dir,
            name=arguments.name,
            origin=path.name,
            progress=show,
        )
    finally:
        progress.clear()


def _share_text(what: str, done: int, whole: int) -> str:
    share = f"{100 * done // whole} %, " if whole else ""
    return f"{what}: {share}{output.size_text(done)} of {output.size_text(whole)}"


def _text(result: dict[str, Any]) -> str:
    already = " (was there already)" if result.get("already") else ""
    text = f"session {result.get('session')}: {result.get('samples')} samples{already}"
    if result.get("complete") is False:
        text += f"\nincomplete: {result.get('detail')}"
    elif result.get("detail"):
        text += f"\n{result['detail']}"
    return "\n".join(map(output.clean, text.split("\n")))

"""opctl bundle: all that a bug report needs, in one file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opd.cli import asking, output
from opd.errors import NoDaemonError, OpdError, OperationFailedError, UsageError

if TYPE_CHECKING:
    import argparse

    from opd.bundle import Bundle

EXAMPLE = "opctl bundle opd.tar.xz"

_COMPRESSIONS = {".tar.gz": "gz", ".tgz": "gz", ".tar.xz": "xz"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        default="",
        help="a new file, .tar.gz or .tar.xz (default: opd-bundle-TIME.tar.gz here)",
    )
    parser.add_argument(
        "--no-redact",
        action="store_true",
        help="leave the names of home directories, command lines and the host name as they are",
    )


def run(arguments: argparse.Namespace) -> int:
    """Gather, write, say what is inside."""
    suffix = _suffix(arguments.file)
    from opd.bundle import Bundle

    bundle = Bundle(redact=not arguments.no_redact)
    _gather(bundle, arguments)
    path = Path(arguments.file or f"{bundle.name}.tar.gz")
    size = _write(bundle, path, _COMPRESSIONS[suffix])
    manifest = bundle.manifest() | {"path": str(path), "bytes": size}
    if arguments.format == "json":
        output.print_json(manifest)
    elif arguments.format == "csv":
        output.print_csv(("name", "bytes", "what"), manifest["files"])
    else:
        _print(manifest)
    return 0


def _suffix(name: str) -> str:
    if not name:
        return ".tar.gz"
    for suffix in _COMPRESSIONS:
        if name.endswith(suffix):
            return suffix
    raise UsageError(
        f"{name}: expected a name that ends in one of {' '.join(_COMPRESSIONS)}",
        hint="opctl bundle opd.tar.gz",
    )


def _gather(bundle: Bundle, arguments: argparse.Namespace) -> None:
    directory = arguments.session_dir or ""
    if not directory:
        try:
            with asking.connect(arguments) as client:
                directory = bundle.add_daemon(client)
        except NoDaemonError as error:
            # It is often the daemon that does not start that somebody reports.
            bundle.miss("all that a daemon tells", error.message)
        except OpdError as error:
            bundle.miss("what the daemon did not tell any more", error.message)
    if not any(part.name == "doctor.json" for part in bundle.parts):
        bundle.add_doctor()
    bundle.add_machine()
    if not directory:
        from opd.service.paths import state_dir

        directory = state_dir()
    bundle.add_store(Path(directory))


def _write(bundle: Bundle, path: Path, compression: str) -> int:
    try:
        # For its owner alone until he passes it on.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            bundle.write(file, compression=compression)
        return path.stat().st_size
    except FileExistsError as error:
        raise OperationFailedError(
            f"{path} exists", hint="name another file, or remove it"
        ) from error
    except OSError as error:
        raise OperationFailedError(f"{path}: cannot write it: {error.strerror}") from error


def _print(manifest: dict[str, Any]) -> None:
    rows = [{**file, "size": output.size_text(file["bytes"])} for file in manifest["files"]]
    output.print_table(("size", "name", "what"), rows, right=("size",))
    for lack in manifest["missing"]:
        output.write(output.clean(f"missing: {lack['name']}: {lack['why']}"))
    hidden = "home directories, command lines and the host name are redacted"
    output.write(hidden if manifest["redacted"] else "NOT redacted")
    output.write(output.clean(f"{manifest['path']}: {output.size_text(manifest['bytes'])}"))

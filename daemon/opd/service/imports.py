"""Imports for the daemon, each in a child of its own: the bytes may be hostile."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from opd.errors import OperationFailedError, RecordFileError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

IMPORT_TIMEOUT_S = 3600.0


def import_in_child(fd: int, directory: Path, *, name: str, origin: str) -> dict[str, Any]:
    """Import the recording in ``fd``; what ``opd.importing.import_perf_data`` returns.

    Raises what it raises, and OperationFailedError when the child crashes.
    """
    command = [sys.executable, "-m", "opd.importing", "--directory", str(directory)]
    command += [f"--fd={fd}", f"--name={name}", f"--origin={origin}", f"--parent={os.getpid()}"]
    try:
        done = subprocess.run(
            command, pass_fds=[fd], capture_output=True, timeout=IMPORT_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise OperationFailedError(
            f"the import did not end within {IMPORT_TIMEOUT_S:g} s"
        ) from error
    result: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        result = json.loads(done.stdout)
    if error_map := result.get("error"):
        kind = RecordFileError if error_map["code"] == RecordFileError.code else StoreError
        raise kind(error_map["message"], hint=error_map["hint"])
    if done.returncode != 0 or not result:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise OperationFailedError(
            f"the import ended with status {done.returncode}: {' '.join(last)}"
        )
    return result

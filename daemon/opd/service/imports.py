"""Imports for the daemon, each in a child of its own: the bytes may be hostile."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from opd.errors import OperationFailedError, RecordFileError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from opd.redaction import Redact

IMPORT_TIMEOUT_S = 3600.0


def import_in_child(
    fd: int,
    directory: Path,
    *,
    name: str,
    origin: str,
    ending: Callable[[], bool] | None = None,
    redact: Redact = "none",
) -> dict[str, Any]:
    """Import the recording in ``fd``; what ``opd.importing.import_perf_data`` returns.

    ``ending`` is asked now and then; once it is true the import is given up.

    Raises what it raises, and OperationFailedError when the child crashes.
    """
    command = [sys.executable, "-m", "opd.importing", "--directory", str(directory)]
    command += [f"--fd={fd}", f"--name={name}", f"--origin={origin}", f"--parent={os.getpid()}"]
    command += [f"--redact={redact}"]
    with subprocess.Popen(
        command, pass_fds=[fd], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        until = time.monotonic() + IMPORT_TIMEOUT_S
        while True:
            try:
                output, errors = child.communicate(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() < until and not (ending and ending()):
                    continue
                child.kill()
                child.communicate()
                why = "was given up" if ending and ending() else "did not end in time"
                raise OperationFailedError(f"the import {why}") from None
    result: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        result = json.loads(output)
    if error_map := result.get("error"):
        kind = RecordFileError if error_map["code"] == RecordFileError.code else StoreError
        raise kind(error_map["message"], hint=error_map["hint"])
    if child.returncode != 0 or not result:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise OperationFailedError(
            f"the import ended with status {child.returncode}: {' '.join(last)}"
        )
    return result

"""opctl shutdown: end the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.cli import asking, output
from opd.errors import OperationFailedError

if TYPE_CHECKING:
    import argparse

EXAMPLE = "opctl shutdown"

_PATIENCE_SECONDS = 60.0


def add_arguments(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Ask, wait for the process to end, and say so."""
    with asking.connect(arguments) as client:
        result = client.call("shutdown")
        pid = client.daemon_pid
        if not client.wait_until_gone(_PATIENCE_SECONDS):
            raise OperationFailedError(
                f"pid {pid} agreed to end but is still there after {_PATIENCE_SECONDS:g} s"
            )
    output.print_result(result, arguments.format, f"opd (pid {pid}) has ended")
    return 0

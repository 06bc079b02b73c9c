"""opctl reset: begin the running session anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.cli import asking, output

if TYPE_CHECKING:
    import argparse

EXAMPLE = "opctl reset && sleep 10 && opctl report"


def add_arguments(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Ask and say so."""
    with asking.connect(arguments) as client:
        result = client.call("reset")
    name = result["session"]
    text = f"what was is in session {name}" if name else "the running session is empty already"
    output.print_result(result, arguments.format, text)
    return 0

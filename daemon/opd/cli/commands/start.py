"""opctl start: go on sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.cli import asking, output

if TYPE_CHECKING:
    import argparse

EXAMPLE = "opctl start"


def add_arguments(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Ask and say so."""
    with asking.connect(arguments) as client:
        result = client.call("start")
    output.print_result(result, arguments.format, "sampling")
    return 0

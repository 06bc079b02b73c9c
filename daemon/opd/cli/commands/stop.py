"""opctl stop: pause sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.cli import asking, output

if TYPE_CHECKING:
    import argparse

EXAMPLE = "opctl stop"


def add_arguments(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Ask and say so."""
    with asking.connect(arguments) as client:
        result = client.call("stop")
    output.print_result(result, arguments.format, "stopped sampling")
    return 0

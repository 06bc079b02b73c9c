"""opctl dump: make everything sampled so far answerable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.cli import asking, output

if TYPE_CHECKING:
    import argparse

EXAMPLE = "opctl dump && opctl report --since 1m"


def add_arguments(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Ask, wait and say so."""
    with asking.connect(arguments) as client:
        result = client.call("dump")
    output.print_result(result, arguments.format, "every sample so far is stored")
    return 0

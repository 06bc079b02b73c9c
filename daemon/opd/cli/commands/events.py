"""opctl events: what is, or was, sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.cli import asking, output

if TYPE_CHECKING:
    import argparse

EXAMPLE = "opctl events --format json"

_COLUMNS = ("name", "source", "unit", "hz", "period")


def add_arguments(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    with asking.open_source(arguments) as source:
        answer = source.call("events")
    if arguments.format == "json":
        output.print_json(answer)
    elif arguments.format == "csv":
        output.print_csv(_COLUMNS, answer["events"])
    else:
        output.print_table(_COLUMNS, answer["events"], right=("hz", "period"))
    return 0

"""opctl events: what the session's latest run samples, and what only earlier ones did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import asking, output

if TYPE_CHECKING:
    import argparse

EXAMPLE = "opctl events --format json"

_COLUMNS = ("name", "source", "unit", "hz", "period", "run")


def add_arguments(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    with asking.open_source(arguments) as source:
        answer = source.call("events")
    if arguments.format == "json":
        output.print_json(answer)
        return 0
    rows = [one | {"run": _run(one)} for one in answer["events"]]
    if arguments.format == "csv":
        output.print_csv(_COLUMNS, rows)
    else:
        output.print_table(_COLUMNS, rows, right=("hz", "period"))
    return 0


def _run(event: dict[str, Any]) -> str:
    """Of an event that a reload took away the samples are still there."""
    return "latest" if event.get("latest", True) else "earlier"

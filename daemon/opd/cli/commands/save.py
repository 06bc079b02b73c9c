"""opctl save: keep what was sampled so far under a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.cli import asking, output

if TYPE_CHECKING:
    import argparse

EXAMPLE = "opctl save before-deploy-1.42 && opctl report --session before-deploy-1.42"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument("name", metavar="NAME", help="what the session is called from now on")


def run(arguments: argparse.Namespace) -> int:
    """Ask and say so."""
    with asking.connect(arguments) as client:
        result = client.call("save", {"name": arguments.name})
    text = f"saved as {result['session']}; the running session begins anew"
    output.print_result(result, arguments.format, text)
    return 0

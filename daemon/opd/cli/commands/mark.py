"""opctl mark: give a moment a word, or list those that have one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.cli import asking, output
from opd.errors import UsageError

if TYPE_CHECKING:
    import argparse

EXAMPLE = 'opctl mark "deploy 1.42" && sleep 60 && opctl report --since "mark:deploy 1.42"'

_FIELDS = ("id", "at_ns", "kind", "text")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument(
        "text", metavar="TEXT", nargs="?", help="what happened, such as 'deploy 1.42'"
    )
    parser.add_argument("--at", metavar="TIME", help="when it happened (default: now)")
    parser.add_argument(
        "--list",
        action="store_true",
        help="show the marks from --since to --until instead, also those that opd made: boots, new"
        " kernels, microcode and packages, clock steps, suspends",
    )


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    if arguments.list:
        return _list(arguments)
    if arguments.text is None:
        raise UsageError("mark needs a TEXT", hint="or --list to show the marks there are")
    params = {"text": arguments.text}
    if arguments.at is not None:
        params["at"] = arguments.at
    with asking.connect(arguments) as client:
        result = client.call("mark", params)
    text = f"marked {output.moment_text(result['at_ns'])}: {result['text']}"
    output.print_result(result, arguments.format, text)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    if arguments.text is not None or arguments.at is not None:
        raise UsageError("mark --list takes no TEXT and no --at")
    params = {
        name: value
        for name in ("since", "until")
        if (value := getattr(arguments, name)) is not None
    }
    with asking.open_source(arguments) as source:
        answer = source.call("marks", params)
    if arguments.format == "json":
        output.print_json(answer)
    elif arguments.format == "csv":
        output.print_csv(_FIELDS, answer["marks"])
    else:
        rows = [{**mark, "at": output.moment_text(mark["at_ns"])} for mark in answer["marks"]]
        output.print_table(("at", "kind", "text"), rows)
    return 0

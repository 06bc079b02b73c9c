"""opctl branches: retired branches, from where to where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import asking, output, precise

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

EXAMPLE = (
    "opctl branches --top 10 --where 'comm=nginx'\n"
    "  opctl --session-dir DIR branches --by address --format csv"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument(
        "--by",
        choices=("symbol", "address"),
        default="symbol",
        help="tell branches apart by functions or by addresses in the files (default: symbol)",
    )
    precise.add_question(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    params = {**precise.question(arguments), "by": arguments.by}
    with asking.open_source(arguments) as source:
        answer = source.call("branches", params)
    precise.print_answer(answer, arguments.format, precise.columns_of(answer), _header(answer))
    return 0


def _header(answer: Mapping[str, Any]) -> list[str]:
    line = (
        f"# branches with a target: {answer['samples']} samples, {answer['taken']} taken,"
        f" {answer['mispredicted']} mispredicted{precise.trouble(answer)}"
    )
    if answer["lost"]:
        line += f"; {answer['lost']} had no room"
    if answer["groups"] > answer["rows"]["n"]:
        line += f"; the top {answer['rows']['n']} of {answer['groups']} rows"
    lines = [line, f"# {output.quality_text(answer['quality'])}"]
    if not answer["samples"]:
        lines.append(precise.where_from("branch_target"))
    return lines

"""Reports as people and programs see them: rows, made from the wire's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import output
from opd.errors import UsageError
from opd.query import tables

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

NUMBERS = ("samples", "percent", "weight", "pid", "thread", "cpu")
_COUNT_LIMIT = 1 << 31


def add_question(parser: argparse.ArgumentParser, *, top: int) -> None:
    """The options of a report: what to sort by, how much of it, which event."""
    parser.add_argument(
        "--sort",
        metavar="KEYS",
        help="keys with commas: comm, pid, image, symbol, event, mode and what --separate kept"
        " (default: comm,image,symbol)",
    )
    parser.add_argument(
        "--top",
        metavar="N",
        type=count,
        default=top,
        help=f"rows to show, 0 for all (default: {top})",
    )
    parser.add_argument("-e", "--event", metavar="EVENT", help="default: the first one asked for")


def count(text: str) -> int:
    """A number of rows from the command line; ValueError for what is none."""
    number = int(text)
    if not 0 <= number < _COUNT_LIMIT:
        raise ValueError(text)
    return number


count.__name__ = "count (0 to 2147483647)"  # argparse shows it


def question(arguments: argparse.Namespace) -> dict[str, Any]:
    """The parameters of a report from ``add_question``'s options. Raises UsageError."""
    from opd.query.protocol import KEYS_LIMIT

    params: dict[str, Any] = {"top": arguments.top}
    if arguments.sort is not None:
        params["sort"] = keys = arguments.sort.split(",")
        if len(keys) > KEYS_LIMIT:
            raise UsageError(f"--sort has {len(keys)} keys; at most {KEYS_LIMIT} are taken")
    if arguments.event is not None:
        params["event"] = arguments.event
    return params


def with_rows(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer with rows in place of its table."""
    return {
        name: tables.to_rows(value) if name == "rows" else value for name, value in answer.items()
    }


def print_report(answer: Mapping[str, Any], form: str, keys: list[str]) -> None:
    """A report in one of the three formats; ``answer`` has rows."""
    rows = answer["rows"]
    if form == "json":
        output.print_json(answer)
    elif form == "csv":
        output.print_csv(["samples", "weight", "percent", *keys], rows)
    else:
        for line in header(answer):
            output.write(output.clean(line)[: output.terminal_width()])
        output.print_table(["samples", "percent", *keys], rows, right=NUMBERS)


def header(answer: Mapping[str, Any]) -> list[str]:
    """What stands above a report's table."""
    event, source = answer["event"], answer["quality"].get("source") or answer["event"]
    what = event if source == event else f"{event} (runs as {source})"
    lines = [f"# {what}: {answer['total']} samples"]
    if answer.get("damaged"):
        lines[0] += f"; {answer['damaged']} windows of the store are damaged and not in here"
    return [*lines, f"# {output.quality_text(answer['quality'])}"]


def keys_of(answer: Mapping[str, Any]) -> list[str]:
    """The sort keys of an answer that still has its table."""
    names = [column["name"] for column in answer["rows"]["columns"]]
    return [name for name in names if name not in ("samples", "weight", "percent")]

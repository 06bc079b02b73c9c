"""opctl derive: a derived event that was not asked for, from raw records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import asking, output, precise
from opd.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

EXAMPLE = (
    "opctl derive IBS_OP_LOCKED --by comm,symbol --top 10\n"
    "  opctl --session-dir DIR derive IBS_OP_TLB_REFILL_LATENCY --since 10m --format json"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument(
        "event", metavar="EVENT", help="a derived event; a wrong one's error lists all"
    )
    parser.add_argument(
        "--by", metavar="KEYS", help="with commas: the keys of report (default: symbol)"
    )
    precise.add_question(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    params = {**precise.question(arguments), "event": arguments.event}
    if arguments.by is not None:
        params["by"] = keys = [key.strip() for key in arguments.by.split(",")]
        if not all(keys):
            raise UsageError(f"--by {arguments.by!r}: a key is empty")
    with asking.open_source(arguments) as source:
        answer = source.call("derive", params)
    precise.print_answer(answer, arguments.format, precise.columns_of(answer), _header(answer))
    return 0


def _header(answer: Mapping[str, Any]) -> list[str]:
    records, total = answer["records"], answer["total"]
    line = f"# {answer['event']}: {precise.number(total['samples'])} samples"
    if records["kept"] < records["offered"]:
        low, high = precise.number(total["low"]), precise.number(total["high"])
        line += f" ({low} to {high}, 95 %), from {records['kept']} of {records['offered']}"
        line += " records"
    else:
        line += f", exact, from all {records['offered']} records"
    if total["mean"] is not None:
        line += f"; mean {precise.number(total['mean'])} {answer['unit']}"
    if answer["counted"] is not None:
        line += f"; {answer['counted']} were counted"
    line += precise.trouble(answer)
    lines = [line, f"# {answer['description']} {answer['condition']}; valid: {answer['valid']}"]
    if answer["errata"]:
        lines.append(f"# errata: {answer['errata']}")
    if not records["offered"]:
        lines.append(f"# no raw records of {answer['feature']} are kept in this range")
    return [*lines, f"# {output.quality_text(answer['quality'])}"]

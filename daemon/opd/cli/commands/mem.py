"""opctl mem: what the accesses to memory were, and where they went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import asking, output, precise
from opd.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

EXAMPLE = (
    "opctl mem --by source\n"
    "  opctl mem --by line,symbol --top 10 --where 'comm=postgres'\n"
    "  opctl --session-dir DIR mem --by page,node --since 10m --format json"
)
_ALWAYS = ("accesses", "percent", "percent_low", "percent_high", "loads", "stores")
_THEN = ("dram", "remote", "tlb_missed", "latency_mean", "latency_p50", "latency_p99")
_OF_LINES = ("threads", "sharing", "bytes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument(
        "--by",
        metavar="KEYS",
        help="with commas: source, tlb, op (load or store), line (64 bytes, with the sharing"
        " between threads), page, node, tid, core, and the keys of report (default: symbol)",
    )
    precise.add_question(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    params = precise.question(arguments)
    if arguments.by is not None:
        params["by"] = keys = [key.strip() for key in arguments.by.split(",")]
        if not all(keys):
            raise UsageError(f"--by {arguments.by!r}: a key is empty")
    with asking.open_source(arguments) as source:
        answer = source.call("mem", params)
    lines = _OF_LINES if "line" in answer["by"] else ()
    shown = [*_ALWAYS, *_THEN, *lines, *answer["by"]]
    precise.print_answer(answer, arguments.format, shown, _header(answer))
    return 0


def _header(answer: Mapping[str, Any]) -> list[str]:
    of = answer["accesses"]
    line = f"# memory: {of['offered']} sampled accesses"
    if of["kept"] < of["offered"]:
        line += f", of which {of['kept']} were drawn; counts are estimates from them"
    line += precise.trouble(answer)
    if of["chosen"] < of["kept"]:
        line += f" ({of['chosen']} accesses)"
    if answer["groups"] > answer["rows"]["n"]:
        line += f"; the top {answer['rows']['n']} of {answer['groups']} rows"
    lines = [line, f"# {output.quality_text(answer['quality'])}"]
    if not of["offered"]:
        lines.append(precise.where_from("memaccess"))
    lines.append(
        "# latency: core cycles of loads that missed the data cache; percent_low and _high at 95 %"
    )
    return lines

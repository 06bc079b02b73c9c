"""opctl report: where the time of a range went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.cli import asking, rows

if TYPE_CHECKING:
    import argparse

EXAMPLE = (
    "opctl report --since 03:10 --until 03:15 --sort comm,symbol --top 10 -e cpu-clock\n"
    "  opctl report --since 24h --per hour --sort unit --top 5\n"
    "  opctl report --since 10m --where 'unit=nginx.service and cpu=1' --sort symbol\n"
    "  opctl report --metric dc_miss_ratio --sort symbol"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    rows.add_question(parser, top=20)
    parser.add_argument(
        "--per",
        metavar="SPAN",
        help="a series: the top keys in each minute, hour, 10s, 5m, … as the clock on the wall"
        " divides the range; percent is of all in that span",
    )
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help="a ratio, mean or percentile of derived events instead of samples, each row with"
        " its numerator, denominator and interval: dc_miss_ratio, dram_share, load_latency_mean,"
        " load_latency_p99, … (a wrong one lists all)",
    )
    parser.add_argument(
        "--session", metavar="NAME", help="an imported or earlier session (default: the latest)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    params = rows.question(arguments)
    for name in ("since", "until", "session", "per", "metric"):
        value = getattr(arguments, name)
        if value is not None:
            params[name] = value
    with asking.open_source(arguments) as source:
        answer = source.call("report", params)
    if arguments.metric is not None:
        from opd.cli import precise

        precise.print_metric(answer, arguments.format)
        return 0
    rows.print_report(rows.with_rows(answer), arguments.format, rows.keys_of(answer))
    return 0

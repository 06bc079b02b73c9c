"""opctl top: what the machine does now, again and again."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from opd.cli import asking, output, rows
from opd.cli.fit import GAP, fit
from opd.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from opd.query.client import Client

EXAMPLE = "opctl top --interval 2 --sort comm,symbol"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    rows.add_question(parser, top=20)
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=_seconds,
        default=2.0,
        help="what each view covers, and the time between two (default: 2)",
    )
    parser.add_argument(
        "-n", "--count", metavar="N", type=rows.count, default=0, help="end after N views"
    )


def run(arguments: argparse.Namespace) -> int:
    """Show one view each interval; Ctrl-C ends it well."""
    if arguments.since is not None or arguments.until is not None:
        raise UsageError("top shows the present", hint="use opctl report for a range of time")
    with asking.connect(arguments) as client:
        try:
            if arguments.format == "table" and sys.stdout.isatty():
                _live(arguments, client)
            else:
                for answer in _answers(arguments, client):
                    rows.print_report(
                        rows.with_rows(answer), arguments.format, rows.keys_of(answer)
                    )
                    output.flush()
        except KeyboardInterrupt:
            pass  # the usual way to end it
    return 0


def _answers(arguments: argparse.Namespace, client: Client) -> Iterator[dict[str, Any]]:
    params = {**rows.question(arguments), "seconds": arguments.interval}
    shown = 0
    while True:
        began = time.monotonic()
        yield client.call("top", params)
        shown += 1
        if shown == arguments.count:
            return
        time.sleep(max(0.0, began + arguments.interval - time.monotonic()))


def _live(arguments: argparse.Namespace, client: Client) -> None:
    from rich.live import Live

    with Live(auto_refresh=False, screen=False) as live:
        for answer in _answers(arguments, client):
            live.update(_view(answer, live.console.width, live.console.height), refresh=True)


def _view(answer: Mapping[str, Any], width: int, height: int) -> Any:
    from rich.console import Group
    from rich.text import Text

    keys = rows.keys_of(answer)
    shown = rows.with_rows(answer)
    title = [output.clean(line) for line in rows.header(shown)]
    header = ["samples", "percent", "cores", *keys]
    table = fit(
        header,
        [
            [output.clean(output.cell_text(cell)) for cell in (row[name] for name in header)]
            for row in shown["rows"][: max(1, height - len(title) - 2)]
        ],
        width,
    )
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    lines = [
        (" " * GAP)
        .join(
            cell.rjust(size) if name in rows.NUMBERS else cell.ljust(size)
            for name, cell, size in zip(header, row, widths, strict=True)
        )
        .rstrip()
        for row in table
    ]
    return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in [*title, *lines]))


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 86400:
        raise ValueError(text)
    return seconds


_seconds.__name__ = "number of seconds, more than 0,"  # argparse shows it

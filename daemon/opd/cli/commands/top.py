"""opctl top: what the machine does now, again and again."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Self

from opd.cli import asking, output, rows
from opd.cli.fit import GAP, fit
from opd.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from opd.query.client import Client

EXAMPLE = (
    "opctl top --interval 5 --sort comm,symbol\n"
    "  opctl top --sort unit --where 'not mode=kernel'\n"
    "  opctl top --once --sort pid,comm --format json"
)
_LONGEST_S = 86400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    rows.add_question(parser, top=20)
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=_interval,
        default=2.0,
        help="what each view covers, and the time between two (default: 2)",
    )
    parser.add_argument(
        "-n", "--count", metavar="N", type=rows.count, default=0, help="end after N views"
    )
    parser.add_argument("--once", action="store_true", help="one view, as with --count 1")


def run(arguments: argparse.Namespace) -> int:
    """Show one view each interval; Ctrl-C ends it well."""
    if arguments.since is not None or arguments.until is not None:
        raise UsageError("top shows the present", hint="use opctl report for a range of time")
    if arguments.once:
        arguments.count = 1
    with asking.connect(arguments) as client:
        try:
            if arguments.format == "table" and arguments.count != 1 and sys.stdout.isatty():
                _live(arguments, client)
            else:
                _blocks(arguments, client)
        except KeyboardInterrupt:
            pass  # the usual way to end it
    return 0


def _blocks(arguments: argparse.Namespace, client: Client) -> None:
    """One view after the other, for whoever reads lines."""
    for at, answer in enumerate(_answers(arguments, client)):
        keys, shown = rows.keys_of(answer), rows.with_rows(answer)
        now = rows.time_text(time.time_ns() // 1_000_000_000 * 1_000_000_000)
        if arguments.format == "csv":
            names = ["time", *rows.MEASURES, *keys]
            lines = [{"time": now, **row} for row in shown["rows"]]
            output.print_csv(names, lines, header=at == 0)
        elif arguments.format == "json":
            # A line each, on a terminal too when there is more than one.
            rows.print_report({**shown, "time": now}, "json", keys)
        else:
            if at:
                output.write("")
            rows.print_report(shown, "table", keys)
        output.flush()


def _answers(
    arguments: argparse.Namespace, client: Client, wait: Any = time.sleep
) -> Iterator[dict[str, Any]]:
    params = {**rows.question(arguments), "seconds": arguments.interval}
    shown = 0
    while True:
        began = time.monotonic()
        yield client.call("top", params)
        shown += 1
        if shown == arguments.count:
            return
        wait(max(0.0, began + arguments.interval - time.monotonic()))


def _live(arguments: argparse.Namespace, client: Client) -> None:
    """Draw over the view before; its last one stays on the terminal."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    last: dict[str, Any] | None = None
    with Live(console=console, auto_refresh=False, screen=True) as live, _Resizes() as resizes:

        def draw() -> None:
            if last is not None:
                live.update(_view(last, console.width, console.height), refresh=True)

        def wait(seconds: float) -> None:
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                if resizes.wait(left):
                    draw()

        with contextlib.suppress(KeyboardInterrupt):
            for answer in _answers(arguments, client, wait):
                last = answer
                draw()
    if last is not None:
        title, lines = _lines(last, console.width, console.height)
        for line in (*title, *lines):
            output.write(line[: console.width])


class _Resizes:
    """Waits that end early when the terminal's size changes."""

    def __enter__(self) -> Self:
        self._read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._write = write
        self._fd = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._handler = signal.signal(signal.SIGWINCH, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGWINCH, self._handler)
        signal.set_wakeup_fd(self._fd)
        os.close(self._read)
        os.close(self._write)

    def wait(self, seconds: float) -> bool:
        """Wait; True as soon as a signal came."""
        if not select.select([self._read], [], [], seconds)[0]:
            return False
        os.read(self._read, 4096)
        return True


def _view(answer: Mapping[str, Any], width: int, height: int) -> Any:
    from rich.console import Group
    from rich.text import Text

    title, lines = _lines(answer, width, height)
    styles = [*("dim" for _line in title), "bold", *("" for _line in lines[1:])]
    return Group(
        *(
            Text(line, style=style, no_wrap=True, overflow="ellipsis")
            for line, style in zip([*title, *lines], styles, strict=True)
        )
    )


def _lines(answer: Mapping[str, Any], width: int, height: int) -> tuple[list[str], list[str]]:
    """What stands above the table, and the table, as many rows as fit."""
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
    return title, lines


def _interval(text: str) -> float:
    number = rows.seconds(text)
    if number > _LONGEST_S:
        raise ValueError(text)
    return number


_interval.__name__ = rows.seconds.__name__

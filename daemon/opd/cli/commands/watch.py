"""opctl watch: what the daemon publishes, a line each."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

from opd.cli import asking, output, rows
from opd.cli.commands.status import flat
from opd.errors import NoDaemonError, UnknownNameError, UsageError

if TYPE_CHECKING:
    import argparse

    from opd.query.subscriber import Heard

EXAMPLE = "opctl watch window log\n  opctl watch stats --for 60 --format json"
TOPICS = ("window", "stats", "probe", "log")
_COLUMNS = ("time", "topic", "message")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument(
        "topics",
        metavar="TOPIC",
        nargs="*",
        help="window: a window was stored; stats: what opd has done and cost so far; probe; log:"
        " something went wrong (default: all)",
    )
    parser.add_argument(
        "--for", metavar="SECONDS", dest="seconds", type=rows.seconds, help="end after so long"
    )
    parser.add_argument(
        "-n", "--count", metavar="N", type=rows.count, default=0, help="end after N messages"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print until enough was heard; a daemon that goes away is waited for."""
    from opd.config.nearest import did_you_mean

    if arguments.since is not None or arguments.until is not None:
        raise UsageError("watch shows what happens from now on", hint="--for says for how long")
    for topic in arguments.topics:
        if topic not in TOPICS:
            raise UnknownNameError(
                f"no topic {topic!r}{did_you_mean(topic, TOPICS)}",
                hint=f"there are: {' '.join(TOPICS)}",
            )
    with asking.connect(arguments) as client:
        address, pid = client.call("hello")["pub"], client.daemon_pid
    try:
        return _watch(arguments, address, pid)
    except KeyboardInterrupt:
        return 0  # the usual way to end it


def _watch(arguments: argparse.Namespace, address: str, pid: int) -> int:
    from opd.query.subscriber import Back, Gone, Subscription

    there, heard = True, 0
    if arguments.format == "csv":
        output.print_csv(_COLUMNS, [])
    with Subscription(address, arguments.topics or TOPICS) as subscription:
        for happened in subscription.listen(arguments.seconds):
            if isinstance(happened, Gone):
                if there:
                    state = "does not answer" if happened.hung else "is gone"
                    output.complain(f"opctl: the daemon (pid {pid}) {state}; waiting for it")
                there = False
            elif isinstance(happened, Back):
                if not there and happened.pid:
                    output.complain(f"opctl: a daemon is there again (pid {happened.pid})")
                there, pid = bool(happened.pid), happened.pid or pid
            else:
                _print(happened, arguments.format)
                output.flush()
                heard += 1
                if heard == arguments.count:
                    return 0
    if not there:
        raise NoDaemonError(f"the daemon (pid {pid}) has not come back")
    return 0


def _print(heard: Heard, form: str) -> None:
    now = dt.datetime.now(dt.UTC).astimezone()
    time = now.isoformat(timespec="milliseconds")
    if form == "json":
        # A line each, on a terminal too: they go on.
        output.write(json.dumps({"time": time, "topic": heard.topic, "message": heard.payload}))
    elif form == "csv":
        row = {"time": time, "topic": heard.topic, "message": json.dumps(heard.payload)}
        output.print_csv(_COLUMNS, [row], header=False)
    else:
        text = " ".join(f"{name}={_cell(cell)}" for name, cell in flat(heard.payload))
        line = output.clean(f"{now:%H:%M:%S} {heard.topic:<6} {text}")
        output.write(line[: output.terminal_width()])


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)

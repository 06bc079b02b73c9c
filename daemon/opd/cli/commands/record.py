"""opctl record: a burst at a high rate, beside the running profile."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from typing import TYPE_CHECKING, Any

from opd.cli import asking, output, rows
from opd.cli.progress import ProgressLine

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from opd.query.client import Client
    from opd.recording import Progress

EXAMPLE = """opctl record --pid 4711 --rate 4999 --for 30s --report
  opctl record --comm 'nginx*' --for 1m --name slow-requests
  opctl record --cpus 0-3 -e page-faults --for 10s"""

_POLL_SECONDS = 0.5
_FIRST_SECONDS = 0.1
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
_WHY = {
    "asked": "ended early, as asked",
    "gone": "ended early: the processes have ended",
    "store": "ended early: it grew to its limit",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    whom = parser.add_argument_group("whom (default: all that runs)")
    whom.add_argument(
        "--pid",
        metavar="PID",
        type=_pid,
        action="append",
        help="a process with all that it will make, and nobody else pays; repeatable",
    )
    whom.add_argument(
        "--comm",
        metavar="GLOB",
        action="append",
        help="threads or processes of such names, also those that appear; repeatable",
    )
    whom.add_argument("--cpus", metavar="LIST", help="only what runs on these, such as 0-3,8")
    what = parser.add_argument_group("what")
    what.add_argument(
        "-e",
        "--event",
        metavar="EVENT",
        action="append",
        help="an event as opd takes it (default: cycles:p, else cpu-clock); repeatable",
    )
    what.add_argument(
        "--rate", metavar="HZ", type=rows.count, help="samples a second (default: 4999)"
    )
    what.add_argument(
        "--for",
        metavar="TIME",
        type=_span,
        dest="seconds",
        help="how long, such as 30s or 2m (default: 30s); Ctrl-C ends it and keeps what it has",
    )
    parser.add_argument("--name", metavar="NAME", help="the session's name (default: burst-TIME)")
    parser.add_argument("--report", action="store_true", help="show where the samples are, after")
    parser.add_argument("--list", action="store_true", help="show the daemon's bursts")
    parser.add_argument(
        "--stop",
        metavar="NAME",
        nargs="?",
        const="",
        help="end the running burst, or the one of that name, and keep what it has",
    )


def run(arguments: argparse.Namespace) -> int:
    """Take a burst, here into ``--session-dir`` or by the daemon; or list, or stop."""
    if arguments.list or arguments.stop is not None:
        return _manage(arguments)
    progress = _Progress(arguments)
    try:
        result = (
            _here(arguments, progress) if arguments.session_dir else _there(arguments, progress)
        )
    finally:
        progress.clear()
    if arguments.report:
        with asking.open_source(arguments) as source:
            answer = source.call("report", {"session": result["session"], "top": 20})
        if arguments.format == "table":
            output.write(output.clean(_text(result)))
        rows.print_report(rows.with_rows(answer), arguments.format, rows.keys_of(answer))
        return 0
    where = f" --session-dir {arguments.session_dir}" if arguments.session_dir else ""
    hint = f"opctl{where} report --session {result['session']}"
    text = "\n".join(map(output.clean, (_text(result), hint)))
    output.print_result(result, arguments.format, text)
    return 0


def _params(arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("name", "event", "rate", "seconds", "pid", "comm", "cpus")
    given = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def _there(arguments: argparse.Namespace, progress: _Progress) -> dict[str, Any]:
    """Have the daemon take it, and stay with it: one that nobody follows ends."""
    with asking.connect(arguments) as client:
        burst: dict[str, Any] = client.call("record", _params(arguments))
        session = burst["session"]
        with interrupts() as interrupted:
            while burst["running"]:
                done = burst["progress"]
                progress.tell(done.get("seconds", 0.0), done.get("samples", 0), done.get("lost", 0))
                if interrupted.wait(_POLL_SECONDS if done else _FIRST_SECONDS):
                    _stop(client, session)
                    interrupted.clear()
                burst = client.call("record_poll", {"session": session})
    return dict(burst["result"])


def _stop(client: Client, session: str) -> None:
    client.call("record_stop", {"session": session})


def _here(arguments: argparse.Namespace, progress: _Progress) -> dict[str, Any]:
    from opd.recording import Burst, record

    names = {"event": "events", "pid": "pids", "comm": "comms"}
    given: dict[str, Any] = {
        names.get(name, name): tuple(value) if isinstance(value, list) else value
        for name, value in _params(arguments).items()
    }

    def show(told: Progress) -> None:
        progress.tell(told.seconds, told.samples, told.lost)

    with interrupts() as interrupted:
        return record(Burst(**given), arguments.session_dir, progress=show, stop=interrupted)


@contextlib.contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Ctrl-C sets the event once; a second one, before it was heeded, ends the program."""
    interrupted = threading.Event()

    def note(number: int, frame: Any) -> None:
        if interrupted.is_set():
            signal.default_int_handler(number, frame)
        interrupted.set()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _manage(arguments: argparse.Namespace) -> int:
    with asking.connect(arguments) as client:
        if arguments.stop is not None:
            answer = client.call("record_stop", {"session": arguments.stop or None})
            output.print_result(answer, arguments.format, f"ending {answer['session']}")
            return 0
        answer = client.call("record_list")
    if arguments.format == "json":
        output.print_json(answer)
        return 0
    running = [answer["running"]] if answer["running"] else []
    table = [_row(burst) for burst in (*answer["ended"], *running)]
    names = ("session", "state", "seconds", "samples", "lost", "origin")
    if arguments.format == "csv":
        output.print_csv(list(names), table)
    elif table:
        output.print_table(names, table, right=("seconds", "samples", "lost"))
    else:
        output.write("no burst since the daemon began")
    return 0


def _row(burst: Mapping[str, Any]) -> dict[str, Any]:
    done = burst["result"] or burst["progress"]
    state = "running" if burst["running"] else burst["failed"] or "ended"
    names = ("seconds", "samples", "lost")
    return {
        "session": burst["session"],
        "state": state,
        "origin": burst["origin"] or "asked",
        **{name: done.get(name) for name in names},
    }


def _text(result: Mapping[str, Any]) -> str:
    parts = [f"session {result['session']}: {result['samples']} samples"]
    parts[0] += f" in {result['seconds']:.1f} s"
    parts.append(f"{result['lost']} lost")
    if result["filtered"]:
        parts.append(f"{result['filtered']} of others left out")
    if result["ladder"]:
        first, last = result["ladder"][0], result["ladder"][-1]
        parts.append(f"no {first.partition(' ')[0]} here: {last.rpartition(' ')[2]} instead")
    if why := _WHY.get(result["ended"]):
        parts.append(why)
    if not result["samples"]:
        parts.append("nothing was sampled: it used no CPU, or was missed; record it again")
    return ", ".join(parts)


class _Progress(ProgressLine):
    """How far a burst is."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__()
        self._whole = arguments.seconds or 30.0

    def tell(self, seconds: float, samples: int, lost: int) -> None:
        """Show it."""
        text = f"recording: {seconds:.0f} of {self._whole:g} s, {samples} samples stored"
        text += f", {lost} lost" if lost else ""
        self.show(f"{text} (Ctrl-C ends it)")


def _span(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smh]?)", text.strip())
    if match is None:
        raise ValueError(text)
    return float(match[1]) * _UNITS[match[2]]


_span.__name__ = "time such as 30s or 2m,"  # argparse shows it


def _pid(text: str) -> int:
    pid = int(text)
    if pid <= 0:
        raise ValueError(text)
    return pid


_pid.__name__ = "pid"

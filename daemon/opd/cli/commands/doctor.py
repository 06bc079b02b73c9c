"""opctl doctor: what is off on this machine, and the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import asking, output
from opd.errors import NoDaemonError

if TYPE_CHECKING:
    import argparse

EXAMPLE = "opctl doctor"

_COLUMNS = ("name", "ok", "detail", "remedy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument(
        "--local",
        action="store_true",
        help="look from this process, not from the daemon (so also where none runs)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Ask the daemon, or look from here; print the findings."""
    answer = _findings(arguments)
    findings = answer["findings"]
    if arguments.format == "json":
        output.print_json(answer)
    elif arguments.format == "csv":
        output.print_csv(_COLUMNS, findings)
    else:
        output.write(f"# as seen by {answer['seen_by']}")
        for finding in findings:
            mark = "ok " if finding["ok"] else "OFF"
            output.write(output.clean(f"{mark}  {finding['name']}: {finding['detail']}"))
            if finding["remedy"]:
                output.write(output.clean(f"       remedy: {finding['remedy']}"))
    return 0


def _findings(arguments: argparse.Namespace) -> dict[str, Any]:
    if not arguments.local and arguments.session_dir is None:
        try:
            with asking.connect(arguments) as client:
                return {**client.call("doctor"), "seen_by": f"opd, pid {client.daemon_pid}"}
        except NoDaemonError:
            pass  # it is often the doctor who is asked why there is none
    import msgspec

    from opd.service.capabilities import examine

    return {"findings": msgspec.to_builtins(examine()), "seen_by": "opctl, without a daemon"}

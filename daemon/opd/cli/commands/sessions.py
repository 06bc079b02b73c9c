"""opctl sessions: what a store has, by session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import asking, output

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

EXAMPLE = "opctl --session-dir /var/lib/opd sessions"

_SHOWN = ("name", "kind", "saved", "from", "to", "windows", "samples", "size")
_FIELDS = (
    *("name", "kinds", "saved", "started_ns", "first_ns", "last_ns"),
    *("runs", "windows", "samples", "bytes"),
)


def add_arguments(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    with asking.open_source(arguments) as source:
        answer = source.call("sessions")
    if arguments.format == "json":
        output.print_json(answer)
    elif arguments.format == "csv":
        output.print_csv(
            _FIELDS,
            ({**session, "kinds": ",".join(session["kinds"])} for session in answer["sessions"]),
        )
    else:
        rows = [_for_people(session) for session in answer["sessions"]]
        output.print_table(_SHOWN, rows, right=("windows", "samples", "size"))
    return 0


def _for_people(session: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **session,
        "kind": ",".join(session["kinds"]),
        "saved": "yes" if session["saved"] else "",
        "from": output.moment_text(session["first_ns"]),
        "to": output.moment_text(session["last_ns"]),
        "size": output.size_text(session["bytes"]),
    }

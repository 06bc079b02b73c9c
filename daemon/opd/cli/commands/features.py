"""opctl features: the extended features of the daemon, with options, events and state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import asking, output

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

EXAMPLE = "opctl features\n  opctl features ibs_op"

_COLUMNS = ("name", "state", "plugin", "package", "summary")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="only this one, with its options and events; without, all there are and how they do",
    )


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    with asking.connect(arguments) as client:
        answer = client.call("features", {"name": arguments.name} if arguments.name else {})
    features = answer["features"]
    if arguments.format == "json":
        output.print_json(answer)
    elif arguments.format == "csv":
        output.print_csv(_COLUMNS, map(_row, features))
    elif arguments.name:
        from opd.cli.features import feature_text

        for line in feature_text(features[0]):
            output.write(output.clean(line))
    else:
        output.print_table(_COLUMNS, list(map(_row, features)))
    return 0


def _row(feature: Mapping[str, Any]) -> dict[str, Any]:
    from opd.cli.features import state_text

    if "broken" in feature:
        return {**feature, "name": feature["plugin"], "state": f"broken: {feature['broken']}"}
    return {**feature, "state": state_text(feature)}

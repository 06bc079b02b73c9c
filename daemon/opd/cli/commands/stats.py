"""opctl stats: what the extended features say of themselves, and what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import asking, output

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

EXAMPLE = "opctl stats\n  opctl stats ibs_op --format json\n  opctl --session-dir DIR stats ibs_op"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="only of this feature")
    parser.add_argument(
        "--session",
        metavar="NAME",
        help="what is stored of an imported or earlier session, not of what runs",
    )


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    params = {"name": arguments.name, "session": arguments.session}
    with asking.open_source(arguments) as source:
        answer = source.call("stats", {key: value for key, value in params.items() if value})
    if arguments.format == "json":
        output.print_json(answer)
        return 0
    from opd.cli.commands.status import flat

    if arguments.format == "csv":
        rows = [
            {"feature": feature, "name": name, "value": value}
            for feature, stats in answer["features"].items()
            for name, value in flat(stats)
        ]
        output.print_csv(("feature", "name", "value"), rows)
        return 0
    for feature, stats in answer["features"].items():
        for line in _for_people(feature, stats):
            output.write(output.clean(line))
    return 0


def _for_people(feature: str, stats: Mapping[str, Any]) -> Iterator[str]:
    from opd.cli.features import state_text

    yield f"{feature}: {state_text(stats)}"
    for name, value in stats["own"].items():
        yield f"  {name}: {value}"
    if "hooks" not in stats:
        return  # of a store
    records, files = stats["records"], stats["sample_files"]
    yield f"  records: {records['added']} added, {records['refused']} refused"
    yield f"  sample files: {files['known']} known, {files['dropped']} dropped"
    if stats["skipped_windows"]:
        yield f"  windows skipped in quarantine: {stats['skipped_windows']}"
    for hook, cost in stats["hooks"].items():
        each = cost["wall_ns"] / 1000 / max(cost["calls"], 1)
        line = f"  {hook}: {cost['calls']} calls, {each:.0f} us each,"
        line += f" longest {cost['longest_ns'] / 1000:.0f} us, {cost['cpu_ns'] / 1e6:.1f} ms CPU"
        yield line + (f", {cost['failures']} failed" if cost["failures"] else "")

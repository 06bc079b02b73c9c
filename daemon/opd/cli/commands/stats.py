"""opctl stats: what the extended features say of themselves, and what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import asking, output

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

EXAMPLE = (
    "opctl stats\n  opctl stats ibs_op --format json\n  opctl stats pft\n"
    "  opctl --session-dir DIR stats ibs_op"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="only of this feature or probe")
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
        output.print_json(_document(answer, arguments.name) or answer)
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


def _document(answer: Mapping[str, Any], name: str | None) -> dict[str, Any] | None:
    """What the one feature that was asked for says of itself, where it says all."""
    told: dict[str, Any] = answer["features"].get((name or "").strip().replace("-", "_"), {})
    return told.get("document")


def _for_people(feature: str, stats: Mapping[str, Any]) -> Iterator[str]:
    from opd.cli.features import state_text

    yield f"{feature}: {state_text(stats)}"
    for name, value in stats["own"].items():
        yield f"  {name}: {value}"
    for note in stats.get("notes", ()):
        yield f"  {note}"
    if "probe" in stats:
        yield from _of_probe(stats["probe"])
    if "hooks" not in stats:
        return  # of a store, or of a probe alone
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


def _of_probe(probe: Mapping[str, Any]) -> Iterator[str]:
    """Runs and what they took; figures of the last."""
    if not probe["runs"]:
        yield "  runs: none yet"
        return
    yield (
        f"  runs: {probe['runs']}, {probe['void']} of them void; {probe['comparisons']} of"
        f" comparisons, {probe['scheduled']} scheduled"
    )
    kept = f"{probe['sample_bytes'] / 1024:.0f} KiB of samples kept"
    yield f"  took: {probe['wall_seconds']:.1f} s, {probe['cpu_seconds']:.1f} s CPU; {kept}"
    if void := probe.get("last_void"):
        yield f"  last void: run {void['id']}: {void['reason']}"
    if (last := probe.get("last")) is None:
        return
    yield f"  last: run {last['id']}, {last['origin']}, {output.moment_text(last['started_ns'])}"
    for metric in last["metrics"]:
        low, high = (output.cell_text(metric[name]) for name in ("low", "high"))
        median = output.cell_text(metric["median"])
        yield f"    {metric['name']}: {median} {metric['unit']} ({low} to {high}, n {metric['n']})"
    for note in last["notes"]:
        yield f"    note: {note}"

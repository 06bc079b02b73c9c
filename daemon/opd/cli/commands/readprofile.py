"""opctl readprofile: the profile buffer of profile-hash, as readprofile(8) shows /proc/profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from opd.cli import asking, output
from opd.cli.profilebuffer import (
    Function,
    Profile,
    Row,
    bins_of,
    check_fits,
    counters,
    lines,
    read_map,
    read_words,
    records,
    rows_of,
)
from opd.errors import OperationFailedError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

EXAMPLE = (
    "opctl readprofile --top 20    # of an opd that runs with -x profile-hash\n"
    "  opctl readprofile | sort -nr | head -20\n"
    "  opctl readprofile --raw /tmp/profile && readprofile -p /tmp/profile -m /proc/kallsyms\n"
    "  opctl readprofile -b --format json"
)
_MAP = "/proc/kallsyms"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand: those of readprofile(8), and a few."""
    add = parser.add_argument
    add("-a", "--all", action="store_true", help="all functions, also those without ticks")
    add("-b", "--histbin", action="store_true", help="each slot that has ticks, by function")
    add("-s", "--counters", action="store_true", help="all slots of the functions shown")
    add("-i", "--info", action="store_true", help="only the step: bytes of code a slot")
    add("-v", "--verbose", action="store_true", help="addresses too")
    add(
        "-r",
        "--reset",
        action="store_true",
        help="set all slots to 0 (root or the daemon's own user), and show nothing",
    )
    add("--raw", metavar="FILE", help="write the buffer as /proc/profile would be; - for stdout")
    add("-p", "--profile", metavar="FILE", help="show this buffer of a kernel; asks no daemon")
    add(
        "-m",
        "--mapfile",
        metavar="FILE",
        help=f"a kernel's names from here (System.map, .gz too), not from the daemon;"
        f" with -p the default is {_MAP}",
    )
    add(
        "-n",
        "--no-auto",
        action="store_true",
        help="with -p: the file has this machine's byte order, do not look at its step",
    )
    add("--top", metavar="N", type=int, help="only the N with the most ticks, the most first")


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    _refuse_contradictions(arguments)
    if arguments.reset:
        with asking.connect(arguments) as client:
            result = client.call("readprofile_reset")
        output.print_result(result, arguments.format, "all slots are 0")
        return 0
    about, profile, functions = _of_file(arguments) if arguments.profile else _ask(arguments)
    if arguments.raw is not None:
        _write_raw(arguments.raw, profile)
    elif arguments.info:
        text = f"Sampling_step: {profile.step}"
        output.print_result({"step": profile.step}, arguments.format, text)
    else:
        rows, unknown = rows_of(profile, functions, everything=arguments.all)
        about |= {"shown": len(rows), "unknown": unknown}
        if arguments.top is not None:
            rows = sorted(rows, key=lambda row: -row.ticks)[: arguments.top or None]
        _show(arguments, about, profile, rows)
    return 0


def _refuse_contradictions(arguments: argparse.Namespace) -> None:
    chosen = [name for name in ("reset", "raw", "info") if getattr(arguments, name)]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]}: one at a time")
    if arguments.profile and (arguments.reset or arguments.raw):
        raise UsageError(f"--profile is a file already: no --{chosen[0]}")
    if arguments.no_auto and not arguments.profile:
        raise UsageError("--no-auto is for the file of --profile")
    if arguments.top is not None and arguments.top < 0:
        raise UsageError(f"--top {arguments.top}: expected 0 (all) or more")


def _of_file(arguments: argparse.Namespace) -> tuple[dict[str, Any], Profile, list[Function]]:
    words = read_words(arguments.profile, swap=not arguments.no_auto)
    functions = [] if arguments.info else read_map(arguments.mapfile or _MAP)
    start = functions[0].start if functions else 0
    bins = {slot: ticks for slot, ticks in enumerate(words[1:]) if ticks}
    profile = Profile(start, words[0], len(words) - 1, bins)
    if functions:
        check_fits(arguments.profile, profile, functions)
    return {"what": "kernel", "image": "[kernel]"}, profile, functions


def _ask(arguments: argparse.Namespace) -> tuple[dict[str, Any], Profile, list[Function]]:
    from opd.query import tables

    with asking.connect(arguments) as client:
        bare = arguments.raw is not None or arguments.info or arguments.mapfile is not None
        answer = client.call("readprofile", {"names": not bare, "all": arguments.all and not bare})
    rows = tables.decode(answer["rows"])
    bins = dict(zip(rows["slot"], rows["ticks"], strict=True))
    profile = Profile(answer["start"], answer["step"], answer["length"], bins)
    about = {name: answer[name] for name in ("what", "image", "outside")}
    if bare:
        if arguments.mapfile is None:
            return about, profile, []
        if answer["what"] != "kernel":
            raise UsageError(f"--mapfile names a kernel's functions, not those of {about['image']}")
        return about, profile, _of_this_kernel(arguments.mapfile, profile)
    found = set(_functions(rows))
    if "symbols" in answer:
        found |= set(_functions(tables.decode(answer["symbols"])))
    return about, profile, sorted(found, key=lambda one: (one.start, one.end))


def _of_this_kernel(path: str, profile: Profile) -> list[Function]:
    """A map's functions, if any is where the buffer's code is."""
    functions = read_map(path)
    start, end = functions[0].start, functions[-1].end
    if end <= profile.start or start >= profile.address(profile.length):
        raise UsageError(
            f"{path}: its code is {start:#x}-{end:#x}, the buffer's"
            f" {profile.start:#x}-{profile.address(profile.length):#x}: the kernel is loaded"
            " elsewhere, or it is another's map",
            hint="/proc/kallsyms has it as it is loaded",
        )
    return functions


def _functions(columns: dict[str, Sequence[Any]]) -> Iterator[Function]:
    cells = (columns[name] for name in ("symbol", "symbol_start", "symbol_end"))
    return (Function(*one) for one in zip(*cells, strict=True) if one[0])


def _write_raw(path: str, profile: Profile) -> None:
    if path == "-":
        for words in profile.chunks():
            output.write_bytes(words.tobytes())
        return
    try:
        with Path(path).open("wb") as file:
            for words in profile.chunks():
                file.write(words)
    except OSError as error:
        raise OperationFailedError(f"cannot write {path}: {error.strerror}") from error


def _show(
    arguments: argparse.Namespace, about: dict[str, Any], profile: Profile, rows: Sequence[Row]
) -> None:
    if arguments.format == "csv":
        _show_csv(arguments, profile, rows)
        return
    if arguments.format == "json":
        found = records(
            profile,
            rows,
            bins=arguments.histbin,
            subcounters=arguments.counters,
            everything=arguments.all,
        )
        numbers = {
            "start": profile.start,
            "end": profile.address(profile.length),
            "step": profile.step,
            "ticks": sum(profile.bins.values()),
        }
        output.print_json({**about, **numbers, "rows": found})
        return
    for line in lines(
        profile,
        rows,
        about["unknown"],
        verbose=arguments.verbose,
        bins=arguments.histbin,
        subcounters=arguments.counters,
        everything=arguments.all,
    ):
        # Tabs are readprofile's; of a name nothing else may reach a terminal.
        output.write("\t".join(map(output.clean, line.split("\t"))))


def _show_csv(arguments: argparse.Namespace, profile: Profile, rows: Sequence[Row]) -> None:
    if not (arguments.histbin or arguments.counters):
        plain = records(profile, rows, bins=False, subcounters=False)
        output.print_csv(("ticks", "symbol", "address", "size", "load"), plain)
        return
    slots = [
        {"ticks": ticks, "symbol": row.function.name, "address": address}
        for row in rows
        for address, ticks in (
            counters(profile, row)
            if arguments.counters
            else bins_of(profile, row, everything=arguments.all)
        )
    ]
    output.print_csv(("ticks", "symbol", "address"), slots)

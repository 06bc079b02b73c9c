"""Reports as people and programs see them: rows, made from the wire's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import output
from opd.errors import UsageError
from opd.query import tables

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

MEASURES = ("samples", "weight", "percent", "cores")
NUMBERS = (*MEASURES, "pid", "thread", "cpu")
_COUNT_LIMIT = 1 << 31
_SECONDS_LIMIT = 366 * 86400.0


def add_question(parser: argparse.ArgumentParser, *, top: int) -> None:
    """The options of a report: what to sort by, how much of it, which event."""
    parser.add_argument(
        "--sort",
        metavar="KEYS",
        help="keys with commas: comm, pid, image, symbol, event, mode, cgroup, unit, container,"
        " and what --separate kept: thread, cpu (default: comm,image,symbol)",
    )
    parser.add_argument(
        "--where",
        metavar="EXPRESSION",
        help="only what fits, as in 'comm=ngin* and not (cpu=1 or mode=kernel)': the keys of"
        " --sort with = and !=, numbers also with < <= > >=, joined by and, or, not;"
        " values may hold * ? [a-z]",
    )
    parser.add_argument(
        "--top",
        metavar="N",
        type=count,
        default=top,
        help=f"rows to show, 0 for all (default: {top})",
    )
    parser.add_argument(
        "--without-probes",
        action="store_true",
        help="leave out the windows in which a probe (opctl probe) ran; how many, the quality says",
    )
    parser.add_argument("-e", "--event", metavar="EVENT", help="default: the first one asked for")


def count(text: str) -> int:
    """A number of rows from the command line; ValueError for what is none."""
    number = int(text)
    if not 0 <= number < _COUNT_LIMIT:
        raise ValueError(text)
    return number


count.__name__ = "count (0 to 2147483647)"  # argparse shows it


def seconds(text: str) -> float:
    """A span of seconds from the command line; ValueError for what is none."""
    number = float(text)
    if not 0 < number <= _SECONDS_LIMIT:
        raise ValueError(text)
    return number


seconds.__name__ = "number of seconds, more than 0,"  # argparse shows it


def question(arguments: argparse.Namespace) -> dict[str, Any]:
    """The parameters of a report from ``add_question``'s options. Raises UsageError."""
    from opd.query.protocol import KEYS_LIMIT

    params: dict[str, Any] = {"top": arguments.top}
    if arguments.sort is not None:
        params["sort"] = keys = arguments.sort.split(",")
        if len(keys) > KEYS_LIMIT:
            raise UsageError(f"--sort has {len(keys)} keys; at most {KEYS_LIMIT} are taken")
    for name in ("event", "where"):
        if getattr(arguments, name) is not None:
            params[name] = getattr(arguments, name)
    if arguments.without_probes:
        params["without_probes"] = True
    return params


def with_rows(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer with rows in place of its tables: times as text, ``cores`` always there."""
    shown = dict(answer)
    shown["rows"] = [_row(row) for row in tables.to_rows(answer["rows"])]
    if "buckets" in answer:
        shown["buckets"] = [
            {**row, "time": time_text(int(row["time"]))}
            for row in tables.to_rows(answer["buckets"])
        ]
    return shown


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"time": time_text(row["time"])} if "time" in row else {}
    cores = row.get("cores")
    made |= {name: row[name] for name in ("samples", "weight", "percent")}
    # Not a number: the event's weight is no time.
    made["cores"] = cores if cores is not None and cores == cores else None  # noqa: PLR0124
    return made | {name: cell for name, cell in row.items() if name not in made}


def time_text(time_ns: int) -> str:
    """A moment in ISO 8601, local time with its offset; parts of a second only where there are."""
    import datetime as dt

    moment = dt.datetime.fromtimestamp(time_ns // 1_000_000_000, dt.UTC).astimezone()
    rest = time_ns % 1_000_000_000
    return moment.replace(microsecond=rest // 1000).isoformat()


def print_report(answer: Mapping[str, Any], form: str, keys: list[str]) -> None:
    """A report in one of the three formats; ``answer`` has rows."""
    rows = answer["rows"]
    first = ["time"] if "buckets" in answer else []
    if form == "json":
        output.print_json(answer)
    elif form == "csv":
        output.print_csv([*first, *MEASURES, *keys], rows)
    else:
        for line in header(answer):
            output.write(output.clean(line)[: output.terminal_width()])
        right = (*NUMBERS, *(column["name"] for column in answer.get("extra", ())))
        output.print_table([*first, *_shown_measures(answer), *keys], rows, right=right)


def _shown_measures(answer: Mapping[str, Any]) -> list[str]:
    """The measures that say something of this event: cores of time, else what rows weigh."""
    timed = answer.get("cores") is not None or any(
        row["cores"] is not None for row in answer["rows"]
    )
    if timed or not answer["rows"]:
        return ["samples", "percent", "cores"]
    # Rows stand in order of weight, and percent is of weight: seen only where it is not samples.
    weighed = answer["weight_total"] != answer["total"]
    return ["samples", "percent", "weight"] if weighed else ["samples", "percent"]


def header(answer: Mapping[str, Any]) -> list[str]:
    """What stands above a report's table."""
    event, source = answer["event"], answer["quality"].get("source") or answer["event"]
    what = event if source == event else f"{event} (runs as {source})"
    line = f"# {what}: {answer['total']} samples"
    if answer.get("covered_seconds"):
        line += f" in {output.span_text(answer['covered_seconds'])}"
    if answer.get("cores") is not None:
        line += f", {answer['cores']:.2f} cores"
    if answer.get("where") is not None:
        weight, of = answer["weight_total"], answer["of_weight"]
        line += f", {100 * weight / of if of else 0:.2f} % of all, where {answer['where']}"
    if answer.get("damaged"):
        line += f"; {answer['damaged']} windows of the store are damaged and not in here"
    lines = [line, f"# {output.quality_text(answer['quality'])}"]
    if "buckets" in answer:
        lines.append("# keys: the top of the whole range; percent and cores: of the time in a line")
    return lines


def keys_of(answer: Mapping[str, Any]) -> list[str]:
    """The sort keys of an answer that still has its table, and the event's extra columns."""
    names = [column["name"] for column in answer["rows"]["columns"]]
    return [name for name in names if name not in ("time", *MEASURES)]

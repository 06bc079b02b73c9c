"""Answers from precise samples as people and programs see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import output, rows
from opd.query import tables

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence


def add_question(parser: argparse.ArgumentParser) -> None:
    """The options that mem and branches share."""
    parser.add_argument(
        "--where",
        metavar="EXPRESSION",
        help="only what fits, as in report: comm, pid, image, symbol, mode, cgroup, unit, …",
    )
    parser.add_argument(
        "--top",
        metavar="N",
        type=rows.count,
        default=20,
        help="rows to show, 0 for all (default: 20)",
    )
    parser.add_argument(
        "--session", metavar="NAME", help="an imported or earlier session (default: the latest)"
    )


def question(arguments: argparse.Namespace) -> dict[str, Any]:
    """The parameters of a method from the options."""
    params: dict[str, Any] = {"top": arguments.top}
    for name in ("where", "session", "since", "until"):
        if getattr(arguments, name) is not None:
            params[name] = getattr(arguments, name)
    return params


def with_rows(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer with rows in place of its table; what is not told is None."""
    return {**answer, "rows": [_row(row) for row in tables.to_rows(answer["rows"])]}


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if cell != cell else cell for name, cell in row.items()}  # noqa: PLR0124


def where_from(option: str) -> str:
    """The line of an answer without samples: what keeps them."""
    return (
        f"# none: a running opd keeps them with --ext-feature ibs_op:{option}=true,"
        " opctl import always"
    )


def columns_of(answer: Mapping[str, Any]) -> list[str]:
    """The columns of an answer that still has its table."""
    return [column["name"] for column in answer["rows"]["columns"]]


def print_answer(
    answer: Mapping[str, Any], form: str, shown: Sequence[str], header: Sequence[str]
) -> None:
    """In one of the three formats. ``shown``: the columns of the table for people."""
    names = columns_of(answer)
    made = with_rows(answer)
    if form == "json":
        output.print_json(made)
        return
    if form == "csv":
        output.print_csv(names, made["rows"])
        return
    for line in header:
        output.write(output.clean(line)[: output.terminal_width()])
    kinds = {column["name"]: column["type"] for column in answer["rows"]["columns"]}
    right = [name for name in shown if kinds[name] != "str"]
    table = [
        {name: number(row[name]) if kinds[name] == "f64" else row[name] for name in shown}
        for row in made["rows"]
    ]
    output.print_table(shown, table, right=right)


def number(value: float | None) -> str:
    """A number as a table shows it: four digits that count, never a power of ten."""
    if value is None:
        return "-"
    if value == int(value):
        return str(int(value))
    digits = 4 if abs(value) < 1 else 2 if abs(value) < 1000 else 0
    return f"{value:.{digits}f}"


def trouble(answer: Mapping[str, Any]) -> str:
    """What a header says of a filter, and of what could not be read."""
    text = f", where {answer['where']}" if answer.get("where") is not None else ""
    if answer.get("damaged"):
        text += f"; {answer['damaged']} blocks of the store are damaged and not in here"
    return text


def print_metric(answer: Mapping[str, Any], form: str) -> None:
    """``report --metric``."""
    total = answer["total"]
    divided = f"{' + '.join(answer['numerator'])} / {' + '.join(answer['denominator'])}"
    if answer["unit"] != "share":
        divided = answer["numerator"][0]
    value = "-" if total["value"] is None else number(total["value"])
    line = f"# {answer['metric']}: {value}"
    if total["low"] is not None and total["high"] is not None:
        line += f" ({number(total['low'])} to {number(total['high'])}, 95 %)"
    line += f" {'' if answer['unit'] == 'share' else answer['unit'] + ' '}of n={total['n']} samples"
    line += trouble(answer)
    header = [
        line,
        f"# {answer['meaning']}: {divided}",
        f"# {output.quality_text(answer['quality'])}",
    ]
    if answer.get("counted", 0) > answer.get("in_histogram", 0):
        missing = answer["counted"] - answer["in_histogram"]
        header.append(f"# {missing} samples had no room in the histograms")
    print_answer(answer, form, columns_of(answer), header)

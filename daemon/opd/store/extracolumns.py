"""The extra columns of a feature's event in a report: sums of the events that hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from opd.store.reports import Report

if TYPE_CHECKING:
    import sqlite3

    from opd.store.apart import LeftOut
    from opd.store.reports import ReportQuery, ReportResult
    from opd.store.runs import Run


class ExtraColumn(msgspec.Struct, frozen=True):
    """One extra column: a value for each row of the report."""

    name: str
    unit: str
    values: list[int]


def extra_columns(
    connection: sqlite3.Connection,
    query: ReportQuery,
    runs: list[Run],
    result: ReportResult,
    *,
    left_out: LeftOut | None = None,
) -> list[ExtraColumn]:
    """Those of the report's event, in order of their names; of most events there are none.

    ``left_out``: as the report was asked with.
    """
    prefix = f"{result.event}."
    known = {
        event.name.removeprefix(prefix): event
        for run in runs
        for event in run.info.events
        if event.column and event.name.startswith(prefix)
    }
    return [
        ExtraColumn(
            name,
            event.unit,
            _values(connection, query, runs, result, event.name, left_out=left_out),
        )
        for name, event in sorted(known.items())
    ]


def _values(
    connection: sqlite3.Connection,
    query: ReportQuery,
    runs: list[Run],
    result: ReportResult,
    event: str,
    *,
    left_out: LeftOut | None,
) -> list[int]:
    """The column's event by the same keys, put beside the rows of the report."""
    asked = msgspec.structs.replace(query, event=event, top=0)
    sums = Report(connection, asked, runs, left_out=left_out).answer()
    found = dict(zip(_places(sums), sums.weight, strict=True))
    return [found.get(place, 0) for place in _places(result)]


def _places(result: ReportResult) -> list[tuple[object, ...]]:
    """What tells the rows apart, but for the event."""
    columns: list[list[int] | list[str]] = [
        cells for key, cells in result.keys.items() if key != "event"
    ]
    if result.time_ns is not None:
        columns.append(result.time_ns)
    rows = zip(*columns, strict=True) if columns else [()] * len(result.samples)
    return [tuple(row) for row in rows]

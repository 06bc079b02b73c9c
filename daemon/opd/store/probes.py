"""Measurements by probes: one row each, its raw samples in columns beside it.

A run is noted when it begins, as one that opd ended with; the note of its end
replaces that. Called inside a transaction or a reader's snapshot.
"""

from __future__ import annotations

import json
import zlib
from array import array
from typing import TYPE_CHECKING, Any

import msgspec

from opd.errors import UnknownNameError

if TYPE_CHECKING:
    import sqlite3

RUNS_MOST = 10_000
# Raw samples of all runs; of older ones only the metrics stay.
SAMPLES_BYTES_MOST = 64 << 20
# The schema that brought them.
_SINCE = 4
UNENDED = "opd ended while it ran"
MARK_KIND = "probe"


class ProbeRun(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement. ``ended_ns`` None: it runs, or opd ended with it (``void`` says so).

    ``metrics``: maps of name, unit, median, low, high, cv, n. ``bytes``: its raw
    samples, 0 when they are gone.
    """

    id: int
    probe: str
    parameters: dict[str, Any]
    origin: str
    started_ns: int
    ended_ns: int | None
    machine: dict[str, Any]
    metrics: list[dict[str, Any]]
    verdict: dict[str, Any] | None
    void: str | None
    notes: list[str]
    details: dict[str, Any]
    bytes: int


class ProbeSamples(msgspec.Struct, frozen=True):
    """Raw samples of a metric in order, and of each its repeat. ``worker`` -1: the whole."""

    metric: str
    worker: int
    repeats: array[int]
    values: array[float]


def begin(connection: sqlite3.Connection, params: dict[str, Any]) -> int:
    """Note that a run begins: ``probe``, ``parameters``, ``origin``, ``at_ns``; its number."""
    number = connection.execute(
        "INSERT INTO probe_runs (probe, parameters, origin, started_ns, void)"
        " VALUES (?, ?, ?, ?, ?)",
        (
            params["probe"],
            canonical(params["parameters"]),
            params["origin"],
            params["at_ns"],
            UNENDED,
        ),
    ).lastrowid
    assert number is not None  # noqa: S101 - an INSERT has one
    _mark(connection, params["at_ns"], f"probe {params['probe']} {number} begins")
    return number


def end(connection: sqlite3.Connection, params: dict[str, Any]) -> None:
    """Keep what a run came to: the fields of ProbeRun, and ``samples``.

    ``mark_ns``: where its mark stands, else at its end.
    ``samples``: (metric, worker, repeats as u32, values as f64), little-endian.
    Old runs go beyond the bounds.
    """
    number = params["id"]
    size = 0
    for metric, worker, repeats, values in params["samples"]:
        columns = zlib.compress(repeats, 6), zlib.compress(values, 6)
        size += sum(map(len, columns))
        connection.execute(
            "INSERT OR REPLACE INTO probe_samples VALUES (?, ?, ?, ?, ?)",
            (number, metric, worker, *columns),
        )
    details = zlib.compress(json.dumps(params["details"]).encode())
    connection.execute(
        "UPDATE probe_runs SET started_ns = ?, ended_ns = ?, machine = ?, metrics = ?, verdict = ?,"
        " void = ?, notes = ?, details = ?, bytes = ? WHERE id = ?",
        (
            params["started_ns"],
            params["ended_ns"],
            json.dumps(params["machine"]),
            json.dumps(params["metrics"]),
            None if params["verdict"] is None else json.dumps(params["verdict"]),
            params["void"],
            json.dumps(params["notes"]),
            details,
            size,
            number,
        ),
    )
    at_ns = params.get("mark_ns", params["ended_ns"])
    _mark(connection, at_ns, f"probe {params['probe']} {number} ends")
    _bound(connection)


def judge(connection: sqlite3.Connection, params: dict[str, Any]) -> None:
    """Keep another verdict of an ended run: ``id``, ``verdict``."""
    connection.execute(
        "UPDATE probe_runs SET verdict = ? WHERE id = ?",
        (json.dumps(params["verdict"]), params["id"]),
    )


def _mark(connection: sqlite3.Connection, at_ns: int, text: str) -> None:
    from opd.store.requests import MARKS_MOST

    connection.execute(
        "INSERT INTO marks (at_ns, kind, text) VALUES (?, ?, ?)", (at_ns, MARK_KIND, text)
    )
    connection.execute(
        "DELETE FROM marks WHERE id <= (SELECT max(id) FROM marks) - ?", (MARKS_MOST,)
    )


def _bound(connection: sqlite3.Connection) -> None:
    """Delete runs, and raw samples of runs, that are too many; the oldest go."""
    last = connection.execute("SELECT max(id) FROM probe_runs").fetchone()[0] - RUNS_MOST
    connection.execute("DELETE FROM probe_samples WHERE run <= ?", (last,))
    connection.execute("DELETE FROM probe_runs WHERE id <= ?", (last,))
    held = 0
    for number, size in connection.execute(
        "SELECT id, bytes FROM probe_runs WHERE bytes > 0 ORDER BY id DESC"
    ).fetchall():
        held += size
        if held > SAMPLES_BYTES_MOST:
            connection.execute("DELETE FROM probe_samples WHERE run = ?", (number,))
            connection.execute("UPDATE probe_runs SET bytes = 0 WHERE id = ?", (number,))


_COLUMNS = (
    "id, probe, parameters, origin, started_ns, ended_ns, machine, metrics, verdict, void, notes,"
    " details, bytes"
)


def read_runs(
    connection: sqlite3.Connection,
    version: int,
    *,
    probe: str | None = None,
    since_ns: int | None = None,
    until_ns: int | None = None,
    most: int = 0,
) -> list[ProbeRun]:
    """Runs that began in a range, oldest first; ``most``: only the last so many."""
    if version < _SINCE:
        return []
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM probe_runs WHERE probe = ifnull(?, probe)"  # noqa: S608
        " AND started_ns >= ifnull(?, started_ns) AND started_ns < ifnull(?, started_ns + 1)"
        " ORDER BY id DESC LIMIT ?",
        (probe, since_ns, until_ns, most or -1),
    ).fetchall()
    return [_run(row) for row in reversed(rows)]


def read_run(connection: sqlite3.Connection, version: int, number: int) -> ProbeRun:
    """One run. UnknownNameError: none of that number."""
    row = None
    if version >= _SINCE:
        row = connection.execute(
            f"SELECT {_COLUMNS} FROM probe_runs WHERE id = ?",  # noqa: S608
            (number,),
        ).fetchone()
    if row is None:
        raise UnknownNameError(f"no probe run {number}", hint="opctl probe list shows them")
    return _run(row)


def _run(row: tuple[Any, ...]) -> ProbeRun:
    details = json.loads(zlib.decompress(row[11])) if row[11] is not None else {}
    return ProbeRun(
        id=row[0],
        probe=row[1],
        parameters=json.loads(row[2]),
        origin=row[3],
        started_ns=row[4],
        ended_ns=row[5],
        machine=json.loads(row[6]),
        metrics=json.loads(row[7]),
        verdict=None if row[8] is None else json.loads(row[8]),
        void=row[9],
        notes=json.loads(row[10]),
        details=details,
        bytes=row[12],
    )


class ProbeTotals(msgspec.Struct, frozen=True, kw_only=True):
    """All kept runs of a probe: how many, what they took, the last that has ended.

    ``cpu_s``: of its processes, as far as runs ended well enough to tell. ``void``: that
    are over.
    ``last_void``: the youngest void run and why.
    """

    runs: int
    void: int
    comparisons: int
    scheduled: int
    wall_s: float
    cpu_s: float
    bytes: int
    last: ProbeRun | None
    last_void: tuple[int, str] | None


def read_totals(
    connection: sqlite3.Connection, version: int, probe: str | None = None
) -> dict[str, ProbeTotals]:
    """By probe; of one that never ran there is nothing."""
    if version < _SINCE:
        return {}
    # One runs at a time: of those without an end the latest may still do so.
    is_void = "void IS NOT NULL AND (ended_ns IS NOT NULL OR id < last)"
    rows = connection.execute(
        f"SELECT probe, count(*), sum({is_void}), sum(origin = 'compare'),"  # noqa: S608
        " sum(origin = 'schedule'), sum(ifnull(ended_ns - started_ns, 0)),"
        " sum(ifnull(json_extract(machine, '$.run.own_cpus') *"
        " json_extract(machine, '$.run.seconds'), 0)), sum(bytes),"
        " max(CASE WHEN ended_ns IS NOT NULL THEN id END),"
        f" max(CASE WHEN {is_void} THEN id END)"
        " FROM probe_runs, (SELECT max(id) AS last FROM probe_runs)"
        " WHERE probe = ifnull(?, probe) GROUP BY probe ORDER BY probe",
        (probe,),
    ).fetchall()
    found = {}
    for name, runs, void, compared, scheduled, wall_ns, cpu_s, size, last, last_void in rows:
        worst = None if last_void is None else read_run(connection, version, last_void)
        found[name] = ProbeTotals(
            runs=runs,
            void=void,
            comparisons=compared,
            scheduled=scheduled,
            wall_s=wall_ns / 1e9,
            cpu_s=cpu_s,
            bytes=size,
            last=None if last is None else read_run(connection, version, last),
            last_void=None if worst is None else (worst.id, str(worst.void)),
        )
    return found


def read_samples(connection: sqlite3.Connection, version: int, number: int) -> list[ProbeSamples]:
    """The raw samples of a run."""
    if version < _SINCE:
        return []
    rows = connection.execute(
        "SELECT metric, worker, repeats, cells FROM probe_samples WHERE run = ?"
        " ORDER BY metric, worker",
        (number,),
    )
    return [
        ProbeSamples(
            metric,
            worker,
            array("I", zlib.decompress(repeats)),
            array("d", zlib.decompress(cells)),
        )
        for metric, worker, repeats, cells in rows
    ]


def canonical(parameters: dict[str, Any]) -> str:
    """Parameters in one spelling, to find alike runs by."""
    return json.dumps(parameters, sort_keys=True)

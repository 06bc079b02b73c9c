"""What the server asks of the daemon, and the same answers from a store alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from opd.errors import UsageError
from opd.query import tables
from opd.query.history import marks_answer, range_of, sessions_answer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from opd.query.endpoint import Peer
    from opd.sampling.window import EventInfo
    from opd.store.queries import Reader, ReportResult

DEFAULT_SORT = ("comm", "image", "symbol")
DEFAULT_TOP = 20
NUMBER_KEYS = frozenset({"pid", "thread", "cpu"})
NOT_TIMED = float("nan")  # cores of an event whose weight is no time
LIVE_RANGE_NS = 3600 * 1_000_000_000


class Backend(Protocol):
    """Answers one method each, as plain maps of what msgpack holds.

    Called from several threads at once. Raises OpdError with what the peer
    is told. ``params`` are checked: only known names, ``sort`` a tuple of
    str, ``top`` an int (0: all), ``event``, ``session``, ``since``, ``until``,
    ``where`` and ``per`` str, ``seconds`` a number; what was not asked for is
    not there.
    """

    def hello(self) -> dict[str, Any]:
        """``{"capabilities": {…}}`` and whatever else; the server adds its own part.

        Called on the server's own thread: returns at once.
        """
        ...

    def status(self, params: dict[str, Any]) -> dict[str, Any]:
        """All of the status but ``messages``, which the server adds; ``cost`` if asked for."""
        ...

    def report(self, params: dict[str, Any]) -> dict[str, Any]:
        """``{"event", "total", "weight_total", "rows": table, "quality"}``."""
        ...

    def precise(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """``mem``, ``branches``, ``derive``: ``{"rows": table, "quality", …}``."""
        ...

    def top(self, params: dict[str, Any]) -> dict[str, Any]:
        """As report, of the last ``seconds``."""
        ...

    def sql(self, params: dict[str, Any], peer: Peer | None) -> dict[str, Any]:
        """``{"rows": table, "truncated"}`` of ``query``, or the tables there are.

        One call at a time. It ends when ``peer`` does.
        """
        ...

    def events(self) -> dict[str, Any]:
        """``{"events": [{"name", "source", "unit", "hz", "period", …, "latest"}]}``.

        ``latest``: the session's latest run has it.
        """
        ...

    def features(self, params: dict[str, Any]) -> dict[str, Any]:
        """``{"features": [map]}``: all, or the one ``name``: see docs/protocol.md."""
        ...

    def stats(self, params: dict[str, Any]) -> dict[str, Any]:
        """``{"features": {name: map}}``: statistics, of ``name`` alone if it is given."""
        ...

    def readprofile(self, params: dict[str, Any]) -> dict[str, Any]:
        """``{"start", "step", "length", "rows": table of slots, …}``: see docs/protocol.md."""
        ...

    def readprofile_reset(self) -> dict[str, Any]:
        """Set all slots of the profile buffer to 0: ``{"reset": true}``."""
        ...

    def doctor(self) -> dict[str, Any]:
        """``{"findings": [{"name", "ok", "detail", "remedy"}]}``."""
        ...

    def log(self, params: dict[str, Any]) -> dict[str, Any]:
        """``{"lines": [JSON text]}``: the last ``lines`` of the daemon's log."""
        ...

    def config(self) -> dict[str, Any]:
        """``{"settings": {section: {key: value}}, "sources": {key: file or flag}}``."""
        ...

    def dump(self) -> dict[str, Any]:
        """Returns after every sample taken before the call is in the store."""
        ...

    def start(self) -> dict[str, Any]:
        """Go on sampling: ``{"sampling": true}``."""
        ...

    def stop(self) -> dict[str, Any]:
        """Stop sampling, go on answering: ``{"sampling": false}``."""
        ...

    def sessions(self) -> dict[str, Any]:
        """``{"sessions": [{"name", "kinds", "saved", …}]}``, oldest first."""
        ...

    def marks(self, params: dict[str, Any]) -> dict[str, Any]:
        """``{"marks": [{"id", "at_ns", "kind", "text"}]}`` of ``since`` to ``until``."""
        ...

    def mark(self, params: dict[str, Any]) -> dict[str, Any]:
        """Keep ``text`` as a mark, at the time ``at`` (else now)."""
        ...

    def save(self, params: dict[str, Any]) -> dict[str, Any]:
        """Keep the running session as ``name`` and begin another."""
        ...

    def reset(self) -> dict[str, Any]:
        """Begin the running session anew."""
        ...

    def record(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """``record``, ``record_poll``, ``record_stop``: ``{"session", "running", …}`` of a burst.

        ``record_list``: ``{"running": burst or None, "ended": […]}``.
        """
        ...

    def probe(self, method: str, params: dict[str, Any], peer: Peer | None) -> dict[str, Any]:
        """``probe_run``, ``probe_poll``, …: see docs/protocol.md. ``peer``: who asks."""
        ...

    def shutdown(self) -> dict[str, Any]:
        """Begin to end and return at once; the answer is still sent."""
        ...

    def import_file(self, fd: int, *, name: str, size: int, origin: str) -> dict[str, Any]:
        """Import the ``size`` bytes of ``fd``, a file without a name at offset 0.

        ``fd`` is the server's and closed when this returns. ``name`` and
        ``origin`` may be "".
        """
        ...


def report_answer(reader: Reader, params: dict[str, Any], *, live: bool = False) -> dict[str, Any]:
    """Answer ``report`` from a store.

    ``live``: without a range, the last hour instead of everything. Raises
    UnknownNameError, UsageError for a bad time or an empty range, StoreError.
    """
    from opd.store.buckets import parse_span
    from opd.store.queries import ReportQuery

    now = time.time_ns()
    since, until = range_of(reader, params, now)
    if live and since is None and until is None:
        since = now - LIVE_RANGE_NS
    query = ReportQuery(
        event=params.get("event"),
        sort=params.get("sort", DEFAULT_SORT),
        top=params.get("top", DEFAULT_TOP),
        since_ns=since,
        until_ns=until,
        session=params.get("session"),
        where=params.get("where"),
        per_s=parse_span(params["per"]) if "per" in params else None,
        without_probes=params.get("without_probes", False),
    )
    if "metric" in params:
        if query.without_probes:
            raise UsageError("a metric is of the whole range: leave out --without-probes")
        from opd.query.precise import metric_map

        return metric_map(reader.metric(params["metric"], query))
    return report_map(reader.report(query))


def report_map(result: ReportResult) -> dict[str, Any]:
    """A store's result as it travels; what does not apply is left out."""
    columns = [] if result.time_ns is None else [tables.numbers("time", "u64", result.time_ns)]
    columns += [
        tables.numbers("samples", "u64", result.samples),
        tables.numbers("weight", "u64", result.weight),
        tables.numbers("percent", "f64", result.percent),
    ]
    if result.cores_total is not None or any(cores is not None for cores in result.cores):
        columns.append(
            tables.numbers(
                "cores", "f64", [NOT_TIMED if cores is None else cores for cores in result.cores]
            )
        )
    for name, values in result.keys.items():
        if name in NUMBER_KEYS:
            columns.append(tables.numbers(name, "i64", values))  # type: ignore[arg-type]
        else:
            columns.append(tables.strings(name, values))  # type: ignore[arg-type]
    columns += [tables.numbers(column.name, "u64", column.values) for column in result.extra]
    answer: dict[str, Any] = {
        "event": result.event,
        "total": result.total,
        "weight_total": result.weight_total,
        "rows": tables.table(len(result.samples), columns),
        "quality": result.quality,
        "covered_seconds": result.covered_s,
        "cores": result.cores_total,
    }
    if result.where is not None:
        answer |= {
            "where": result.where,
            "of_total": result.all_total,
            "of_weight": result.all_weight,
        }
    if result.buckets is not None:
        buckets = result.buckets
        answer["buckets"] = tables.table(
            len(buckets.time_ns),
            [
                tables.numbers("time", "u64", buckets.time_ns),
                tables.numbers("covered_seconds", "f64", buckets.covered_s),
                tables.numbers("samples", "u64", buckets.samples),
                tables.numbers("weight", "u64", buckets.weight),
            ],
        )
    if result.extra:
        answer["extra"] = [{"name": column.name, "unit": column.unit} for column in result.extra]
    return answer | {"damaged": result.damaged} if result.damaged else answer


class OfflineBackend:
    """The answers that a session directory gives without a daemon.

    Only those that read it; the rest raise UsageError. Close it after.
    """

    def __init__(self, session_dir: str | os.PathLike[str]) -> None:
        """Open the store; StoreError when there is none or it is too new."""
        from opd.store.queries import open_reader

        self._directory = Path(session_dir)
        self._reader = open_reader(self._directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def call(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Answer ``method`` as a daemon would. Raises as the server answers."""
        from opd.query.methods import check, find

        checked = check(method, find(method), params or {})
        answer = self._answers.get(method)
        if answer is None:
            raise UsageError(
                f"{method} needs a daemon", hint="leave --session-dir out to ask a running one"
            )
        return answer(checked)

    @property
    def _answers(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        reader = self._reader
        return {
            "report": lambda params: report_answer(reader, params),
            "mem": lambda params: _precise(reader, "mem", params),
            "branches": lambda params: _precise(reader, "branches", params),
            "derive": lambda params: _precise(reader, "derive", params),
            "stats": lambda params: _stats(reader, params),
            "sql": self._sql,
            "sessions": lambda _params: sessions_answer(reader),
            "marks": lambda params: marks_answer(reader, params),
            "probe_list": lambda params: _of_probes(reader, "probe_list", params),
            "probe_show": lambda params: _of_probes(reader, "probe_show", params),
            "probe_compare": lambda params: _of_probes(reader, "probe_compare", params),
            "events": lambda _params: events_answer(reader),
        }

    def _sql(self, params: dict[str, Any]) -> dict[str, Any]:
        from opd.query.sql import sql_offline

        return sql_offline(self._directory, self._reader, params)


def _stats(reader: Reader, params: dict[str, Any]) -> dict[str, Any]:
    from opd.query.probestats import stats_answer

    name, session = params.get("name"), params.get("session")
    if session is not None:
        return {"features": reader.feature_stats(name, session)}
    return {"features": stats_answer(reader, name, lambda: reader.feature_stats(name))}


def _of_probes(reader: Reader, method: str, params: dict[str, Any]) -> dict[str, Any]:
    from opd.query.probes import probe_answer

    return probe_answer(reader, method, params)


def _precise(reader: Reader, method: str, params: dict[str, Any]) -> dict[str, Any]:
    from opd.query.precise import precise_answer

    return precise_answer(reader, method, params)


def events_answer(reader: Reader, session: str | None = None) -> dict[str, Any]:
    """``events``: what a session's runs sampled, those of the latest first."""
    rows = reader.events_by_run(session)
    return {"events": [event_map(event) | {"latest": latest} for event, latest in rows]}


def event_map(event: EventInfo) -> dict[str, Any]:
    """An event as it travels."""
    return {
        "name": event.name,
        "source": event.source,
        "unit": event.unit,
        "hz": event.hz,
        "period": event.period,
        "feature": event.feature,
        "column": event.column,
    }

"""``opctl stats`` of a store: what became of the records of features, as windows noted it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from opd.errors import UnknownNameError
from opd.sampling.ibs import split_quality
from opd.store.payloads import has_payloads
from opd.store.reports import Report, ReportQuery, stretches_of
from opd.store.runs import events_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from opd.store.runs import Run


def feature_stats(
    connection: sqlite3.Connection, runs: Sequence[Run], name: str | None = None
) -> dict[str, dict[str, Any]]:
    """By feature: records and what was wrong with them, what was kept, samples by event.

    Raises UnknownNameError for a feature that the session has nothing of.
    """
    events = [event for event in events_of(runs).values() if event.feature]
    features = sorted({event.feature for event in events})
    if name is not None:
        name = name.replace("-", "_")
        if name not in features:
            raise UnknownNameError(
                f"no feature {name!r} in this session; there are: {' '.join(features) or 'none'}"
            )
        features = [name]
    own: dict[str, Counter[str]] = defaultdict(Counter)
    _add_quality(connection, runs, own)
    _add_kept(connection, runs, own)
    samples = _samples(connection, runs)
    return {
        feature: {
            "state": "stored",
            "own": {
                **own[feature],
                **{
                    event.name: samples.get(event.name, 0)
                    for event in events
                    if event.feature == feature and event.name != feature
                },
            },
        }
        for feature in features
    }


def _add_quality(
    connection: sqlite3.Connection, runs: Sequence[Run], own: dict[str, Counter[str]]
) -> None:
    for stretch in stretches_of(runs, None, None, None):
        for (extra,) in connection.execute(
            f"SELECT extra FROM windows WHERE {stretch.where} AND extra IS NOT NULL",  # noqa: S608
            stretch.values,
        ):
            for name, count in msgspec.msgpack.decode(extra).items():
                found = split_quality(name)
                if found is not None:
                    own[found[0]][found[1]] += count


def _add_kept(
    connection: sqlite3.Connection, runs: Sequence[Run], own: dict[str, Counter[str]]
) -> None:
    """What is kept beside the rows. Accesses and branches are of ops."""
    if not has_payloads(connection):
        return
    for stretch in stretches_of(runs, None, None, None):
        for kind, rows, offered, lost in connection.execute(
            "SELECT payloads.kind, sum(payloads.rows), sum(offered), sum(lost)"  # noqa: S608
            " FROM windows JOIN payloads ON payloads.window = windows.id"
            f" WHERE {stretch.where} GROUP BY payloads.kind",
            stretch.values,
        ):
            what, _dot, feature = kind.partition(".")
            if what == "record":
                own[feature]["records_kept"] += rows
            elif what in ("access", "branch"):
                plural = {"access": "accesses", "branch": "branches"}[what]
                own["ibs_op"][plural] += offered
                own["ibs_op"][f"{plural}_lost"] += lost
                if what == "access":
                    own["ibs_op"]["accesses_kept"] += rows


def _samples(connection: sqlite3.Connection, runs: Sequence[Run]) -> dict[str, int]:
    asked = ReportQuery(sort=("event",), top=0)
    answer = Report(connection, asked, runs).answer()
    return dict(zip(map(str, answer.keys["event"]), answer.samples, strict=True))

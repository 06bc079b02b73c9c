"""Answers from a store alone."""

from __future__ import annotations

import pytest

from opd.errors import StoreError, UnknownNameError, UsageError
from opd.query import tables
from opd.query.backend import OfflineBackend, report_answer, report_map
from opd.store.queries import ReportResult


class OneReader:
    """Stands for a store: keeps the query, gives one result."""

    def report(self, query):
        """Keep the query."""
        self.query = query
        return ReportResult(
            event="cycles",
            session="now",
            keys={"pid": [7, -1], "symbol": ["main", "[unknown]"]},
            samples=[3, 1],
            weight=[30, 10],
            percent=[75.0, 25.0],
            cores=[0.5, 0.25],
            total=4,
            weight_total=40,
            all_total=8,
            all_weight=100,
            covered_s=10.0,
            cores_total=0.75,
            quality={"lost": {}},
            damaged=2,
        )


def test_a_result_becomes_columns():
    """Numbers, keys and totals travel; damaged windows are said."""
    answer = report_answer(OneReader(), {})
    assert tables.to_rows(answer["rows"]) == [
        {"samples": 3, "weight": 30, "percent": 75.0, "cores": 0.5, "pid": 7, "symbol": "main"},
        {
            "samples": 1,
            "weight": 10,
            "percent": 25.0,
            "cores": 0.25,
            "pid": -1,
            "symbol": "[unknown]",
        },
    ]
    assert (answer["event"], answer["total"], answer["weight_total"]) == ("cycles", 4, 40)
    assert answer["damaged"] == 2


def test_the_default_range_is_an_hour_live_and_everything_offline():
    """Without a range a live daemon looks back an hour, a store at all it has."""
    reader = OneReader()
    report_answer(reader, {})
    assert (reader.query.since_ns, reader.query.until_ns) == (None, None)
    report_answer(reader, {}, live=True)
    assert reader.query.since_ns is not None
    report_answer(reader, {"until": "now"}, live=True)
    assert reader.query.since_ns is None


def test_a_range_must_have_a_length():
    """A start after the end is the asker's mistake, as is a time that is none."""
    with pytest.raises(UsageError, match="before"):
        report_answer(OneReader(), {"since": "1m", "until": "2m"})
    with pytest.raises(UsageError, match="not a time"):
        report_answer(OneReader(), {"since": "yesterdayish"})


def test_an_undamaged_result_does_not_mention_damage():
    """The contract's keys and what the range covers, no more."""
    result = ReportResult(
        event="e",
        session="s",
        keys={},
        samples=[],
        weight=[],
        percent=[],
        cores=[],
        total=0,
        weight_total=0,
        all_total=0,
        all_weight=0,
        covered_s=0.0,
        cores_total=None,
        quality={},
    )
    assert sorted(report_map(result)) == [
        *("cores", "covered_seconds", "event", "quality", "rows", "total", "weight_total"),
    ]


def test_a_directory_without_a_store_is_an_error(tmp_path):
    """Reading never creates a store."""
    with pytest.raises(StoreError):
        OfflineBackend(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_what_needs_a_daemon_says_so():
    """Only report and events are answered; unknown methods and params as ever."""
    backend = OfflineBackend.__new__(OfflineBackend)
    backend._reader = OneReader()
    assert backend.call("report", {"sort": "comm"})["total"] == 4
    with pytest.raises(UsageError, match="needs a daemon"):
        backend.call("dump")
    with pytest.raises(UnknownNameError):
        backend.call("report", {"srot": "comm"})


def test_what_does_not_fit_the_store_is_a_usage_error():
    """Times beyond 64 bits are refused before the store is asked."""
    for params in ({"since": "99999999999d"}, {"until": "9999-12-31T23:59:59Z"}):
        with pytest.raises(UsageError, match="too far away"):
            report_answer(OneReader(), params)

"""SQL asked of a real daemon."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from opd.store.segments.write import write_segments
from places import BIN

pytest.importorskip("duckdb")

ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"


@pytest.fixture(scope="module")
def daemon(start_daemon):
    """One daemon for all of them."""
    return start_daemon("-e", "cpu-clock:499hz", "--interval", "1")


def sql_child(daemon):
    """The process that answers SQL."""
    for process in psutil.Process(daemon.process.pid).children():
        if Path(f"/proc/{process.pid}/comm").read_text() == "opd-sql\n":
            return process
    return None


def test_sql_and_report_say_the_same(daemon, busy):
    """Samples and weight by symbol, of one moment of the store."""
    subprocess.run([busy, "plain", "0.5"], check=True, capture_output=True)
    daemon.ask("dump")
    daemon.ask("stop")
    daemon.ask("dump")
    report = daemon.ask("report", "--sort", "comm,symbol", "--top", "0", "--since", "1h")
    query = "SELECT comm, symbol, sum(samples) AS n, sum(weight) AS w FROM samples GROUP BY ALL"
    answer = daemon.ask("sql", query)
    daemon.ask("start")
    said = {(row["comm"], row["symbol"]): (row["n"], row["w"]) for row in answer["rows"]}
    assert said == {
        (row["comm"], row["symbol"]): (row["samples"], row["weight"]) for row in report["rows"]
    }
    assert any(symbol == "plain_work" for _comm, symbol in said)


def test_a_segment_of_real_samples_is_no_change(daemon):
    """Asked before and after the hour so far is written."""
    daemon.ask("stop")
    daemon.ask("dump")
    query = "SELECT symbol, mode, sum(samples) AS n FROM samples GROUP BY ALL ORDER BY ALL"
    stacks = (
        "SELECT id, sum(samples) AS n FROM samples JOIN stacks USING (stack)"
        " GROUP BY ALL ORDER BY ALL"
    )
    before = [daemon.ask("sql", one)["rows"] for one in (query, stacks)]
    written = list(write_segments(daemon.store, grace_s=-3600))
    assert written
    assert [daemon.ask("sql", one)["rows"] for one in (query, stacks)] == before
    daemon.ask("start")


def test_the_query_of_an_opctl_that_ends_is_given_up(daemon):
    """The next one does not wait for it."""
    command = [BIN / "opctl", "--endpoint", daemon.endpoint, "sql", ENDLESS, "--seconds", "600"]
    daemon.ask("sql", "SELECT 1")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as asking:
        time.sleep(1.5)
        asking.kill()
    began = time.monotonic()
    assert daemon.ask("sql", "SELECT 2 AS two")["rows"] == [{"two": 2}]
    assert time.monotonic() - began < 60


def test_reports_do_not_wait_for_sql(daemon):
    """Nor does anything else."""
    command = [BIN / "opctl", "--endpoint", daemon.endpoint, "sql", ENDLESS, "--seconds", "8"]
    waiting = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(6)]
    time.sleep(1)
    try:
        assert daemon.ask("report", "--top", "1")["total"] > 0
        assert all(process.poll() is None for process in waiting[1:])
    finally:
        for process in waiting:
            process.kill()
            process.communicate()


def test_a_killed_child_is_an_error_and_the_daemon_goes_on(daemon):
    """Kill -9 in the middle of a query."""
    command = [BIN / "opctl", "--endpoint", daemon.endpoint, "sql", ENDLESS]
    daemon.ask("sql", "SELECT 1")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as asking:
        time.sleep(1.5)
        os.kill(sql_child(daemon).pid, 9)
        _, complaint = asking.communicate(timeout=60)
    assert asking.returncode == 1
    assert "ended by signal 9" in complaint
    assert daemon.ask("sql", "SELECT 3 AS x")["rows"] == [{"x": 3}]


def test_the_child_ends_with_the_daemon(start_daemon):
    """And its folder with it."""
    daemon = start_daemon("-e", "cpu-clock:99hz", "--interval", "1")
    daemon.ask("sql", "SELECT 1")
    child = sql_child(daemon)
    daemon.ask("shutdown")
    daemon.process.wait(30)
    assert not child.is_running()


def test_status_of_the_child_is_in_json(daemon):
    """What it answered and uses."""
    daemon.ask("sql", "SELECT 1")
    status = json.loads(json.dumps(daemon.ask("status")))
    assert status["sql"]["queries"] >= 1
    assert status["segments"]["failed"] == 0

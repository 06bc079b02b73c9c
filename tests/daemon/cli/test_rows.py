"""Reports from a store as people type them: series, filters, cores, CSV."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "tests" / "daemon" / "store"))

from plain_names import PlainNames  # noqa: E402 - as the store's own tests find them
from synthetic import IMAGES, START_NS, make_run, make_window, random_hits  # noqa: E402

from opd.cli.rows import time_text  # noqa: E402
from opd.sampling.window import EventInfo  # noqa: E402
from opd.store.writer import StoreWriter  # noqa: E402

OPCTL = [sys.executable, "-m", "opd.cli.opctl"]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("daemon", "plugins", "native")),
    "TZ": "Asia/Kolkata",
}
IST = dt.timezone(dt.timedelta(hours=5, minutes=30))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Five minutes of windows, one of them with a name that needs quoting."""
    directory = tmp_path_factory.mktemp("store")
    writer = StoreWriter(directory, PlainNames)
    writer.open_run(make_run())
    writer.add_images([(info, None) for info in IMAGES])
    for sequence in range(30):
        hits = random_hits(sequence, rows=10)
        hits.append(hits[0]._replace(comm='a,"b\nc'))
        writer.append(make_window(sequence, hits))
    writer.close()
    return directory


def opctl(store, *words, status=0):
    """Run opctl on the store."""
    done = subprocess.run(
        [*OPCTL, "--session-dir", str(store), "report", *words],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done


def test_a_series_has_times_in_iso_8601(store):
    """Local time with its offset, in JSON, CSV and tables; ascending."""
    words = ("--per", "minute", "--sort", "comm", "--top", "2")
    answer = json.loads(opctl(store, *words, "--format", "json").stdout)
    rows = answer["rows"]
    assert list(rows[0]) == ["time", "samples", "weight", "percent", "cores", "comm"]
    times = [dt.datetime.fromisoformat(row["time"]) for row in rows]
    assert times == sorted(times)
    assert {time.utcoffset() for time in times} == {IST.utcoffset(None)}
    assert times[0].timestamp() * 1e9 == START_NS
    assert [row["time"] for row in answer["buckets"]] == sorted({row["time"] for row in rows})
    assert sum(row["samples"] for row in answer["buckets"]) == answer["total"]
    sheet = list(csv.DictReader(io.StringIO(opctl(store, *words, "--format", "csv").stdout)))
    assert [(row["time"], row["comm"]) for row in sheet] == [
        (row["time"], row["comm"]) for row in rows
    ]
    lines = opctl(store, *words).stdout.splitlines()
    assert [line[0] for line in lines[:3]] == ["#"] * 3
    assert lines[3].split() == ["time", "samples", "percent", "cores", "comm"]
    assert [line.split()[0] for line in lines[4:]] == [row["time"] for row in rows]


def test_a_table_shows_the_measures_that_say_something(tmp_path):
    """Cores of time; of another event its weight, where that is not the samples."""
    writer = StoreWriter(tmp_path, PlainNames)
    events = [
        EventInfo("cpu-clock", "cpu-clock", "ns", hz=99),
        EventInfo("latency", "latency", "cycles"),
        EventInfo("faults", "faults", "count", period=1),
    ]
    writer.open_run(make_run(events=events))
    writer.add_images([(info, None) for info in IMAGES])
    hit = random_hits(1, rows=1)[0]
    hits = [hit._replace(event=at, hits=3, weight=(3000, 700, 3)[at]) for at in range(3)]
    writer.append(make_window(0, hits))
    writer.close()
    expected = {
        "cpu-clock": ["samples", "percent", "cores", "comm"],
        "latency": ["samples", "percent", "weight", "comm"],
        "faults": ["samples", "percent", "comm"],
    }
    for event, names in expected.items():
        header, row = opctl(tmp_path, "-e", event, "--sort", "comm").stdout.splitlines()[2:]
        assert header.split() == names
        assert row.split()[:2] == ["3", "100.00"]
        assert row.split()[-1] == hit.comm
        if "weight" in names:
            assert row.split()[2] == "700"


def test_csv_quotes_what_needs_it(store):
    """A comma, quotes and a newline in a name come back as they were."""
    text = opctl(store, "--sort", "comm", "--top", "0", "--format", "csv").stdout
    assert 'a,"b\nc' in {row["comm"] for row in csv.DictReader(io.StringIO(text))}


def test_a_filter_says_what_it_is_of(store):
    """Total and percent are of what passes; the share of all is in the answer and the header."""
    words = ("--sort", "comm", "--where", "comm=worker1")
    answer = json.loads(opctl(store, *words, "--format", "json").stdout)
    everything = json.loads(opctl(store, "--format", "json").stdout)
    assert [(row["comm"], row["percent"]) for row in answer["rows"]] == [("worker1", 100.0)]
    assert answer["where"] == "comm=worker1"
    assert (answer["of_total"], answer["of_weight"]) == (
        everything["total"],
        everything["weight_total"],
    )
    assert 0 < answer["total"] < answer["of_total"]
    share = 100 * answer["weight_total"] / answer["of_weight"]
    first = opctl(store, *words).stdout.splitlines()[0]
    assert f"{share:.2f} % of all, where comm=worker1" in first
    assert f"{answer['cores']:.2f} cores" in first


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--where", "name=x"), "unknown key 'name'"),
        (("--where", "comm=x and pid=y"), "\n  comm=x and pid=y\n                 ^"),
        (("--where", "cpu=1"), "not separated"),
        (("--where", "comm=\x1b[2J and"), "  comm=?[2J and\n"),
        (("--per", "fortnight"), "valid: second, minute"),
        (("--per", "0s"), "not a span"),
        (("--sort", "comm,unti"), "unit, container"),
    ],
)
def test_what_is_wrong_is_status_2(store, words, said):
    """The token is pointed at, and nothing is on stdout."""
    done = opctl(store, *words, status=2)
    assert said in done.stderr
    assert "\x1b" not in done.stderr
    assert done.stdout == ""


def test_times_keep_parts_of_a_second():
    """A bucket that begins between seconds says so."""
    text = time_text(START_NS + 250_000_000)
    assert dt.datetime.fromisoformat(text).microsecond == 250_000
    assert "." not in time_text(START_NS)

"""opctl sql over a store: formats, where the query comes from, exit statuses."""

from __future__ import annotations

import csv
import io
import json

import pytest
from segment_history import History

from opd.cli.opctl import main

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with some windows."""
    directory = tmp_path_factory.mktemp("store")
    history = History(directory)
    history.add(0)
    history.add(1)
    history.close()
    return directory, history


@pytest.fixture
def opctl(store, capsys):
    """Run opctl on that store: exit status, stdout, stderr."""

    def run(*words):
        status = main(["--session-dir", str(store[0]), *words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_json_has_rows_as_a_report_has(opctl, store):
    """NULL, booleans and lists are JSON's own."""
    query = (
        "SELECT sum(samples) AS n, NULL AS nothing, true AS yes, [1, 2] AS list,"
        " {'a': 'b'} AS map, 'inf'::DOUBLE AS endless, 0.5 AS half FROM samples"
    )
    status, out, err = opctl("sql", query, "--format", "json")
    assert (status, err) == (0, "")
    answer = json.loads(out)
    assert answer["rows"] == [
        {
            "n": store[1].totals()[0],
            "nothing": None,
            "yes": True,
            "list": [1, 2],
            "map": {"a": "b"},
            "endless": None,
            "half": 0.5,
        }
    ]
    assert answer["truncated"] is False


def test_csv_and_table(opctl):
    """Numbers are on the right, small ones keep their digits; NULL is - or nothing."""
    query = "SELECT * FROM (VALUES ('a', 0.00012345, 1), ('b', NULL, 22)) AS t(name, share, n)"
    assert opctl("sql", query)[1].splitlines() == [
        "name       share   n",
        "a     0.00012345   1",
        "b              -  22",
    ]
    rows = list(csv.reader(io.StringIO(opctl("sql", query, "--format", "csv")[1])))
    assert rows == [["name", "share", "n"], ["a", "0.00012345", "1"], ["b", "", "22"]]


def test_a_query_from_stdin_or_a_file(opctl, tmp_path, monkeypatch):
    """- and --file."""
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 42 AS x\n"))
    assert opctl("sql", "-")[1] == " x\n42\n"
    (tmp_path / "query.sql").write_text("SELECT 43 AS x -- é\n")
    assert opctl("sql", "--file", str(tmp_path / "query.sql"))[1] == " x\n43\n"
    status, _, err = opctl("sql", "--file", str(tmp_path / "nowhere.sql"))
    assert status == 2
    assert "nowhere.sql: cannot be read" in err
    status, _, err = opctl("sql", "SELECT 1", "--file", "x")
    assert status == 2
    assert "both a query and --file" in err


def test_without_a_query_the_tables_are_listed(opctl):
    """With what their columns mean."""
    status, out, _ = opctl("sql")
    assert status == 0
    assert out.splitlines()[0].split() == ["table", "column", "type", "meaning"]
    rows = json.loads(opctl("sql", "--format", "json")[1])["rows"]
    assert {"table": "windows", "column": "idle"}.items() <= {
        key: value for row in rows if row["column"] == "idle" for key, value in row.items()
    }.items()


def test_a_cut_answer_says_so_beside_the_table(opctl):
    """On stderr, so that the rows can be used; in JSON with the rest."""
    status, out, err = opctl("sql", "FROM range(10)", "--rows", "3")
    assert (status, len(out.splitlines())) == (0, 4)
    assert "only the first 3 rows" in err
    answer = json.loads(opctl("sql", "FROM range(10)", "--rows", "3", "--format", "json")[1])
    assert (answer["truncated"], answer["limit"], len(answer["rows"])) == (True, "rows", 3)
    assert opctl("sql", "FROM range(20000)", "--rows", "0")[2] == ""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["selec 1"], 'syntax error at or near "selec"'),
        (["SELECT nosuch FROM samples"], 'column "nosuch" not found'),
        (["DROP VIEW samples"], "DROP is not for here"),
        (["SELECT 1; SELECT 2"], "2 statements"),
        (["SELECT 1", "--rows", "2000000"], "at most 1000000"),
        (["SELECT 1", "--rows", "-1"], "--rows"),
        (["SELECT 1", "--seconds", "0"], "seconds, more than 0"),
        (["SELECT 1", "--seconds", "601"], "at most 600"),
        (["SELECT 1", "--since", "yesterdayish"], "not a time"),
        (["SELECT 1", "more"], "unexpected argument 'more'"),
    ],
)
def test_what_is_wrong_with_the_question_is_2(opctl, words, why):
    """With the reason and nothing on stdout."""
    status, out, err = opctl("sql", *words)
    assert (status, out) == (2, "")
    assert why in err


def test_what_cannot_be_done_is_1(opctl):
    """A query over its time."""
    query = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"
    status, out, err = opctl("sql", query, "--seconds", "0.5")
    assert (status, out) == (1, "")
    assert "no answer within 0.5 s" in err


def test_a_range_bounds_what_samples_are(opctl, store):
    """--since and --until on either side of the subcommand."""
    first = json.loads(opctl("sql", "SELECT min(time) AS t FROM samples", "--format", "json")[1])
    since = first["rows"][0]["t"]
    query = "SELECT sum(samples) AS n FROM samples"
    answer = json.loads(opctl("--since", "1990-01-01", "sql", query, "--format", "json")[1])
    assert answer["rows"] == [{"n": store[1].totals()[0]}]
    answer = json.loads(opctl("sql", query, "--until", since, "--format", "json")[1])
    assert answer["rows"] == [{"n": None}]

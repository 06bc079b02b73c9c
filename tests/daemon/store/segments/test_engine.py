"""SQL over segments and the log: every hit once, and nothing but the tables."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter

import pytest
from segment_history import HOUR, START_NS, WINDOW_NS, WINDOWS_AN_HOUR, History
from synthetic import IMAGES, Hit, expected, make_run

from opd.errors import OperationFailedError, UsageError
from opd.query import tables
from opd.store.segments.files import FOLDER, HOUR_NS, list_segments
from opd.store.segments.tables import TABLES, describe
from opd.store.segments.write import write_segments

pytest.importorskip("duckdb")

from opd.store.segments.engine import Engine
from opd.store.segments.talk import Ask


class Sql:
    """An engine that is asked in this process."""

    def __init__(self, directory, spill):
        self.engine = Engine(directory, spill, memory_mib=64, disk_mib=64)

    def answer(self, query, **limits):
        """The whole answer."""
        settings = {"rows": 1000, "seconds": 60.0, "bytes": 1 << 20, **limits}
        return self.engine.answer(Ask(id=1, query=query, **settings))

    def __call__(self, query, **limits):
        """The rows as tuples."""
        rows = tables.to_rows(self.answer(query, **limits)["rows"])
        return [tuple(row.values()) for row in rows]


@pytest.fixture
def history(tmp_path):
    """An empty store."""
    made = History(tmp_path / "store")
    yield made
    made.close()


@pytest.fixture
def sql(history, tmp_path):
    """Asks that store."""
    history.add(0)
    return Sql(history.directory, tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Asks a store with an hour that is a segment and one that is not; it stays as it is."""
    directory = tmp_path_factory.mktemp("shared")
    history = History(directory / "store")
    history.add_hours(1)
    list(write_segments(history.directory))
    history.add_hours(1, first=1)
    history.close()
    sql = Sql(history.directory, directory)
    sql.history = history
    return sql


def change(history, statement):
    """Change the store behind the writer's back."""
    connection = sqlite3.connect(history.directory / "opd.db")
    with connection:
        connection.execute(statement)
    connection.close()


TOTALS = "SELECT sum(samples), sum(weight) FROM samples"


def test_samples_are_those_of_the_log_where_there_is_no_segment(sql, history):
    """By every key, samples and weight are those of the hits."""
    history.add_hours(1)
    keys = ("comm", "pid", "mode", "image", "symbol")
    query = f"SELECT {','.join(keys)}, sum(samples), sum(weight) FROM samples"  # noqa: S608
    got = sql(f"{query} GROUP BY ALL")
    everything = [hit for hits in history.hits.values() for hit in hits]
    wanted = expected(everything, keys)
    assert {tuple(row[:5]): row[5:] for row in got} == wanted


def test_no_row_is_twice_and_none_missing_while_hours_become_segments(sql, history):
    """Asked of the same engine before, between and after."""
    history.add_hours(3)
    assert sql(TOTALS) == [history.totals()]
    writing = write_segments(history.directory)
    for _ in range(3):
        next(writing)
        assert sql(TOTALS) == [history.totals()]
    history.add(3 * WINDOWS_AN_HOUR)
    assert sql(TOTALS) == [history.totals()]
    history.add(1000, start_ns=START_NS + WINDOW_NS)  # late, of an hour that is written
    assert sql(TOTALS) == [history.totals()]
    list(write_segments(history.directory))
    assert sql(TOTALS) == [history.totals()]
    assert sql("SELECT count(*) FROM windows") == [(len(history.hits),)]


def test_what_the_log_forgot_is_in_its_segment(sql, history):
    """Samples, windows and runs."""
    history.add_hours(1)
    list(write_segments(history.directory))
    for statement in ("DELETE FROM blocks", "DELETE FROM windows", "DELETE FROM runs"):
        change(history, statement)
    assert sql(TOTALS) == [history.totals()]
    assert sql("SELECT sum(samples) FROM windows") == [(history.totals()[0],)]
    assert sql("SELECT run, session, host FROM runs") == [("f" * 32, "default", "host")]
    assert sql("SELECT event, hz FROM events") == [("cpu-clock", 99)]


def test_a_segment_that_retention_removed_is_not_missed(sql, history):
    """Its hour is taken from the log where that has it."""
    history.add_hours(2)
    list(write_segments(history.directory))
    assert sql(TOTALS) == [history.totals()]
    list_segments(history.directory)[0].path.unlink()
    assert sql(TOTALS) == [history.totals()]


def test_windows_that_retention_removed_are_gone(sql, history):
    """Also from an engine that had read them."""
    history.add(1)
    assert sql(TOTALS) == [history.totals()]
    change(history, "DELETE FROM blocks WHERE window = 1")
    change(history, "DELETE FROM windows WHERE id = 1")
    assert sql(TOTALS) == [history.totals([1])]


def test_a_file_replaced_under_a_query_is_read_again(sql, history, monkeypatch):
    """The answer is that of one moment."""
    history.add_hours(1)
    list(write_segments(history.directory))
    turns = []
    run = sql.engine._run

    def late(ask):
        answer = run(ask)
        if not turns:
            turns.append(1)
            history.add(1000, start_ns=START_NS + WINDOW_NS)
            list(write_segments(history.directory))
        return answer

    monkeypatch.setattr(sql.engine, "_run", late)
    assert sql(TOTALS) == [history.totals()]


def test_a_session_is_called_what_it_is_called_now(sql, history):
    """In segments written under its old name as in the log."""
    history.add_hours(1)
    list(write_segments(history.directory))
    history.add(WINDOWS_AN_HOUR)
    change(history, "UPDATE sessions SET name = 'kept'")
    assert sql("SELECT session, sum(samples) FROM samples GROUP BY 1") == [
        ("kept", history.totals()[0])
    ]
    assert sql("SELECT DISTINCT session FROM windows") == [("kept",)]


@pytest.mark.parametrize("written", [False, True])
def test_a_range_has_the_windows_that_overlap_it(sql, history, written):
    """Whole windows, from the log or from segments."""
    history.add_hours(3)
    if written:
        list(write_segments(history.directory))
    since = START_NS + 4 * WINDOW_NS + 1
    until = START_NS + 14 * WINDOW_NS
    assert sql(TOTALS, since_ns=since, until_ns=until) == [history.totals(range(4, 14))]
    assert sql(TOTALS, since_ns=since) == [history.totals(range(4, 18))]
    assert sql(TOTALS, until_ns=START_NS + 1) == [history.totals([0])]
    assert sql(TOTALS) == [history.totals()]
    assert sql(TOTALS, since_ns=START_NS + 30 * WINDOW_NS) == [(None, None)]


@pytest.mark.parametrize("written", [False, True])
def test_stacks_join_samples(sql, history, written):
    """Each sample has one stack, whose leaf is its symbol; ids are the same in every hour."""
    history.add_hours(2)
    history.add(2 * WINDOWS_AN_HOUR, history.hits[0])
    if written:
        list(write_segments(history.directory))
    total = history.totals()[0]
    query = (
        "SELECT sum(samples), count_if(frames[1].symbol <> symbol), count_if(depth <> len(frames))"
        " FROM samples JOIN stacks USING (stack)"
    )
    assert sql(query) == [(total, 0, 0)]
    ids = sql("SELECT count(DISTINCT id), count(DISTINCT (frames, folded)) FROM stacks")
    assert ids[0][0] == ids[0][1]
    folded = sql("SELECT folded, frames FROM stacks LIMIT 1")[0]
    symbols = [frame["symbol"] for frame in json.loads(folded[1])]
    assert folded[0] == ";".join(reversed(symbols))


def test_cores_burned_can_be_told(sql, history):
    """Weight of an event in ns over the time of its windows."""
    history.add(1, [Hit(0, "nginx", 1, 0, ((3, 64),), 3, 3 * WINDOW_NS)])
    query = (
        "SELECT comm, sum(weight) / 1e9 / (SELECT sum(seconds) FROM windows) FROM samples"
        " WHERE comm = 'nginx' GROUP BY comm"
    )
    assert sql(query) == [("nginx", 1.5)]


def test_the_small_tables_say_what_the_store_says(sql, history):
    """Runs, sessions, images, events, marks."""
    change(
        history, "INSERT INTO marks (at_ns, kind, text) VALUES (1500000000, 'user', 'it''s 1.42')"
    )
    assert sql("FROM marks") == [("1970-01-01T00:00:01.500000Z", "user", "it's 1.42")]
    assert sql("SELECT session, saved FROM sessions") == [("default", "false")]
    assert sql("SELECT kind, cpus, kernel_release FROM runs") == [("live", 2, "6.1.0")]
    assert sql("SELECT event, source, unit, hz, period FROM events") == [
        ("cpu-clock", "cpu-clock", "ns", 99, None)
    ]
    paths = {image.path for image in IMAGES}
    assert {row[0] for row in sql("SELECT image FROM images")} <= paths
    got = sql("SELECT sequence, epoch_us(time), seconds, samples FROM windows")
    assert got == [(0, START_NS // 1000, 600.0, history.totals()[0])]


def test_an_engine_sees_what_was_stored_since(sql, history):
    """Between two questions."""
    assert sql("SELECT count(*) FROM windows") == [(1,)]
    history.add(1)
    assert sql("SELECT count(*) FROM windows") == [(2,)]
    assert sql(TOTALS) == [history.totals()]


def test_every_documented_column_is_there_with_its_type(shared):
    """As `opctl sql` lists them, so DESCRIBE does."""
    for name, table in TABLES.items():
        got = [(row[0], row[1]) for row in shared(f"DESCRIBE {name}")]
        assert got == [(column, about.type) for column, about in table.columns.items()]
    assert shared("SHOW TABLES") == [(name,) for name in sorted(TABLES)]
    assert len(describe()) == sum(len(table.columns) for table in TABLES.values())


def test_an_answer_that_is_cut_says_so(shared):
    """By rows and by bytes; one that just fits is whole."""
    assert shared.answer("FROM range(5)", rows=5)["truncated"] is False
    cut = shared.answer("FROM range(6)", rows=5)
    assert (cut["truncated"], cut["limit"], cut["rows"]["n"]) == (True, "rows", 5)
    wide = shared.answer("SELECT repeat('x', 1000) FROM range(100)", bytes=10_000)
    assert (wide["truncated"], wide["limit"]) == (True, "bytes")
    assert 0 < wide["rows"]["n"] <= 10


VALUES = [
    ("NULL", None),
    ("1::TINYINT", 1),
    ("(-5)::BIGINT", -5),
    ("18446744073709551615::UBIGINT", 18446744073709551615),
    ("sum(9223372036854775807::BIGINT) FROM range(2)", 18446744073709551614),
    ("170141183460469231731687303715884105727::HUGEINT", "170141183460469231731687303715884105727"),
    ("1.5", 1.5),
    ("2.25::DOUBLE", 2.25),
    ("true", "true"),
    ("'é\t\"'", 'é\t"'),
    ("'\\x00\\xff'::BLOB", "00ff"),
    ("TIMESTAMP '2026-01-02 03:04:05.5'", "2026-01-02T03:04:05.500000Z"),
    ("DATE '2026-01-02'", "2026-01-02"),
    ("[1, NULL]", "[1, null]"),
    ("{'a': 'é', 'b': TIMESTAMP '2026-01-01'}", '{"a": "é", "b": "2026-01-01T00:00:00Z"}'),
    ("MAP {'k': 1.5}", '{"k": 1.5}'),
]


@pytest.mark.parametrize(("expression", "value"), VALUES)
def test_every_type_has_a_form_on_the_wire(shared, expression, value):
    """Numbers as numbers where they fit, times in ISO 8601, nested values as JSON."""
    assert shared(f"SELECT {expression}") == [(value,)]


def test_null_is_told_from_nothing(shared):
    """In numbers and texts."""
    assert shared("SELECT * FROM (VALUES (1, 'a'), (NULL, NULL), (0, ''))") == [
        (1, "a"),
        (None, None),
        (0, ""),
    ]


def test_columns_of_one_name_are_told_apart(shared):
    """A row is a map by name."""
    answer = shared.answer("SELECT 1 AS a, 2 AS a, 3 AS a")
    assert [column["name"] for column in answer["rows"]["columns"]] == ["a", "a_2", "a_3"]


WRONG = [
    ("selec 1", 'syntax error at or near "selec"'),
    ("SELECT nosuch FROM samples", 'Referenced column "nosuch" not found'),
    ("SELECT 1 FROM nosuch", "Table with name nosuch does not exist"),
    ("SELECT 'a'::INTEGER", "Could not convert string 'a'"),
    ("", "no statements"),
    ("-- nothing", "no statements"),
    ("SELECT 1; SELECT 2", "2 statements"),
    ("SELECT ?", "parameters"),
]


@pytest.mark.parametrize(("query", "why"), WRONG)
def test_a_wrong_query_is_the_askers_mistake(shared, query, why):
    """With DuckDB's own words."""
    with pytest.raises(UsageError) as caught:
        shared(query)
    assert why in str(caught.value)


ESCAPES = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/shadow')",
    "SELECT * FROM read_json('/proc/self/environ')",
    "SELECT * FROM read_parquet('/etc/passwd')",
    "SELECT * FROM parquet_metadata('/etc/passwd')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM read_csv('https://example.org/x.csv')",
    "SELECT getenv('HOME')",
    "COPY samples TO '/tmp/escaped.csv'",
    "COPY (SELECT 1) TO '{folder}/escaped.parquet'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/escaped.parquet'",
    "/* x */ explain -- y\n analyze COPY (SELECT 1) TO '{folder}/escaped.parquet'",
    "EXPLAIN (ANALYZE, FORMAT json) COPY (SELECT 1) TO '{folder}/escaped.parquet'",
    "EXPORT DATABASE '{folder}/escaped'",
    "ATTACH '/tmp/escaped.db'",
    "ATTACH ':memory:' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '/tmp/escaped.so'",
    "SET enable_external_access = true",
    "SET memory_limit = '10GB'",
    "RESET lock_configuration",
    "PRAGMA enable_external_access",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "CREATE TABLE escaped AS SELECT 1",
    "CREATE OR REPLACE VIEW samples AS SELECT 1",
    "DROP VIEW samples",
    "DROP TABLE windows",
    "INSERT INTO windows SELECT * FROM windows",
    "DELETE FROM windows",
    "UPDATE marks SET text = 'x'",
    "WITH gone AS (DELETE FROM marks RETURNING *) SELECT * FROM gone",
    "EXPLAIN ANALYZE DELETE FROM windows",
    "BEGIN",
    "COMMIT",
    "CHECKPOINT",
    "PREPARE p AS SELECT 1",
    "SELECT * FROM query('DROP TABLE windows')",
    "SELECT 1; COPY samples TO '/tmp/escaped.csv'",
    "USE internal",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM pandas_scan(1)",
    "SELECT * FROM rows",
    "SELECT * FROM sys",
    "CREATE SECRET s (TYPE s3)",
    "CREATE MACRO m() AS 1",
    "IMPORT DATABASE '/tmp'",
    "VACUUM",
]


@pytest.mark.parametrize("query", ESCAPES)
def test_nothing_but_the_tables_can_be_reached(shared, query):
    """No file, no setting, no extension, no variable, nothing to write."""
    folder = shared.history.directory / FOLDER
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(UsageError):
        shared(query.replace("{folder}", str(folder)))
    assert sorted(path.name for path in folder.iterdir()) == before
    assert shared(TOTALS) == [shared.history.totals()]
    assert shared("SELECT count(*) FROM windows") == [(len(shared.history.hits),)]


HUGE = [
    "SELECT count(DISTINCT a.range * b.range) FROM range(10000000) a, range(1000) b",
    "SELECT list(range) FROM range(1000000000)",
    "SELECT string_agg(range::VARCHAR) FROM range(1000000000)",
]


@pytest.mark.parametrize("query", HUGE)
def test_a_query_that_needs_too_much_is_refused_and_the_next_one_answered(shared, query):
    """With what ran out."""
    with pytest.raises(OperationFailedError, match="needs more than it may have"):
        shared(query)
    assert shared("SELECT 42") == [(42,)]


def test_explain_shows_the_plan(shared):
    """Also with what it took."""
    assert "SCAN" in str(shared("EXPLAIN SELECT * FROM windows")).upper()
    assert shared("EXPLAIN ANALYZE SELECT count(*) FROM windows")


def test_two_runs_and_two_events_are_kept_apart(history, tmp_path):
    """Each with its name."""
    from opd.sampling.window import EventInfo

    history.add(0)
    events = [EventInfo("cycles", "cycles", "count"), EventInfo("faults", "faults", "count")]
    history.writer.open_run(make_run("e" * 32, session="other", events=events))
    history.writer.add_images([(image, None) for image in IMAGES])
    history.add(1, [Hit(1, "x", 5, 0, ((3, 64),), 7, 70), Hit(0, "x", 5, 0, ((3, 64),), 1, 10)])
    sql = Sql(history.directory, tmp_path)
    query = "SELECT session, run, event, sum(samples) FROM samples GROUP BY ALL ORDER BY ALL"
    wanted = [
        ("default", "f" * 32, "cpu-clock", history.totals([0])[0]),
        ("other", "e" * 32, "cycles", 1),
        ("other", "e" * 32, "faults", 7),
    ]
    assert sql(query) == wanted
    list(write_segments(history.directory))
    assert sql(query) == wanted


def test_labels_of_cgroups_are_columns(history, tmp_path):
    """Path, unit and container of a cgroup, in the log and in segments."""
    from synthetic import make_window

    change(
        history,
        "INSERT INTO cgroups (id, path, unit, container) VALUES (5, '/a.slice/n.service',"
        " 'n.service', NULL)",
    )
    from array import array

    from opd.store.blocks import CGROUP, pack, unpack_groups

    history.writer.append(make_window(0, [Hit(0, "n", 1, 0, ((3, 64),), 2, 20)], START_NS))
    connection = sqlite3.connect(history.directory / "opd.db")
    with connection:
        (groups,) = connection.execute("SELECT groups FROM blocks").fetchone()
        columns = unpack_groups(groups)
        columns[CGROUP] = array("B", [5] * len(columns[0]))
        connection.execute("UPDATE blocks SET groups = ?", (pack(columns),))
    connection.close()
    sql = Sql(history.directory, tmp_path)
    query = "SELECT cgroup, unit, container, samples FROM samples"
    wanted = [("/a.slice/n.service", "n.service", None, 2)]
    assert sql(query) == wanted
    list(write_segments(history.directory))
    assert sql(query) == wanted


def test_the_hour_of_a_window_is_that_of_its_start(sql, history):
    """One that reaches into the next hour is in one segment only."""
    history.add(1, start_ns=START_NS + HOUR_NS - WINDOW_NS // 2)
    list(write_segments(history.directory))
    assert [segment.hour for segment in list_segments(history.directory)] == [HOUR]
    counted = Counter(sql("SELECT time FROM samples"))
    assert len(counted) == 2

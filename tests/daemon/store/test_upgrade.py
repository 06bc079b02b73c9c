"""Stores of an earlier schema: read as they are, upgraded by the first writer."""

import gzip
import sqlite3
from itertools import chain

import pytest
from plain_names import PlainNames
from synthetic import IMAGES, START_NS, expected, make_run, make_window, random_hits

from opd.errors import StoreError
from opd.sampling.window import CgroupInfo
from opd.store import database
from opd.store.blocks import CGROUP, unpack_groups
from opd.store.database import open_writer
from opd.store.queries import ReportQuery, open_reader
from opd.store.schema import SCHEMA, VERSION
from opd.store.writer import StoreWriter
from places import DATA

# What the windows of schema1.db.gz were made of.
OLD_HITS = [random_hits(seed, rows=12) for seed in range(13)]
SORT = ("comm", "image", "symbol")


@pytest.fixture
def old(tmp_path):
    """A directory with a store that schema 1's own opd wrote."""
    packed = (DATA / "stores" / "schema1.db.gz").read_bytes()
    (tmp_path / "opd.db").write_bytes(gzip.decompress(packed))
    return tmp_path


def rows_of(result):
    """The rows of a report as a dict."""
    keys = zip(*result.keys.values(), strict=True)
    return dict(zip(keys, zip(result.samples, result.weight, strict=True), strict=True))


def version_of(directory):
    """The schema version in the file."""
    connection = sqlite3.connect(directory / "opd.db")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return version


def test_an_old_store_is_read_as_it_is(old):
    """A reader answers from it, also from its roll-ups, and changes nothing."""
    before = (old / "opd.db").read_bytes()
    with open_reader(old) as reader:
        for sort in (SORT, ("pid",), ("comm", "mode")):
            result = reader.report(ReportQuery(sort=sort, top=0))
            assert rows_of(result) == expected(chain.from_iterable(OLD_HITS), sort)
        assert reader.sessions()[0].windows == len(OLD_HITS)
    assert (old / "opd.db").read_bytes() == before
    assert version_of(old) == 1


def test_the_first_writer_upgrades_it(old):
    """What was there stays, what is new goes beside it; a reader that was open goes on."""
    with open_reader(old) as reader:
        before = rows_of(reader.report(ReportQuery(sort=SORT, top=0)))
        writer = StoreWriter(old, PlainNames)
        assert version_of(old) == VERSION
        assert rows_of(reader.report(ReportQuery(sort=SORT, top=0))) == before
        writer.open_run(make_run(session="live"))
        writer.add_images([(info, None) for info in IMAGES])
        more = [random_hits(seed, rows=12) for seed in range(20, 23)]
        for at, hits in enumerate(more):
            writer.append(make_window(20 + at, hits, START_NS + (200 + at) * 60 * 10**9))
        whole = expected(chain.from_iterable(OLD_HITS + more), SORT)
        assert rows_of(reader.report(ReportQuery(sort=SORT, top=0))) == whole
        writer.close()
    with open_reader(old) as reader:
        assert rows_of(reader.report(ReportQuery(sort=SORT, top=0))) == whole


def test_an_upgraded_store_has_the_tables_of_a_new_one(old, tmp_path):
    """Names and columns of every table and index, whichever way it came to be."""

    def tables(directory):
        connection = sqlite3.connect(directory / "opd.db")
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master ORDER BY name")
        ]
        found = {
            name: sorted(row[1:] for row in connection.execute(f"PRAGMA table_xinfo({name})"))
            for name in names
        }
        vacuum = connection.execute("PRAGMA auto_vacuum").fetchone()
        connection.close()
        return found, vacuum

    open_writer(old).close()
    open_writer(tmp_path / "new").close()
    assert tables(old) == tables(tmp_path / "new")


def test_an_upgrade_that_fails_leaves_the_old_store(old, monkeypatch):
    """All of it or nothing, and the file is still read."""
    broken = {1: "CREATE TABLE half (x); CREATE TABLE half (x)"}
    monkeypatch.setattr(database, "UPGRADES", broken)
    with pytest.raises(StoreError, match=r"opd\.db: cannot open the store: .*half"):
        open_writer(old)
    assert version_of(old) == 1
    with open_reader(old) as reader:
        assert reader.sessions()[0].windows == len(OLD_HITS)


def test_a_reader_refuses_what_became_too_new_under_it(old):
    """A newer opd took the store over while this one had it open."""
    with open_reader(old) as reader:
        connection = sqlite3.connect(old / "opd.db")
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
        connection.close()
        with pytest.raises(StoreError, match=rf"schema {VERSION + 1}, this one reads 1 to"):
            reader.report(ReportQuery())


def test_schema_statements_hold_no_semicolons():
    """They are cut at semicolons, since a script would end the transaction."""
    connection = sqlite3.connect(":memory:")
    for statement in SCHEMA.split(";"):
        assert sqlite3.complete_statement(statement + ";")
        connection.execute(statement)
    connection.close()


def test_cgroups_are_kept_by_number(tmp_path):
    """A path once, whatever uids a run gave it; unknown is 0, also where no column came."""
    writer = StoreWriter(tmp_path, PlainNames)
    hits = random_hits(1, rows=4)
    stored = []
    for run, (uids, paths) in enumerate((((1, 2), ("/a", "/b")), ((7, 9), ("/b", "/a")))):
        writer.open_run(make_run(run=str(run) * 32, session=f"s{run}"))
        writer.add_images([(info, None) for info in IMAGES])
        writer.add_cgroups([CgroupInfo(*pair) for pair in zip(uids, paths, strict=True)])
        window = make_window(run, hits)
        some = [uids[at % 2] if at else 0 for at in range(window.sfiles)]
        window.sfile_cgroup = b"".join(uid.to_bytes(4, "little") for uid in some)
        writer.append(window)
        stored.append([dict(zip(uids, paths, strict=True)).get(uid) for uid in some])
    writer.append(make_window(9, hits))
    writer.close()
    connection = sqlite3.connect(tmp_path / "opd.db")
    paths = dict(connection.execute("SELECT id, path FROM cgroups"))
    blocks = [block for (block,) in connection.execute("SELECT groups FROM blocks ORDER BY window")]
    connection.close()
    assert sorted(paths.values()) == ["/a", "/b"]
    found = [[paths.get(number) for number in unpack_groups(block)[CGROUP]] for block in blocks]
    assert found == [*stored, [None] * len(stored[0])]


def test_a_cgroup_column_of_another_length_is_refused(tmp_path):
    """The error names the column and both lengths."""
    writer = StoreWriter(tmp_path, PlainNames)
    writer.open_run(make_run())
    window = make_window(0, random_hits(1, rows=4))
    window.sfile_cgroup = b"\1\0\0"
    with pytest.raises(StoreError, match="sfile_cgroup has 3 bytes, not"):
        writer.append(window)
    writer.close()

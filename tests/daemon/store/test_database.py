"""Opening stores: new, newer, foreign, read-only."""

import os
import shutil
import sqlite3
import stat
import subprocess

import pytest
from plain_names import PlainNames
from synthetic import IMAGES, make_run, make_window, random_hits

from opd.errors import StoreError
from opd.store.database import WriterLock, open_writer, printable
from opd.store.queries import ReportQuery, open_reader
from opd.store.schema import VERSION
from opd.store.writer import StoreWriter


def test_a_missing_directory_is_made_private(tmp_path):
    """0750 for the directory, 0640 for the file, whatever SQLite would do."""
    directory = tmp_path / "a" / "b"
    open_writer(directory).close()
    assert stat.S_IMODE(directory.stat().st_mode) & 0o027 == 0
    assert stat.S_IMODE((directory / "opd.db").stat().st_mode) & 0o137 == 0


def test_a_newer_schema_is_refused_by_both(tmp_path):
    """The message says both versions."""
    open_writer(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "opd.db")
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    for open_it in (open_writer, open_reader):
        with pytest.raises(
            StoreError, match=rf"newer opd .schema {VERSION + 1}, this one reads 1 to {VERSION}"
        ):
            open_it(tmp_path)


@pytest.mark.parametrize("content", [b"not a database" * 100, None])
def test_a_foreign_file_is_refused(tmp_path, content):
    """Neither garbage nor another program's SQLite file is touched."""
    path = tmp_path / "opd.db"
    if content is None:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE theirs (x)")
        connection.close()
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    for open_it in (open_writer, open_reader):
        with pytest.raises(StoreError, match=r"opd\.db"):
            open_it(tmp_path)
    assert path.read_bytes() == before


def test_a_directory_that_cannot_be_made_is_said(tmp_path):
    """The error names the path."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="file/session"):
        open_writer(tmp_path / "file" / "session")


def test_the_lock_names_its_holder(tmp_path):
    """One exclusive writer; an import beside it may write."""
    writer = StoreWriter(tmp_path, PlainNames, exclusive=True)
    with pytest.raises(StoreError, match=f"pid {os.getpid()}"):
        StoreWriter(tmp_path, PlainNames, exclusive=True)
    beside = StoreWriter(tmp_path, PlainNames)
    for number, one in enumerate((writer, beside)):
        one.open_run(make_run(run=str(number) * 32, session=f"s{number}"))
        one.add_images([(info, None) for info in IMAGES])
    for sequence in range(8):
        writer.append(make_window(sequence, random_hits(sequence)))
        beside.append(make_window(sequence, random_hits(sequence)))
    beside.close()
    writer.close()
    WriterLock(tmp_path).release()
    with open_reader(tmp_path) as reader:
        one, other = (reader.report(ReportQuery(session=name, top=0)) for name in ("s0", "s1"))
        assert (one.keys, one.samples) == (other.keys, other.samples)


@pytest.mark.parametrize("finished", [True, False])
def test_a_read_only_copy_answers(tmp_path, finished):
    """A copy on a read-only mount answers, with or without a log beside it."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    writer = StoreWriter(source, PlainNames)
    writer.open_run(make_run())
    writer.add_images([(info, None) for info in IMAGES])
    writer.append(make_window(0, random_hits(0)))
    if finished:
        writer.close()
    copy.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "opd-test", str(copy)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
    try:
        for path in source.glob("opd.db*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, copy)
        subprocess.run(["mount", "-o", "remount,ro", str(copy)], check=True)
        with open_reader(copy) as reader:
            assert reader.report(ReportQuery()).total == sum(hit.hits for hit in random_hits(0))
    finally:
        subprocess.run(["umount", str(copy)], check=True)
        if not finished:
            writer.close()


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain", "plain"), ("café", "café"), ("caf\udce9", "caf\\xe9"), ("", "")],
)
def test_printable_is_valid_utf8(text, shown):
    """Good text stays; bytes that are no UTF-8 are escaped."""
    assert printable(text) == shown
    printable(text).encode()

"""Names of segments and the list of them."""

from __future__ import annotations

import pytest

from opd.store.segments.files import (
    FOLDER,
    HOUR_NS,
    list_segments,
    remove_unfinished,
    segment_name,
    short_run,
    unfinished_name,
)

RUN = "0123456789abcdef0123456789abcdef"


def put(directory, name, size=5):
    """A file of that name in the folder of segments."""
    folder = directory / FOLDER
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"x" * size)


def test_no_folder_is_no_segments(tmp_path):
    """A store that has none yet has none."""
    assert list_segments(tmp_path) == []


@pytest.mark.parametrize(
    "session", ["live", "deploy 1/42", "../../etc", "a-b-c", "ünï", "", "x" * 300]
)
def test_a_name_is_found_again_with_its_hour_and_size(tmp_path, session):
    """Whatever a session is called, its segment is a plain file of the folder."""
    put(tmp_path, segment_name(session, RUN, 491_000), 7)
    (found,) = list_segments(tmp_path)
    assert found.path.parent == tmp_path / FOLDER
    assert (found.run8, found.hour, found.bytes) == ("01234567", 491_000, 7)
    assert found.start_ns == 491_000 * HOUR_NS
    assert found.end_ns == 491_001 * HOUR_NS


def test_the_oldest_hour_comes_first(tmp_path):
    """By hour, not by name: retention takes from the front."""
    for session, hour in (("a", 12), ("z", 11), ("m", 400_000)):
        put(tmp_path, segment_name(session, RUN, hour))
    assert [segment.hour for segment in list_segments(tmp_path)] == [11, 12, 400_000]


def test_other_files_are_not_segments(tmp_path):
    """Neither what is unfinished nor what somebody else put there."""
    name = segment_name("live", RUN, 5)
    for other in (
        unfinished_name(name),
        "notes.txt",
        "live-01234567-20269999T99.parquet",
        "x.parquet",
    ):
        put(tmp_path, other)
    assert list_segments(tmp_path) == []


def test_what_a_killed_writer_left_is_removed(tmp_path):
    """And nothing else."""
    name = segment_name("live", RUN, 5)
    put(tmp_path, name)
    put(tmp_path, unfinished_name(name))
    assert remove_unfinished(tmp_path) == 1
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == [name]


def test_a_run_that_is_no_number_gets_one():
    """Eight digits, the same each time, so that the name can be read back."""
    assert short_run("my run") == short_run("my run")
    assert len(short_run("my run")) == 8
    assert int(short_run("my run"), 16) >= 0

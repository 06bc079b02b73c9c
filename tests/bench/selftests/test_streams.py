"""Recorded streams and rings, and the sections that are fed with them."""

from __future__ import annotations

import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.harness import cli, native, rings, streams

# Programs are compiled, on a machine that may be busy.
pytestmark = pytest.mark.timeout(600)

LARGEST_FILE = 60_000


@given(st.integers(0, 100_000), st.lists(st.lists(st.integers(0, (1 << 40) - 1), max_size=50)))
def test_a_stream_is_read_back_as_it_was_written(rate, cpus):
    """Every hit of every CPU, in order."""
    stream = streams.Stream("any", rate, cpus)
    assert streams.decode(streams.encode(stream), "any") == stream


@given(st.binary(max_size=60))
def test_any_bytes_are_a_stream_or_a_value_error(data):
    """What cannot be read is told, never another exception."""
    for file in (data, streams.MAGIC + data, streams.MAGIC + zlib.compress(data)):
        with contextlib.suppress(ValueError):
            stream = streams.decode(file, "bytes")
            assert streams.decode(streams.encode(stream), "bytes") == stream


def test_a_stream_that_was_cut_or_has_more_is_refused():
    """Each message says what is wrong."""
    whole = streams.encode(streams.Stream("s", 9, [[16, 32, 16], [48]]))
    plain = zlib.decompress(whole[8:])
    for data, message in (
        (b"OPD", "not a stream of addresses, which begins with OPDADDR1"),
        (whole[:-3], "cut off"),
        (streams.MAGIC + zlib.compress(plain[:-1]), "ends in the middle"),
        (streams.MAGIC + zlib.compress(plain + b"\x00"), "more numbers than it says"),
        (streams.MAGIC + zlib.compress(plain[:-1] + b"\x07"), "an address that it does not list"),
        (streams.MAGIC + zlib.compress(plain[:-1] + b"\x80"), "ends inside a number"),
    ):
        with pytest.raises(ValueError, match=message):
            streams.decode(data, "s")


def test_the_recorded_streams_are_small_and_whole():
    """Each load has one; addresses lie in a kernel's text."""
    found = streams.recorded()
    names = {stream.name for stream in found}
    assert names == {"compile", "faults", "find", "idle", "network", "syscalls"}
    for stream in found:
        assert stream.hits > 500
        assert max(max(cpu) for cpu in stream.cpus) < 1 << 26
        assert (streams.FOLDER / f"{stream.name}.stream").stat().st_size <= LARGEST_FILE


def test_recorded_rings_are_small_and_whole():
    """A file that is none, or is cut off, is refused with a word."""
    files = list(rings.FOLDER.glob("*.rings"))
    assert files
    for path in files:
        data = path.read_bytes()
        assert len(data) <= LARGEST_FILE
        assert rings.unpack(data).startswith(rings.MAGIC)
        with pytest.raises(ValueError, match="x: cut off"):
            rings.unpack(data[:-9], "x")
    with pytest.raises(ValueError, match="x: no recorded rings, which begin with OPDRINGS"):
        rings.unpack(zlib.compress(b"OPDADDR1"), "x")


def test_zipf_streams_are_always_the_same_and_steeper_with_the_exponent():
    """A figure of another day is about the same hits."""
    flat, steep = streams.zipf(0.8, hits=4000), streams.zipf(1.2, hits=4000)
    assert flat == streams.zipf(0.8, hits=4000)
    assert len(steep.slots(4)) < len(flat.slots(4))


@pytest.mark.parametrize(
    ("section", "table"),
    [
        ("hash", "Updates of the shared buffer in 100 hits"),
        ("scale", "One draining thread, ns a sample"),
    ],
)
def test_the_section_runs(section, table, monkeypatch, capsys):
    """Every policy loses no hit, every number of threads finds the same: else it would fail."""
    monkeypatch.setattr(native, "WARNINGS", ("-O0", "-w"))
    assert cli.main([section, "--quick"]) == 0
    assert table in capsys.readouterr().out

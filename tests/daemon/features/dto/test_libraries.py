"""Library files are looked at without being run."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dto_libraries import compiled, source
from opd.errors import UsageError
from opd.features.dto.libraries import Kind, need_functions, read_library

FOUR = ("memcpy", "memmove", "memset", "memcmp")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Give a shared library."""
    return compiled(tmp_path_factory.mktemp("lib"), "libx", source())


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Give an archive of an object with a long name."""
    folder = tmp_path_factory.mktemp("lib")
    made = compiled(folder, "an_object_with_a_very_long_name", source(), kind="o")
    subprocess.run(["ar", "rcs", folder / "libx.a", made], check=True)
    return str(folder / "libx.a")


def test_what_a_library_defines(shared, archive, tmp_path):
    """As nm says; names of others that it uses are not its own."""
    library = read_library(shared)
    assert library.kind is Kind.SHARED
    said = subprocess.run(
        ["nm", "-D", "--defined-only", "-f", "posix", shared],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert library.functions == {line.split()[0] for line in said.splitlines()}
    assert set(FOUR) <= library.functions
    assert read_library(archive).kind is Kind.ARCHIVE
    assert set(FOUR) <= read_library(archive).functions
    single = read_library(compiled(tmp_path, "x", source(compare=False), kind="o"))
    assert single.kind is Kind.OBJECT
    assert "memcmp" not in single.functions


def test_a_function_that_is_not_there_is_named(tmp_path):
    """Only what is needed has to be there."""
    library = read_library(compiled(tmp_path, "libx", source(compare=False)))
    need_functions(library, ["memcpy", "memset"])
    with pytest.raises(UsageError, match="defines no memcmp") as caught:
        need_functions(library, FOUR)
    assert "memcpy memmove memset" in caught.value.hint


def test_a_hidden_function_is_not_there(tmp_path):
    """Nobody outside of a shared library could call it."""
    text = "#pragma GCC visibility push(hidden)\n" + source()
    library = read_library(compiled(tmp_path, "libx", text))
    assert not set(FOUR) & library.functions


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "0 bytes are no library"),
        (b"#!/bin/sh\n", "no ELF file"),
        (b"\x7fELF\x01\x01" + bytes(100), "not of 64 bits"),
        (b"\x7fELF\x02\x01" + bytes(10) + b"\x03\x00\x03\x00" + bytes(80), "made for"),
        (b"!<arch>\n", "without any ELF object"),
        (b"!<arch>\n" + b"x" * 60, "damaged"),
    ],
)
def test_files_that_are_none(tmp_path, content, said):
    """What it is instead is told."""
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=said):
        read_library(str(path))


@pytest.mark.parametrize("path", ["/nowhere", "/dev/zero", "/"])
def test_paths_that_are_no_files(path):
    """A device is not waited for."""
    with pytest.raises(UsageError, match=path):
        read_library(path)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_files_are_told(shared, archive, tmp_path_factory, data):
    """Whatever bytes are changed or cut off, it is a library or an error that says so."""
    content = bytearray(Path(data.draw(st.sampled_from([shared, archive]))).read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(
            st.integers(0, min(len(content) - 1, 4096)) | st.integers(0, len(content) - 1)
        )
        content[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)) | st.just(len(content)))
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(content[:cut])
    with contextlib.suppress(UsageError):
        assert isinstance(read_library(str(path)).kind, Kind)

"""Names and addresses in real ELF files, against nm, readelf and objdump."""

import os
import re
import shutil
import subprocess
from array import array
from pathlib import Path

import pytest
from elf_rule import PROGRAM_FLAGS, Rule, read_symbols

from opd_native.elf import NAMED, NONE, RANGE, Elf
from opd_native.errors import NativeError


def load(path, debug=None):
    """An open file with its symbols."""
    with Path(path).open("rb") as stream:
        elf = Elf(stream.fileno())
    elf.load_symbols(debug)
    return elf


def run(*words):
    """What a program prints."""
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def nm(path, name):
    """Address of a symbol by nm."""
    for line in run("nm", str(path)).splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[2] == name:
            return int(fields[0], 16)
    raise AssertionError(f"nm shows no {name}")


def segments(path):
    """(offset, address, file size, executable) of each PT_LOAD."""
    found = []
    for line in run("readelf", "-lW", str(path)).splitlines():
        fields = line.split()
        if fields[:1] == ["LOAD"]:
            numbers = [int(word, 16) for word in fields[1:6]]
            found.append((numbers[0], numbers[1], numbers[3], "E" in fields[6:8]))
    return found


@pytest.mark.parametrize("way", PROGRAM_FLAGS)
def test_addresses_follow_the_segments(program, way):
    """Each byte of an executable segment has the address that readelf gives it."""
    path = program(way)
    elf = load(path)
    for offset, address, size, executable in segments(path):
        if executable:
            offsets = [offset, offset + size // 2, offset + size - 1]
            expected = [address, address + size // 2, address + size - 1]
            assert list(elf.addresses(offsets)) == expected
    assert list(elf.addresses([1 << 60])) == [1 << 60]


@pytest.mark.parametrize("way", PROGRAM_FLAGS)
def test_build_id_is_that_of_readelf(program, way):
    """The build-id is the one readelf prints, or empty where it prints none."""
    path = program(way)
    found = re.search(r"Build ID: ([0-9a-f]+)", run("readelf", "-nW", str(path)))
    assert load(path).build_id == (found[1] if found else "")


@pytest.mark.parametrize("way", PROGRAM_FLAGS)
def test_every_byte_of_a_program_obeys_the_rule(program, way):
    """The whole text of each build is named as the rule in Python names it."""
    path = program(way)
    elf, rule = load(path), Rule(path)
    checked = 0
    step = 61 if way == "static" else 1
    for start, end in rule.sections.values():
        addresses = range(start, end, step)
        for address, found in zip(addresses, elf.names(addresses), strict=True):
            expected = rule.names(address)
            if expected:
                assert found.kind == NAMED, hex(address)
                assert found.name.decode() in expected, hex(address)
                checked += 1
            elif found.kind == NAMED:
                assert found.name.endswith(b"@plt"), hex(address)
    assert checked > 50


def test_aliases_and_asm_symbols(program):
    """A global name without underscores wins; a label reaches to the next label."""
    path = program("pie")
    elf = load(path)
    start, first, second = (nm(path, n) for n in ("exported", "asm_labels", "asm_second"))
    names = elf.names([start, start + 1, first, first + 3, second, second + 1])
    assert [found.name for found in names] == [
        b"exported", b"exported", b"asm_labels", b"asm_labels", b"asm_second", b"asm_second"
    ]  # fmt: skip


def test_stripped_file_gives_function_ranges(program, tmp_path):
    """Without .symtab a local function is known by its .eh_frame range."""
    path = program("pie")
    stripped = tmp_path / "stripped"
    run("strip", "-s", "-o", str(stripped), str(path))
    start = nm(path, "hidden_static")
    found = load(stripped).names([start, start + 5])
    assert [(one.kind, one.start) for one in found] == [(RANGE, start)] * 2
    assert found[0].end > start


def test_file_without_section_headers_gives_ranges(program, tmp_path):
    """Even when the section headers are gone the ranges are found by .eh_frame_hdr."""
    path = program("pie")
    bare = bytearray(Path(path).read_bytes())
    bare[0x28:0x30] = bytes(8)  # e_shoff
    bare[0x3C:0x3E] = bytes(2)  # e_shnum
    (tmp_path / "bare").write_bytes(bare)
    elf = load(tmp_path / "bare")
    start = nm(path, "hidden_static")
    assert elf.build_id == load(path).build_id
    assert [one.kind for one in elf.names([start])] == [RANGE]
    assert elf.names([start])[0].start == start


@pytest.mark.skipif(shutil.which("objcopy") is None, reason="no objcopy")
def test_debug_file_names_local_functions(program, tmp_path):
    """A stripped file takes the names of its debug file, and keeps its own PLT names."""
    path = program("pie")
    stripped, debug = tmp_path / "stripped", tmp_path / "debug"
    run("strip", "-s", "-o", str(stripped), str(path))
    run("objcopy", "--only-keep-debug", str(path), str(debug))
    with debug.open("rb") as stream, Elf(stream.fileno()) as debug_elf:
        assert debug_elf.build_id == load(path).build_id
        elf = load(stripped, debug_elf)
    debug.unlink()
    assert not elf.has_symtab
    assert elf.names([nm(path, "hidden_static")])[0].name == b"hidden_static"


@pytest.mark.parametrize("way", ["pie", "no_pie", "ibt", "no_build_id"])
def test_plt_stubs_are_named_as_objdump_names_them(program, way):
    """Each stub that objdump labels NAME@plt has that name from its first to its last byte."""
    path = program(way)
    out = run("objdump", "-d", "-j", ".plt", "-j", ".plt.sec", "-j", ".plt.got", str(path))
    labels = re.findall(r"^([0-9a-f]+) <([^*>]+@plt)>:", out, re.MULTILINE)
    labels = [(int(a, 16), n) for a, n in labels if "+0x" not in n and ".plt" not in n]
    assert {"puts@plt", "strlen@plt"} & {name for _address, name in labels}
    elf = load(path)
    for address, name in labels:
        found = elf.names([address, address + 5])
        assert [one.name.decode() for one in found] == [name, name]


def test_versioned_symbols(library):
    """Two versions of a symbol both carry its name, without the version."""
    elf = load(library)
    starts = [s.value for s in read_symbols(library, ".dynsym") if s.name.startswith("call@")]
    assert len(starts) == 2
    stripped = library.with_name("stripped")
    run("strip", "-s", "-o", str(stripped), str(library))
    assert [one.name for one in load(stripped).names(starts)] == [b"call", b"call"]
    assert {one.name for one in elf.names(starts)} <= {b"call", b"old_call", b"new_call"}


def loaded_library(name):
    """Path of a library that this process has mapped."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if re.search(rf"/{name}[^/]*$", line):
            return line.split(maxsplit=5)[5]
    pytest.skip(f"no {name} in this process")
    return None


@pytest.mark.parametrize("name", ["libc", "libpython3", "libm"])
def test_every_function_of_a_system_library(name):
    """At the start and end of each function symbol of a real library the rule holds."""
    path = loaded_library(name)
    elf, rule = load(path), Rule(path)
    assert rule.functions
    by_start = {}
    for symbol in rule.functions:
        by_start.setdefault(symbol.value, symbol)
    addresses = sorted(by_start)[:6000]
    addresses += [by_start[a].value + by_start[a].size - 1 for a in addresses if by_start[a].size]
    # The rule in Python looks at every symbol for every address: take some.
    step = max(1, len(addresses) * len(rule.functions) // 3_000_000)
    for address, found in list(zip(addresses, elf.names(addresses), strict=True))[::step]:
        assert found.kind == NAMED, hex(address)
        assert found.name.decode() in rule.names(address), hex(address)


def test_libc_agrees_with_the_dynamic_linker():
    """An address that dlsym returns has the name that was asked for, or an alias of it."""
    import ctypes

    libc = ctypes.CDLL(None)
    path = loaded_library("libc")
    elf, rule = load(path), Rule(path)
    lines = Path("/proc/self/maps").read_text().splitlines()
    spans = [line.split() for line in lines if line.endswith(path)]
    for name in ("malloc", "qsort", "fopen", "getenv", "pthread_create", "printf"):
        runtime = ctypes.cast(getattr(libc, name), ctypes.c_void_p).value
        for span in spans:
            start, end = (int(word, 16) for word in span[0].split("-"))
            if start <= runtime < end:
                (address,) = elf.addresses([runtime - start + int(span[2], 16)])
                assert elf.names([address])[0].name.decode() in rule.names(address)
                aliases = {s.name for s in rule.functions if s.value == address}
                assert name in aliases


def test_not_an_elf_file(tmp_path):
    """Scripts, empty files and folders are refused with ENOEXEC."""
    (tmp_path / "script").write_text("#!/bin/sh\n")
    (tmp_path / "empty").write_text("")
    for path in (tmp_path / "script", tmp_path / "empty"):
        with path.open("rb") as stream, pytest.raises(NativeError, match="ELF") as caught:
            Elf(stream.fileno())
        assert caught.value.errno == 8
    folder = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(NativeError):
        Elf(folder)
    os.close(folder)


def test_file_truncated_while_open(program, tmp_path):
    """A file cut short under us gives no names and no crash."""
    path = tmp_path / "victim"
    shutil.copy(program("pie"), path)
    elf = load(path)
    start = nm(path, "exported")
    with path.open("r+b") as stream:
        stream.truncate(100)
    assert elf.names([start])[0].kind == NONE
    assert elf.names(array("Q", [start + 4000]))[0].kind == NONE


def test_many_addresses_in_one_call(program):
    """A batch larger than the text buffer comes back whole and in order."""
    path = program("pie")
    elf = load(path)
    start = nm(path, "exported")
    names = elf.names([start, 0] * 20_000)
    assert len(names) == 40_000
    assert names[-2].name == b"exported"
    assert names[-1].kind == NONE
    assert elf.names([]) == []
    assert elf.bytes_held < 100_000


@pytest.mark.parametrize("way", PROGRAM_FLAGS)
def test_functions_by_name_are_where_nm_has_them(program, way):
    """The offset of a function in the file is its address by nm, moved by the segments."""
    path = program(way)
    elf = load(path)
    offset = elf.find_function("main")
    assert list(elf.addresses([offset])) == [nm(path, "main")]
    assert elf.is_code(offset)
    assert not elf.is_code(path.stat().st_size)
    assert not elf.is_code(1 << 64)
    for name in ("no_such_function", "", "a\0b"):
        with pytest.raises(NativeError):
            elf.find_function(name)

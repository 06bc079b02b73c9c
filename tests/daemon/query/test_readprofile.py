"""The profile buffer as it travels: names of slots, in the kernel and in files."""

from __future__ import annotations

import errno
import os
import subprocess
from array import array

import pytest

from opd.errors import OperationFailedError
from opd.features.profile_hash.names import in_file, in_kernel
from opd.features.profilebuffer import BINARY, KERNEL, Buffer, Symbol
from opd.query import tables
from opd.query.readprofile import every_symbol, readprofile_answer, symbols_of
from opd_native.elf import Elf
from opd_native.errors import NativeError
from opd_native.kallsyms import Kallsyms

SOURCE = """
__attribute__((noinline, aligned(64))) int hot(int n) { return n * 3 + 1; }
__attribute__((noinline, aligned(64))) int cold(int n) { return n / 7; }
int main(int argc, char **argv) { return hot(argc) + cold(argc); }
"""
# Two functions with a gap between them that nobody names.
FUNCTIONS = [Symbol("first", 0x1000, 0x1028), Symbol("second", 0x1030, 0x1080)]


def lookup(addresses):
    """The functions of FUNCTIONS, and nothing in between."""
    found = [Symbol("", 0, 0), *FUNCTIONS]
    which = [
        next((at for at, one in enumerate(found) if one.start <= address < one.end), 0)
        for address in addresses
    ]
    return found, array("I", which)


def make(**changed):
    """A buffer of 16-byte slots."""
    values = {"what": KERNEL, "image": "[kernel]", "start": 0x1000, "shift": 4, "length": 8}
    values |= {"slots": [0, 2], "ticks": [5, 1], "outside": 0, "lookup": lookup}
    return Buffer(**values | changed)


def test_a_slot_is_its_first_bytes_or_its_last():
    """0x1020 is of `first`; with 32 bytes a slot, 0x1028 would be too; the gap is nobody's."""
    assert [one.name for one in symbols_of(make())] == ["first", "first"]
    # Slot 0 of this one begins in the gap, and `second` begins before it ends.
    shifted = make(start=0x1028, slots=[0], ticks=[1])
    assert [one.name for one in symbols_of(shifted)] == ["second"]
    within = make(start=0x1028, shift=2, slots=[0, 2], ticks=[1, 1])
    assert [one.name for one in symbols_of(within)] == ["", "second"]


def test_every_symbol_is_listed_once():
    """By address, whether it has ticks or not."""
    assert every_symbol(make()) == FUNCTIONS
    assert every_symbol(make(length=2)) == FUNCTIONS[:1]


def test_an_answer_without_names_needs_no_symbols():
    """The numbers alone: what --raw asks for."""
    answer = readprofile_answer(make(what=BINARY, image="/some/file", outside=3), {})
    assert tables.to_rows(answer["rows"]) == [{"slot": 0, "ticks": 5}, {"slot": 2, "ticks": 1}]
    rest = {key: answer[key] for key in ("start", "step", "length", "ticks", "outside")}
    assert rest == {"start": 0x1000, "step": 16, "length": 8, "ticks": 6, "outside": 3}
    assert "symbols" not in answer


def test_names_that_cannot_be_had_say_why():
    """What the list or the file said, and what does without them."""

    def hidden(_addresses):
        raise NativeError(errno.EACCES, "read kallsyms")

    with pytest.raises(OperationFailedError, match=r"no names of \[kernel\].*ermission") as caught:
        readprofile_answer(make(lookup=hidden), {"names": True})
    assert "--raw" in caught.value.hint
    readprofile_answer(make(lookup=hidden), {})


def test_functions_of_a_file_are_named(tmp_path):
    """ELF addresses of a position-independent program."""
    program = tmp_path / "program"
    compiler = ["cc", "-O1", "-pie", "-fPIE", "-x", "c", "-", "-o", str(program)]
    subprocess.run(compiler, input=SOURCE, text=True, check=True)
    listed = subprocess.run(["nm", str(program)], capture_output=True, text=True, check=True)
    at = {
        line.split()[2]: int(line.split()[0], 16)
        for line in listed.stdout.splitlines()
        if len(line.split()) == 3
    }
    start = min(at["hot"], at["cold"])
    slots = sorted(((at["hot"] - start) >> 4, (at["cold"] - start) >> 4))
    with program.open("rb") as file:
        elf = Elf(file.fileno())  # of use after its file was closed, too
    one = make(what=BINARY, image=str(program), start=start, slots=slots, ticks=[7, 9])
    one = one._replace(lookup=in_file(elf, str(program)))
    rows = tables.to_rows(readprofile_answer(one, {"names": True})["rows"])
    assert {(row["symbol"], row["symbol_start"]) for row in rows} == {
        ("hot", at["hot"]),
        ("cold", at["cold"]),
    }
    assert all(row["symbol_end"] > row["symbol_start"] for row in rows)


def test_functions_of_the_kernel_are_named():
    """By the list that opd itself uses; with `all` its every text symbol of the range."""
    if os.geteuid() != 0:
        pytest.skip("addresses of the kernel are root's")
    try:
        text = Kallsyms().text
    except NativeError as error:
        pytest.skip(str(error))
    one = make(start=text.stext, length=4096, slots=[100], ticks=[1], lookup=in_kernel(Kallsyms))
    answer = readprofile_answer(one, {"names": True, "all": True})
    [row] = tables.to_rows(answer["rows"])
    assert row["symbol"]
    assert row["symbol_start"] <= text.stext + 1600 < row["symbol_end"]
    every = tables.to_rows(answer["symbols"])
    starts = [symbol["symbol_start"] for symbol in every]
    assert len(every) > 10
    assert starts == sorted(starts)
    assert row["symbol"] in {symbol["symbol"] for symbol in every}

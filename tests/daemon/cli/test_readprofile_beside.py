"""opctl readprofile beside util-linux's readprofile(8), on the same files, option by option."""

from __future__ import annotations

import itertools
import shutil
import struct
import subprocess

import pytest

from opd.cli import opctl

PROGRAM = shutil.which("readprofile") or shutil.which("readprofile", path="/usr/sbin")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no readprofile(8) here (util-linux-extra)")

STEP = 16
# _stext first, then functions of 1 to 20 slots; nothing of them is hit in its last slot,
# which readprofile counts to the next function.
MAP = """\
ffffffff81000000 T _stext
ffffffff81000020 t startup
ffffffff81000040 t idle_loop
ffffffff81000100 W weak_copy
ffffffff81000180 t one_slot
ffffffff81000190 T last_one
ffffffff81000200 T _etext
"""
BINS = {0: 3, 4: 10, 7: 2, 14: 1, 16: 70000, 25: 1, 29: 8}
NO_TOTAL = "  total\t\t\t\t0"
FLAGS = [flags for n in range(5) for flags in itertools.combinations(("-a", "-b", "-s", "-v"), n)]


def write(tmp_path, *, names=MAP, bins=BINS, length=32):
    """The files of both, as options."""
    path, buffer = tmp_path / "map", tmp_path / "profile"
    path.write_text(names)
    words = [STEP, *(bins.get(slot, 0) for slot in range(length))]
    buffer.write_bytes(struct.pack(f"={len(words)}I", *words))
    return ["-p", str(buffer), "-m", str(path)]


@pytest.fixture
def both(capsys):
    """The lines of each for the same words."""

    def run(*words):
        assert opctl.main(["readprofile", *words]) == 0
        ours = capsys.readouterr().out
        done = subprocess.run(
            [PROGRAM, *words], capture_output=True, text=True, check=True, timeout=60
        )
        return ours.splitlines(), done.stdout.splitlines()

    return run


def without_last_slots(lines):
    """Without the last line of each row's slots, which readprofile leaves out with -s."""
    kept = []
    for line, following in itertools.zip_longest(lines, lines[1:], fillvalue=""):
        if not (line.startswith("\t") and not following.startswith("\t")):
            kept.append(line)
    return kept


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_lines_are_the_same(both, tmp_path, flags):
    """But for the differences that docs/readprofile.md has."""
    ours, theirs = both(*write(tmp_path), *flags)
    ours = [line for line in ours if line != NO_TOTAL]
    theirs = [line for line in theirs if line != NO_TOTAL]
    if "-b" in flags and "-a" in flags:
        # A function's last slot stands with the next function there; the buffer's with none.
        slots = [line for line in ours if line.startswith("\t")]
        assert slots[:-1] == [line for line in theirs if line.startswith("\t")]
        ours = [line for line in ours if not line.startswith("\t")]
        theirs = [line for line in theirs if not line.startswith("\t")]
        ours.remove("one_slot:")  # its only slot is its last
        theirs = [line for line in theirs if line != "one_slot:"]
    elif "-s" in flags and "-b" not in flags:
        ours = without_last_slots(ours)
    assert ours == theirs


def test_the_step_is_the_same(both, tmp_path):
    """Alone, whatever else is asked."""
    for flags in ((), ("-v",), ("-a", "-b")):
        ours, theirs = both(*write(tmp_path), "-i", *flags)
        assert ours == theirs == ["Sampling_step: 16"]


def test_of_two_names_of_an_address_each_takes_its_own(both, tmp_path):
    """The map's first here, its last there."""
    names = MAP.replace(
        "ffffffff81000100 W weak_copy",
        "ffffffff81000100 W first_name\nffffffff81000100 t other_name",
    )
    ours, theirs = both(*write(tmp_path, names=names))
    assert "70000 first_name" in "\n".join(ours)
    assert [line.replace("first_name", "other_name") for line in ours] == theirs


def test_a_hit_in_a_functions_last_slot_is_the_next_ones_there(both, tmp_path):
    """And the buffer's last slot is theirs of nobody."""
    ours, theirs = both(*write(tmp_path, bins={15: 5, 31: 2}))
    assert [line.split()[:2] for line in ours] == [
        ["5", "idle_loop"],
        ["2", "last_one"],
        ["0", "*unknown*"],
        ["7", "total"],
    ]
    assert [line.split()[:2] for line in theirs] == [
        ["5", "weak_copy"],
        ["2", "*unknown*"],
        ["5", "total"],
    ]


def test_a_buffer_that_was_cut_short_is_refused_by_both(capsys, tmp_path):
    """By the map it ends too early."""
    words = write(tmp_path, length=20)
    assert opctl.main(["readprofile", *words]) == 2
    said = capsys.readouterr().err
    assert "20 slots of 16 bytes end at 0xffffffff81000140" in said
    assert "it was cut short" in said
    done = subprocess.run([PROGRAM, *words], capture_output=True, check=False, timeout=60)
    assert done.returncode == 1


def test_lines_that_are_no_text_end_a_map_there_and_are_passed_by_here(both, tmp_path):
    """Functions behind it are named here."""
    names = MAP.replace("ffffffff81000100 W", "ffffffff81000100 D datum\nffffffff81000100 W")
    ours, theirs = both(*write(tmp_path, names=names))
    assert any("weak_copy" in line for line in ours)
    assert not any("weak_copy" in line for line in theirs)

"""docs/events.md: its examples are right."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from events_files import write_type

from opd.cli.opd import main
from opd.events import Catalogue, parse_event
from opd.events.cpuevents import load
from opd.events.cputype import known_types, search_path

MANUAL = (Path(__file__).parents[3] / "docs" / "events.md").read_text()
BLOCKS = re.findall(r"(?ms)^```\n(.*?)^```$", MANUAL)


def specs():
    """Every SPEC of the examples that needs no file of this machine."""
    for line in BLOCKS[0].splitlines():
        words = shlex.split(line)
        for flag, word in pairwise(words):
            if flag == "-e" and not word.startswith(("uprobe:", "sched:")):
                yield word


@pytest.mark.parametrize("spec", list(specs()))
def test_each_event_of_the_examples_is_understood(spec, tmp_path):
    """On a Zen."""
    catalogue = Catalogue(cpu_type="x86-64/family19")
    assert parse_event(spec, catalogue=catalogue, proc=str(tmp_path), sysfs=str(tmp_path))


def test_the_files_of_the_manual_are_read(tmp_path):
    """Both blocks as they stand."""
    events = next(block for block in BLOCKS if block.startswith("include:"))
    masks = next(block for block in BLOCKS if block.startswith("name:dtlb_miss"))
    masks = "include:x86-64/ibs-zen\n" + masks.replace("0xff", "0x11")
    folder = write_type(tmp_path, "manual", events=events, masks=masks)
    by_name = load("manual", search_path(folder)).by_name
    assert by_name["L1_DTLB_MISS"][0].mask.choose("miss_4k") == (0x10, 0)
    assert by_name["IBS_OP_DATA_CACHE_MISS"][-1].ext == "ibs_op"


def test_the_six_events_of_the_manual(capsys):
    """The command prints what the manual shows."""
    block = next(block for block in BLOCKS if block.startswith("$ opd"))
    command, _, shown = block.rpartition("\n0 ")
    words = shlex.split(command.replace("\\\n", " ").removeprefix("$ opd "))
    assert main(words) == 0
    assert capsys.readouterr().out == f"0 {shown}"


def test_every_type_is_in_the_manual():
    """The table lists what opd brings."""
    table = MANUAL.partition("## CPU types")[2]
    for name in known_types(search_path()):
        family = name.removeprefix("x86-64/family")
        assert f"`{name}`" in table or f"`{family}`" in table, name

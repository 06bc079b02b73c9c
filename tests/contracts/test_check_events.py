"""The contract of ``opd --check-events``: tokens, counter map, exits, wherever flags stand."""

import json
import os
import subprocess

import pytest

from places import BIN

SIX = [
    *("CPU_CLK_UNHALTED:100000", "IBS_FETCH_ALL:100000", "IBS_OP_ALL:100000"),
    *("RETIRED_INSTRUCTIONS:100000", "DATA_CACHE_MISSES:100000", "DATA_CACHE_ACCESSES:100000"),
]
FAMILY10 = ["--cpu-type", "x86-64/family10"]


def opd(*arguments, **environ):
    """Run the program; the finished process."""
    return subprocess.run(
        [BIN / "opd", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
        timeout=60,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--check-events", *SIX, *FAMILY10],
        [*FAMILY10, "--check-events", *SIX],
        ["--check-events", *SIX[:3], *FAMILY10, *SIX[3:]],
        [*SIX[:1], "--check-events", *SIX[1:4], *FAMILY10, *SIX[4:]],
        [f"--check-events={SIX[0]}", *FAMILY10, *SIX[1:]],
        [SIX[0], f"--check-events={SIX[1]}", *SIX[2:], "--cpu-type=x86-64/family10"],
        ["--cpu-type", "x86-64/family10h", "--format", "table", "--check-events", *SIX],
    ],
)
def test_the_six_events(arguments):
    """One token an event separated by one blank, wherever the flags stand."""
    done = opd(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 ibs_fetch ibs_op 1 2 3\n", "")


def test_the_counter_map_of_the_six():
    """JSON shows it, and nothing else is on stdout."""
    done = opd("--check-events", *SIX, *FAMILY10, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["counter_map"] == [0, -1, -1, 1, 2, 3]
    assert "[0,-1,-1,1,2,3]" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["NO_SUCH_EVENT"], ["'NO_SUCH_EVENT'"]),
        (["CPU_CLK_UNHALTD:100000"], ["did you mean CPU_CLK_UNHALTED"]),
        (["CPU_CLK_UNHALTED:100"], ["count '100'", "50000"]),
        (["IBS_OP_ALL:1"], ["count '1'", "50000 to 1048575"]),
        (["IBS_FETCH_ALL:2000000"], ["count '2000000'", "50000 to 1048575"]),
        (["CPU_CLK_UNHALTED:100000:0x1"], ["unit mask '0x1'", "only 0x00"]),
        (["IBS_OP_ALL:100000:0x4"], ["unit mask '0x4'", "0x02 (memaccess)"]),
        (["CPU_CLK_UNHALTED:100000"] * 2, ["asked for twice"]),
        ([f"CPU_CLK_UNHALTED:{n}00000" for n in range(1, 6)], ["too many", "has 4 counters"]),
        ([], ["expected events, got none"]),
        (["--cpu-type", "vax", "X"], ["unknown CPU type 'vax'", "x86-64/family10"]),
        (["X", "--nope"], ["unknown option '--nope'"]),
    ],
)
def test_what_is_wrong_prints_nothing_and_exits_78(arguments, parts):
    """The reason, the limit and the valid ones are on stderr alone."""
    given = [] if "--cpu-type" in arguments else FAMILY10
    done = opd("--check-events", *arguments, *given)
    assert (done.returncode, done.stdout) == (78, "")
    for part in parts:
        assert part in done.stderr


def test_a_broken_events_file_is_told_by_file_and_line(tmp_path):
    """Through the setting of a directory; 78 from each program mode that reads it."""
    place = tmp_path / "events" / "x86-64" / "family10"
    place.mkdir(parents=True)
    (place / "events").write_text("event:0x76 counters:0 um:zero name:A : no minimum\n")
    config = tmp_path / "opd.toml"
    config.write_text(f'[sampling]\nevents_dir = "{tmp_path}/events"\n')
    for mode in (["--check-events", "A"], ["--list-events"], ["--check-config"]):
        done = opd("--config", str(config), *FAMILY10, *mode)
        assert (done.returncode, done.stdout) == (78, ""), mode
        assert f"{place}/events:1: minimum: is missing" in done.stderr
    assert opd("--config", str(config), "--check-config").returncode == 0


def test_timer_and_nothing():
    """Other tokens of the contract: timer and N/A."""
    assert opd("--check-events", "TIMER:20000", "--cpu-type", "timer").stdout == "timer\n"
    done = opd("--check-events", "cpu-clock", "page-faults", "CPU_CLK_UNHALTED", *FAMILY10)
    assert done.stdout == "timer N/A 0\n"


def test_the_events_of_a_type_with_counters_masks_and_ext_words():
    """The listing, for people and for programs."""
    done = opd("--list-events", *FAMILY10, "--format", "json")
    answer = json.loads(done.stdout)
    assert (answer["cpu_type"], answer["counters"]) == ("x86-64/family10", 4)
    events = {event["name"]: event for event in answer["events"]}
    cycles = events["CPU_CLK_UNHALTED"]
    assert (cycles["counters"], cycles["minimum"], cycles["ext"]) == ([0, 1, 2, 3], 50000, "")
    ops = events["IBS_OP_ALL"]
    assert (ops["ext"], ops["kind"], ops["minimum"], ops["maximum"]) == (
        *("ibs_op", "extended"),
        *(50000, 1048575),
    )
    assert [mask["value"] for mask in ops["unit_masks"]] == [0, 1, 2]
    assert not any(":" in name for name in events)  # tracepoints are this machine's
    text = opd("--list-events", *FAMILY10).stdout
    assert "IBS_OP_ALL: (ext: ibs_op)" in text
    assert "CPU_CLK_UNHALTED: (counter: all)" in text
    assert "(min count: 50000)" in text

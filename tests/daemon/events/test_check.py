"""``--check-events``: counters, ext words, timer or N/A, and what is refused."""

import pytest
from events_files import write_type

from opd.errors import ConfigError, EventError
from opd.events import Catalogue, extended, opened, parse_events
from opd.events.check import check_events

NONE = 0xFFFFFFFF
SIX = [
    *("CPU_CLK_UNHALTED:100000", "IBS_FETCH_ALL:100000", "IBS_OP_ALL:100000"),
    *("RETIRED_INSTRUCTIONS:100000", "DATA_CACHE_MISSES:100000", "DATA_CACHE_ACCESSES:100000"),
]


@pytest.fixture
def bare(tmp_path):
    """A machine whose sysfs and proc say nothing."""
    return {"sysfs": str(tmp_path / "sys"), "proc": str(tmp_path / "proc")}


@pytest.fixture
def made(tmp_path):
    """The events that tests make up, two counters."""
    return Catalogue(cpu_type="made/up", events_dir=write_type(tmp_path / "events"))


def tokens(checked):
    """What is printed of them."""
    return " ".join(event.token for event in checked)


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        (SIX, "0 ibs_fetch ibs_op 1 2 3"),
        (["CPU_CLK_UNHALTED:100000"], "0"),
        (["CPU_CLK_UNHALTED:100000", "IBS_OP_ALL:50000"], "0 ibs_op"),
        (["cycles", "CPU_CLK_UNHALTED", "instructions:u"], "0 1 2"),
        (["cpu-clock", "page-faults", "CPU_CLK_UNHALTED:50000:0:1:0"], "timer N/A 0"),
        (["cpu/event=0x76/", "REQUESTS_TO_L2:500:0x3f"], "0 1"),
        (["REQUESTS_TO_L2:500:tlb"], "0"),
        ([f"CPU_CLK_UNHALTED:{count}" for count in (50000, 60000, 70000)], "0 1 2"),
        (["IBS_OP_ALL:100000:0x3", "IBS_OP_LOAD:100000:0x3"], "ibs_op ibs_op"),
    ],
)
def test_tokens_of_family_10h(bare, specs, expected):
    """One token an event, in the order of the events."""
    checked = check_events(specs, catalogue=Catalogue(cpu_type="x86-64/family10"), **bare)
    assert tokens(checked) == expected


def test_the_counter_map_of_the_six(bare):
    """-1 for those that take no counter."""
    checked = check_events(SIX, catalogue=Catalogue(cpu_type="x86-64/family10"), **bare)
    assert [event.counter for event in checked] == [0, -1, -1, 1, 2, 3]


def test_a_counter_that_only_one_can_have_is_left_for_it(bare, made):
    """The first event moves for the second, which counts on counter 1 alone... and back."""
    assert tokens(check_events(["CYCLES_RUN", "ONLY_ONE"], catalogue=made, **bare)) == "0 1"
    assert tokens(check_events(["ONLY_ONE", "PARTS"], catalogue=made, **bare)) == "1 0"


def test_an_event_without_counter_and_feature(bare, made):
    """It is N/A, and takes nothing from others."""
    specs = ["NEITHER", "CYCLES_RUN", "EXTRA_FETCH", "WAYS"]
    assert tokens(check_events(specs, catalogue=made, **bare)) == "N/A 0 ibs_fetch 1"


def test_a_machine_without_counters(bare):
    """The timer samples, and what counters would count falls back to it."""
    timer = Catalogue(cpu_type="timer")
    assert tokens(check_events(["TIMER:20000"], catalogue=timer, **bare)) == "timer"
    assert tokens(check_events(["cycles:p", "cs"], catalogue=timer, **bare)) == "timer N/A"


@pytest.mark.parametrize(
    ("specs", "parts"),
    [
        (["NO_SUCH"], ["unknown event 'NO_SUCH'", "made/up"]),
        (["CYCLES_RUNS"], ["unknown event 'CYCLES_RUNS'; did you mean CYCLES_RUN"]),
        (["cycles_run"], ["did you mean CYCLES_RUN?"]),
        (["IBS_OP_ALL"], ["made/up has no such event", "x86-64/family10"]),
        (["CYCLES_RUN:49999"], ["'49999' is below the minimum", "50000 to 9223372036854775807"]),
        (["CYCLES_RUN:9223372036854775808"], ["above the maximum", "50000 to"]),
        (["EXTRA_FETCH:49999"], ["below the minimum", "50000 to 1048575"]),
        (["EXTRA_FETCH:1048576"], ["'1048576' is above the maximum", "50000 to 1048575"]),
        (["EXTRA_FETCH:99hz"], ["rate '99hz'", "ibs_fetch takes a count"]),
        (["CYCLES_RUN:50000:0x1"], ["unit mask '0x1'", "only 0x00 is right"]),
        (["PARTS:500:0x8"], ["unit mask '0x8'", "any combination of 0x01 (left), 0x02 (right)"]),
        (["PARTS:500:0"], ["unit mask '0'", "default 0x03"]),
        (["PARTS:500:lft"], ["unknown unit mask 'lft'; did you mean left"]),
        (["WAYS:500:0x20"], ["any of 0x00 (slow), 0x10 (quick)", "default quick"]),
        (["WAYS:500:0x10"], ["unit mask '0x10' is ambiguous: say quick or steady"]),
        (["PARTS:500:!"], ["expected a unit mask, got '!'"]),
        (["PARTS:500:0x1:2"], ["KERNEL: expected 0 or 1"]),
        (["CYCLES_RUN", "CYCLES_RUN"], ["'CYCLES_RUN' is asked for twice"]),
        (["PARTS:500:1:1:0", "PARTS:500:left:1:0"], ["'PARTS:k:left' is asked for twice"]),
        (
            ["CYCLES_RUN", "PARTS", "WAYS"],
            ["too many events", "'WAYS'", "made/up has 2 counters", "CYCLES_RUN, PARTS, WAYS"],
        ),
        (["ONLY_ONE:500", "ONLY_ONE:600"], ["'ONLY_ONE:600'", "only by counter 1, which others"]),
        (["CYCLES_RUN", "PARTS", "cycles"], ["too many events", "'cycles'"]),
    ],
)
def test_every_refusal_names_the_token_and_what_is_right(bare, made, specs, parts):
    """Exit status 78, what was typed, the limit, the valid ones."""
    with pytest.raises(EventError) as caught:
        check_events(specs, catalogue=made, source="--check-events", **bare)
    assert caught.value.exit_status == 78
    assert caught.value.message.startswith("--check-events: ")
    for part in parts:
        assert part in str(caught.value)


def test_all_that_is_wrong_is_told_at_once(bare, made):
    """One line an event."""
    with pytest.raises(EventError) as caught:
        check_events(["NO", "PARTS:1", "CYCLES_RUN"], catalogue=made, **bare)
    assert len(caught.value.message.splitlines()) == 2


def test_the_timer_stands_alone(bare):
    """TIMER beside another event is refused, also beside itself."""
    for other in ("page-faults", "TIMER:30000"):
        with pytest.raises(EventError, match="stands alone"):
            check_events(["TIMER:20000", other], catalogue=Catalogue(cpu_type="timer"), **bare)


def test_ops_count_further_than_fetches_but_not_on_family_10h(bare):
    """The counter of ops has 27 bits since family 12h."""
    family10 = Catalogue(cpu_type="x86-64/family10")
    with pytest.raises(EventError, match="50000 to 1048575"):
        check_events(["IBS_OP_ALL:1048576"], catalogue=family10, **bare)
    family17 = Catalogue(cpu_type="x86-64/family17")
    check_events(["IBS_OP_ALL:134217727"], catalogue=family17, **bare)
    with pytest.raises(EventError, match="50000 to 134217727"):
        check_events(["IBS_OP_ALL:134217728"], catalogue=family17, **bare)


def test_an_unknown_type_and_a_broken_file(bare, tmp_path):
    """The types that there are; the file, the line and the reason."""
    with pytest.raises(EventError) as caught:
        check_events(["X"], catalogue=Catalogue(cpu_type="x86-64/family9"), **bare)
    assert "unknown CPU type 'x86-64/family9'" in caught.value.message
    assert "x86-64/family10" in str(caught.value)
    folder = write_type(tmp_path, events="event:0x1\n")
    with pytest.raises(ConfigError, match=r"made/up/events:1: um: is missing"):
        check_events(["X"], catalogue=Catalogue(cpu_type="made/up", events_dir=folder), **bare)


def machine_of(folder, vendor, family):
    """A /proc of such a CPU."""
    (folder / "proc").mkdir(exist_ok=True)
    text = f"vendor_id\t: {vendor}\ncpu family\t: {family}\n"
    (folder / "proc" / "cpuinfo").write_text(text)
    return str(folder / "proc")


@pytest.mark.parametrize(
    ("cpu", "cpu_type", "spec", "opened_as"),
    [
        (("AuthenticAMD", 25), "", "L1_DTLB_MISS:500:miss_4k", (4, 0x1045)),
        (("AuthenticAMD", 25), "", "INSTRUCTION_CACHE_ACCESSES", (4, 0x1_0000_1F8E)),
        (("AuthenticAMD", 23), "x86-64/family19", "L1_DTLB_MISS", (NONE, 0xFF45)),
        (("AuthenticAMD", 22), "", "CPU_CLK_UNHALTED", (0, 0)),
        (("AuthenticAMD", 22), "", "DATA_CACHE_ACCESSES", (4, 0x40)),
        (("GenuineIntel", 6), "", "RETIRED_MISPREDICTED_BRANCH_INSTRUCTIONS", (0, 5)),
        (("GenuineIntel", 6), "", "DATA_CACHE_ACCESSES", (NONE, 0x40)),
        (("AuthenticAMD", 25), "x86-64/generic", "RETIRED_INSTRUCTIONS", (0, 1)),
        (("AuthenticAMD", 25), "x86-64/generic", "DATA_CACHE_ACCESSES", (NONE, 0x40)),
        (("GenuineIntel", 6), "made/up", "PARTS:500:idle", (4, 0x442 | 1 << 23 | 2 << 24)),
        (("", 0), "", "TIMER:99hz", (1, 0)),
    ],
)
def test_what_is_opened(tmp_path, cpu, cpu_type, spec, opened_as):
    """A raw number on the CPU that knows it, or of a type that somebody named; else none."""
    vendor, family = cpu
    proc = machine_of(tmp_path, vendor, family)
    catalogue = Catalogue(cpu_type=cpu_type, events_dir=write_type(tmp_path / "e"), proc=proc)
    if not vendor:
        catalogue = Catalogue(cpu_type="timer", proc=proc)
    (request,) = parse_events([spec], catalogue=catalogue, proc=proc, sysfs=str(tmp_path))
    assert (request.type, request.config) == opened_as
    rungs = [rung.name for rung in request.fallbacks]
    assert rungs == ([] if not vendor else ["cpu-clock"])


def test_what_features_are_to_sample(bare, made):
    """Events of a feature are its to open: by feature, with count and mask."""
    requests = parse_events(["EXTRA_FETCH:60000", "CYCLES_RUN"], catalogue=made, **bare)
    assert [request.name for request in opened(requests)] == ["CYCLES_RUN"]
    found = extended(requests)
    assert list(found) == ["ibs_fetch"]
    event = found["ibs_fetch"][0]
    assert (event.name, event.number, event.period) == ("EXTRA_FETCH", 0xF000, 60000)
    default = parse_events(["IBS_OP_ALL"], catalogue=Catalogue(cpu_type="x86-64/family10"), **bare)
    assert (default[0].period, default[0].hz, default[0].unit_mask) == (None, None, 1)

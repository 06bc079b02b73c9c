"""PMUs of sysfs: formats, named events, abilities; ``pmu/term=value/`` by them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opd.errors import EventError
from opd.events import parse_event
from opd.events.catalogue import PERF_TYPE_NONE
from opd.events.pmu import parse_field, read_pmu

FILES = {
    "type": "77\n",
    "format/event": "config:0-7,32-35\n",
    "format/umask": "config:8-15\n",
    "format/edge": "config:18\n",
    "format/ldlat": "config1:0-11\n",
    "format/swfilt": "config2:0\n",
    "format/far": "config3:0\n",
    "events/walks": "event=0x1f0,umask=0x3\n",
    "events/walks.unit": "walks\n",
    "events/latency": "event=0x5,ldlat=?\n",
    "events/loop": "loop\n",
    "caps/max_precise": "2\n",
    "cpumask": "0\n",
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A machine with a PMU of all kinds of fields, and a core's."""
    root = tmp_path_factory.mktemp("machine")
    for name, files in (("made_up", FILES), ("cpu", {"type": "4", "format/event": "config:0-7"})):
        place = root / "sys" / "bus" / "event_source" / "devices" / name
        for file, text in files.items():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_text(text)
    return {"sysfs": str(root / "sys"), "proc": str(root / "proc")}


def test_what_sysfs_says(machine):
    """Number, fields, events without what stands beside them, caps and CPUs."""
    pmu = read_pmu("made_up", sysfs=machine["sysfs"])
    assert (pmu.type, pmu.cpus, pmu.caps) == (77, "0", {"max_precise": "2"})
    assert str(pmu.fields["event"]) == "config:0-7,32-35"
    assert set(pmu.events) == {"walks", "latency", "loop"}


@pytest.mark.parametrize(
    ("text", "words", "name"),
    [
        ("made_up/event=0x1f0,umask=3/", (0x1_0000_03F0, 0, 0), "made_up/event=0x1f0,umask=3/"),
        ("made_up/event=5,edge/", (5 | 1 << 18, 0, 0), "made_up/event=5,edge/"),
        ("made_up/ldlat=128,swfilt=1/u", (0, 128, 1), "made_up/ldlat=128,swfilt=1/u"),
        ("made_up/walks/", (0x1_0000_03F0, 0, 0), "made_up/walks/"),
        ("made_up/latency,ldlat=64/", (5, 64, 0), "made_up/latency,ldlat=64/"),
        ("made_up/ldlat=64,latency/", (5, 64, 0), "made_up/ldlat=64,latency/"),
        ("made_up/config=0xffffffffffffffff/", ((1 << 64) - 1, 0, 0), None),
        ("made_up/config1=7,config2=0x8/", (0, 7, 8), None),
        ("made_up/event=1,name=mine/k", (1, 0, 0), "mine:k"),
        ("made_up//", (0, 0, 0), "made_up//"),
    ],
)
def test_terms_become_words(machine, text, words, name):
    """Each value in its bits, also over two ranges; a name of one's own."""
    request = parse_event(text, **machine)
    assert (request.config, request.config1, request.config2) == words
    assert request.type == 77
    assert request.name == (name or text)
    assert request.fallbacks == ()


@pytest.mark.parametrize(
    ("text", "hz", "period"),
    [
        ("made_up/event=1/", 99, None),
        ("made_up/event=1,period=1000/", None, 1000),
        ("made_up/event=1,freq=500/", 500, None),
        ("made_up/event=1/u:100000", None, 100000),
        ("made_up/event=1/:77hz", 77, None),
    ],
)
def test_how_often(machine, text, hz, period):
    """By a term, or by what stands behind, as of any event."""
    request = parse_event(text, **machine)
    assert (request.hz, request.period) == (hz, period)


def test_modifiers_of_a_core_and_its_ladder(machine):
    """Less and less precise, then the timer at the same levels."""
    request = parse_event("cpu/event=0x76/upp", **machine)
    assert (request.precise_ip, request.exclude_kernel) == (2, True)
    assert [rung.name for rung in request.fallbacks] == [
        *("cpu/event=0x76/up", "cpu/event=0x76/u", "cpu-clock:u")
    ]


def test_a_pmu_that_this_machine_lacks_falls_back(machine, tmp_path):
    """Its terms are still read, by what the kernel shows elsewhere; nothing is opened by them."""
    for text in ("ibs_op/cnt_ctl=1,maxcnt=0xffff/", "ibs_fetch/rand_en/p"):
        request = parse_event(text, **machine)
        assert request.type == PERF_TYPE_NONE
        assert request.fallbacks[-1].name == "cpu-clock"
    bare = {"sysfs": str(tmp_path), "proc": str(tmp_path)}
    request = parse_event("cpu/event=0x1c2,umask=0x3/", **bare)
    assert (request.type, request.config) == (PERF_TYPE_NONE, 0x1_0000_03C2)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("made_up/event=1", ["two slashes"]),
        ("made_upp/event=1/", ["no PMU 'made_upp'; did you mean made_up", "PMUs here: cpu, made"]),
        ("made_up/evnt=1/", ["unknown term 'evnt'", "did you mean event", "config:0-7,32-35"]),
        ("made_up/event=0x1000/", ["0x1000 has more than 12 bits (config:0-7,32-35)"]),
        ("made_up/event=/", ["expected a number such as 1 or 0x3c, got ''"]),
        ("made_up/event=-1/", ["got '-1'"]),
        ("made_up/event=1,event=2/", ["'event' is there twice"]),
        ("made_up/config=0x1ffffffffffffffff/", ["got '0x1ffffffffffffffff'"]),
        ("made_up/config=18446744073709551616/", ["more than 64 bits"]),
        ("made_up/latency/", ["ldlat: expected a value"]),
        ("made_up/loop/", ["'loop' leads to itself"]),
        ("made_up/far/", ["is in config3, which opd cannot set"]),
        ("made_up/period=0/", ["count '0' is below the minimum"]),
        ("made_up/freq=100001/", ["rate '100001hz'", "100000hz"]),
        ("made_up/period=1,freq=2/", ["how often is said twice"]),
        ("made_up/name=/", ["name: expected a word"]),
        ("made_up/event=1/x", ["unknown modifier 'x'"]),
        ("made_up/event=1/:ukp:5000:0:1:1", ["levels are given twice"]),
        ("made_up/event=1/u:10:0x1", ["has none, only 0 is right"]),
        ("made_up/,/", ["unknown term ''"]),
    ],
)
def test_refused_with_the_term_and_the_valid_ones(machine, text, parts):
    """What was typed, how wide it may be, what there is."""
    with pytest.raises(EventError) as caught:
        parse_event(text, **machine)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("type", "x", "expected a number in"),
        ("format/bad", "config:7-0", "expected bits from 0 to 63"),
        ("format/bad", "config:0-64", "expected bits from 0 to 63"),
        ("format/bad", "cfg:0", "expected bits such as"),
        ("format/bad", "config:0-", "expected bits such as"),
    ],
)
def test_a_sysfs_that_nobody_understands(tmp_path, file, text, reason):
    """The file is named; nothing is guessed."""
    place = tmp_path / "bus" / "event_source" / "devices" / "odd"
    (place / "format").mkdir(parents=True)
    (place / "type").write_text("9")
    (place / file).write_text(text)
    with pytest.raises(EventError, match=reason):
        read_pmu("odd", sysfs=str(tmp_path))


RANGES = st.lists(st.integers(0, 63), min_size=1, max_size=8, unique=True).map(sorted)


@given(RANGES, st.integers(0, (1 << 64) - 1))
def test_a_value_comes_back_out_of_its_bits(bits, value):
    """Any set of bits holds as many, lowest first, and no others are touched."""
    field = parse_field("config:" + ",".join(map(str, bits)))
    value &= (1 << len(bits)) - 1
    word = field.put(value)
    assert sum(((word >> bit) & 1) << i for i, bit in enumerate(bits)) == value
    assert word & ~sum(1 << bit for bit in bits) == 0
    with pytest.raises(ValueError, match="more than"):
        field.put(value | 1 << len(bits))


TERMS = st.lists(
    st.sampled_from(
        ["event=1", "event", "umask=0x3", "walks", "latency", "loop", "=", "", "name=x", "period=5"]
    ),
    max_size=4,
).map(",".join)


@settings(deadline=None)
@given(TERMS | st.text(max_size=60), st.text("upk:0123/", max_size=12))
def test_any_text_is_an_event_or_an_event_error(machine, terms, behind):
    """No text gets anything else."""
    try:
        request = parse_event(f"made_up/{terms}/{behind}", **machine)
    except EventError:
        return
    assert (request.hz is None) != (request.period is None)

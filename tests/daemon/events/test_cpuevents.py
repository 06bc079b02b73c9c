"""Events files: what is understood, and every mistake by file, line and reason."""

import pytest
from events_files import EVENTS, MASKS, write_type
from hypothesis import given, settings
from hypothesis import strategies as st

from opd.errors import ConfigError
from opd.events import cputype
from opd.events.cpuevents import EVENTS_MOST, load
from opd.events.files import FILE_BYTES_MOST, LINE_MOST, PROBLEMS_MOST

GOOD = "event:0x76 counters:0 um:zero minimum:500 name:GOOD : fine\n"


def read(folder, name="made/up", **files):
    """The events of a type whose files are given."""
    return load(name, cputype.search_path(write_type(folder, name, **files)))


def refused(folder, **files):
    """What is said of files that are wrong, one line a mistake, without the folder."""
    with pytest.raises(ConfigError) as caught:
        read(folder, **files)
    assert caught.value.exit_status == 78
    return caught.value.message.replace(f"{folder}/made/up/", "").splitlines()


def test_what_a_line_says(tmp_path):
    """Number, counters, ext word, least count, masks and text, in order of the file."""
    read_events = read(tmp_path)
    assert [event.name for event in read_events.events] == [
        *("CYCLES_RUN", "ONLY_ONE", "PARTS", "WAYS", "EXTRA_FETCH", "NEITHER")
    ]
    assert read_events.counters == 2
    cycles, only, parts, ways, fetch, neither = read_events.events
    assert (cycles.number, cycles.counters, cycles.minimum, cycles.ext) == (0x76, (0, 1), 50000, "")
    assert only.counters == (1,)
    assert parts.text == "What has parts : also a colon"
    assert [entry.name for entry in parts.mask.entries] == ["left", "right", "idle"]
    assert parts.mask.entries[2].extra == 1 << 23 | 2 << 24
    assert (ways.mask.type, ways.mask.default) == ("exclusive", "quick")
    assert (fetch.ext, fetch.counters) == ("ibs_fetch", ())
    assert (neither.ext, neither.counters) == ("", ())


def test_an_include_comes_first_and_own_masks_replace_its(tmp_path):
    """Events of both are there; a mask of the same name is the including file's."""
    write_type(tmp_path, "made/base")
    read_events = read(
        tmp_path,
        events="# first\ninclude:made/base # theirs\n" + GOOD,
        masks="include:made/base\nname:parts type:bitmask default:0x08\n\t0x08 only one\n",
    )
    names = [event.name for event in read_events.events]
    assert names[-1] == "GOOD"
    assert len(names) == 7
    assert [entry.value for entry in read_events.by_name["PARTS"][0].mask.entries] == [8]
    assert read_events.by_name["WAYS"][0].mask.default == "quick"


def test_variants_of_one_name_and_masks_put_together(tmp_path):
    """A name may repeat; several masks of one kind are merged."""
    masks = (
        "name:a type:bitmask default:0x1\n\t0x1 one\nname:b type:bitmask default:0x2\n\t0x2 two\n"
    )
    events = (
        "event:0x1 counters:0 um:a,b minimum:1 name:BOTH : both\n"
        "event:0x2 counters:cpuid um:a minimum:1 filter:3 name:BOTH : other\n"
    )
    read_events = read(tmp_path, events=events, masks=masks)
    first, second = read_events.by_name["BOTH"]
    assert [entry.value for entry in first.mask.entries] == [1, 2]
    assert second.counters == (0, 1, 2, 3)


def test_own_events_with_the_masks_that_opd_brings(tmp_path):
    """A file of events alone takes the masks of the same type, all of which it need not use."""
    line = "event:0x45 counters:0 um:dtlb_miss minimum:5 name:MINE : t\n"
    folder = write_type(tmp_path, "x86-64/family19", events=line, masks=None)
    event = load("x86-64/family19", cputype.search_path(folder)).by_name["MINE"][0]
    assert event.mask.choose("miss_4k") == (0x10, 0)


def test_what_oprofiles_own_files_have_is_understood(tmp_path):
    """Tabs behind a mask, decimal cmask, a counter twice, a name of one word that repeats."""
    masks = (
        "name:m type:exclusive default:0x1\n\t0x1\textra:inv,cmask=1\tsame\ttext\n"
        "\t0x1 extra: again the same value\n"
        "\t0x2 extra: same other\n\t0x4\tplain text\n"
    )
    events = "event:0x1 counters:1,1 um:m minimum:1 name:A(0) : t\n"
    event = read(tmp_path, name="made/Up+", events=events, masks=masks).events[0]
    assert (event.name, event.counters) == ("A(0)", (1,))
    assert [entry.text for entry in event.mask.entries] == [
        *("text", "the same value", "other", "plain text")
    ]
    assert event.mask.choose("") == (1, 1 << 23 | 1 << 24)
    with pytest.raises(ValueError, match="ambiguous: say 0x01 or 0x02"):
        event.mask.choose("same")


def test_the_first_directory_that_has_the_type_counts(tmp_path):
    """The setting's directory comes before what opd brings, type by type."""
    folder = write_type(tmp_path, "timer", events=GOOD, masks=None)
    assert [event.name for event in load("timer", cputype.search_path(folder)).events] == ["GOOD"]
    assert "CPU_CLK_UNHALTED" in load("x86-64/generic", cputype.search_path(folder)).by_name


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("event:0x76 counters:0 um:zero minimum:500 : text", "name: is missing"),
        ("counters:0 um:zero minimum:500 name:A : text", "event: is missing"),
        ("event:0x76 counters:0 minimum:500 name:A : text", "um: is missing"),
        ("event:0x76 counters:0 um:zero name:A : text", "minimum: is missing"),
        ("event:76 counters:0 um:zero minimum:5 name:A : t", "event: expected a number such as"),
        ("event:0xzz counters:0 um:zero minimum:5 name:A : t", "event: expected a number such as"),
        ("event:0x1 counters:0,x um:zero minimum:5 name:A : t", "counters: expected numbers"),
        ("event:0x1 counters:-1 um:zero minimum:5 name:A : t", "counters: expected numbers"),
        ("event:0x1 counters:99 um:zero minimum:5 name:A : t", "counters: expected numbers"),
        ("event:0x1 counters:, um:zero minimum:5 name:A : t", "counters: expected numbers"),
        ("event:0x1 counters:0 ext:ibs_op um:zero minimum:5 name:A : t", "exclude each other"),
        ("event:0x1 ext:1x um:zero minimum:5 name:A : t", "ext: expected the name of a feature"),
        ("event:0x1 counters:0 um:none minimum:5 name:A : t", "no unit mask 'none'"),
        ("event:0x1 counters:0 um:parts,ways minimum:5 name:A : t", "go together when all"),
        ("event:0x1 counters:0 um:zero,zero minimum:5 name:A : t", "go together when all"),
        ("event:0x1 counters:0 um:zero minimum:5x name:A : t", "minimum: expected a number"),
        ("event:0x1 counters:0 um:zero minimum:-5 name:A : t", "minimum: expected a number"),
        ("event:0x1 counters:0 um:zero minimum:5 filter:x name:A : t", "filter: expected a number"),
        ("event:0x1 counters:0 um:zero minimum:5 name:A/B : t", "has a / or a ."),
        ("event:0x1 counters:0 um:zero minimum:5 name:A.B : t", "has a / or a ."),
        ("event:0x1 counters:0 um:zero minimum:5 name:A:B : t", "name: expected a word"),
        ("event:0x1 counters:0 um:zero minimum:5 name:cycles : t", "'cycles' is perf's"),
        ("event:0x1 counters:0 um:zero minimum:5 name:A name:B : t", "tag 'name' is there twice"),
        ("event:0x1 counter:0 um:zero minimum:5 name:A : t", "unknown tag 'counter'"),
        ("event:0x1 counters:0 um:zero minimum:5 name:A text", "'text' has no colon"),
        ("event:0x1 counters:0 um:zero minimum: name:A : t", "minimum: nothing behind it"),
        ("hello", "'hello' has no colon"),
        ("  hello", "expected event:, got 'hello'"),
        ("event:0x1 include:timer", "stands alone on its line"),
        ("include:timer", "stands before all else"),
        ("include:", "expected a CPU type behind it"),
        ("include:timer twice", "'twice' is behind it"),
    ],
)
def test_a_broken_line_is_told_by_its_number(tmp_path, line, reason):
    """The second line is wrong: file, line, reason, and nothing else."""
    told = refused(tmp_path, events=EVENTS + line + "\n")
    assert len(told) == 1
    assert told[0].startswith("events:8: ")
    assert reason in told[0]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("name:m default:0x1\n\t0x1 a\n", 1, "type: is missing"),
        ("type:bitmask default:0x1\n\t0x1 a\n", 1, "name: is missing"),
        ("name:m type:bitmask\n\t0x1 a\n", 1, "default: is missing"),
        ("name:m type:bitmsk default:0x1\n\t0x1 a\n", 1, "did you mean bitmask"),
        ("name:m/ type:bitmask default:0x1\n\t0x1 a\n", 1, "name: expected a word"),
        ("name:m type:bitmask default:1\n\t0x1 a\n", 1, "default: expected a mask such as"),
        ("name:m type:bitmask default:0x1 : text\n\t0x1 a\n", 1, "trailing text ':'"),
        ("name:m type:bitmask default:0x1\n", 1, "it has no entries"),
        ("name:m type:mandatory default:0x1\n\t0x1 a\n\t0x2 b\n", 1, "one entry, it has 2"),
        ("name:m type:bitmask default:0x7\n\t0x1 a\n\t0x2 b\n", 1, "0x07 is not covered"),
        ("name:m type:exclusive default:0x3\n\t0x1 a\n\t0x2 b\n", 1, "0x03 is not an entry"),
        ("name:m type:exclusive default:a\n\t0x1 extra: b x\n", 1, "no entry is named 'a'"),
        ("\t0x1 a\nname:m type:bitmask default:0x1\n\t0x1 a\n", 1, "before the first name:"),
        ("name:m type:bitmask default:0x1\n\t1 a\n\t0x1 a\n", 2, "expected a mask such as 0x01"),
        ("name:m type:bitmask default:0x1\n\t0x10000 a\n", 2, "expected a mask such as 0x01"),
        ("name:m type:bitmask default:0x1\n\t0x1 extra:\n", 2, "expected a name behind it"),
        ("name:m type:bitmask default:0x1\n\t0x1 extra: 4k x\n", 2, "expected a name behind it"),
        ("name:m type:bitmask default:0x1\n\t0x1 extra:edgy a x\n", 2, "got 'edgy'"),
        ("name:m type:bitmask default:0x1\n\t0x1 extra:cmask=0x100 a x\n", 2, "got 'cmask=0x100'"),
        (
            "name:m type:bitmask default:0x1\n" + "\t0x1 a\n" * 65,
            66,
            "more than 64 entries",
        ),
    ],
)
def test_a_broken_mask_is_told_by_its_line(tmp_path, text, line, reason):
    """Also where an event uses it: what is wrong is said once."""
    events = "event:0x1 counters:0 um:m minimum:5 name:A : t\n"
    told = refused(tmp_path, events=events if "name:m " in text else GOOD, masks=text)
    assert any(each.startswith(f"unit_masks:{line}: ") and reason in each for each in told), told
    assert len(told) <= 2


def test_masks_twice_or_of_no_event(tmp_path):
    """A name stands for one mask, and an event uses it."""
    twice = "name:m type:bitmask default:0x1\n\t0x1 a\n" * 2
    used = "event:0x1 counters:0 um:m minimum:5 name:A : t\n"
    assert refused(tmp_path, events=used, masks=twice) == [
        "unit_masks:3: unit mask 'm' is there twice"
    ]
    lone = "name:m type:bitmask default:0x1\n\t0x1 a\n"
    assert refused(tmp_path, events=GOOD, masks=lone) == [
        "unit_masks: unit mask 'm' is used by no event of made/up"
    ]


def test_all_mistakes_are_told_at_once(tmp_path):
    """Of both files; beyond fifty they are counted."""
    told = refused(tmp_path, events="a\n" + GOOD + "b\n", masks="name:x\n")
    assert [line.split(":")[:2] for line in told] == [
        *(["unit_masks", "1"], ["unit_masks", "1"]),
        *(["events", "1"], ["events", "3"]),
    ]
    told = refused(tmp_path, events="x\n" * 80, masks="")
    assert len(told) == PROBLEMS_MOST + 1
    assert told[-1] == "and 30 more mistakes in events files"


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ("include:no/such\n", "events:1: include: there is no events of CPU type 'no/such'"),
        ("include:../../etc\n", "there is no events of CPU type '../../etc'"),
        ("include:made/up\n", "made/up includes made/up, itself"),
        (GOOD * (EVENTS_MOST + 1), f"more than {EVENTS_MOST} events"),
        ("#" + "x" * FILE_BYTES_MOST, "larger than 1 MiB"),
        (GOOD + "event:" + "0" * LINE_MOST, f"events:2: longer than {LINE_MOST}"),
    ],
)
def test_what_is_bounded(tmp_path, events, reason):
    """Includes that lead nowhere or back, and files too large, are mistakes of their own."""
    assert any(reason in line for line in refused(tmp_path, events=events, masks=""))


def test_includes_that_chase_each_other(tmp_path):
    """A ring of includes, and a chain that is too long, end."""
    write_type(tmp_path, "made/other", events="include:made/up\n", masks="")
    told = refused(tmp_path, events="include:made/other\n", masks="")
    chain = "made/up includes made/other includes made/up, itself"
    assert told == [f"{tmp_path}/made/other/events:1: include: {chain}"]
    for i in range(10):
        write_type(tmp_path, f"chain/c{i}", events=f"include:chain/c{i + 1}\n", masks="")
    told = refused(tmp_path, events="include:chain/c0\n", masks="")
    assert "more than 8 deep" in told[0]


def test_files_that_cannot_be_read(tmp_path):
    """A folder, other bytes than text, and a type without a file."""
    place = tmp_path / "made" / "up"
    (place / "events").mkdir(parents=True)
    assert refused(tmp_path, events=None, masks="")[0].startswith("events: is no file")
    (place / "events").rmdir()
    (place / "events").write_bytes(b"event:\xff\n")
    assert "expected UTF-8, byte 6" in refused(tmp_path, events=None, masks="")[0]
    (place / "events").unlink()
    assert "no events file" in refused(tmp_path, events=None, masks="")[0]


WORDS = st.sampled_from(
    [
        *("event:0x76", "counters:0,1", "ext:ibs_op", "um:parts", "um:zero", "minimum:500"),
        *("name:A", "name:parts", "type:bitmask", "type:exclusive", "default:0x1", "0x1", "0x02"),
        *("extra:", "extra:inv", "include:timer", "include:made/up", ":", "#", "é", "\t", "x" * 50),
    ]
)
FILES = st.lists(st.lists(WORDS, max_size=8).map(" ".join), max_size=12).map("\n".join)


@settings(max_examples=150, deadline=None)
@given(FILES | st.text(max_size=400), FILES | st.text(max_size=400))
def test_any_text_is_events_or_a_list_of_mistakes(tmp_path_factory, events, masks):
    """No file gets anything but events or a ConfigError with places."""
    folder = tmp_path_factory.mktemp("any")
    read_events = None
    try:
        read_events = read(folder, events=events, masks=masks)
    except ConfigError as error:
        told = error.message.splitlines()
    else:
        told = []
    assert all(f"{folder}" in line or "made/up" in line for line in told)
    for event in read_events.events if read_events else ():
        mask, extra = event.mask.choose("")
        assert mask >= 0
        assert extra >= 0


TAGS = st.fixed_dictionaries(
    {
        "event": st.integers(0, 0xFFFFFFFF).map("{:#x}".format),
        "um": st.sampled_from(["zero", "parts", "ways"]),
        "minimum": st.integers(0, 10**17).map(str),
        "name": st.from_regex(r"[A-Z_][A-Z0-9_-]{0,40}", fullmatch=True),
    },
    optional={
        "counters": st.sets(st.integers(0, 31), min_size=1).map(
            lambda counters: ",".join(map(str, counters))
        )
    },
)


@settings(max_examples=100, deadline=None)
@given(TAGS, st.randoms(use_true_random=False), st.text("abc :#", max_size=20))
def test_every_right_line_is_understood(tmp_path_factory, tags, order, text):
    """Tags in any order, blanks as one likes; what was written comes back."""
    pairs = [f"{tag}:{value}" for tag, value in tags.items()]
    order.shuffle(pairs)
    line = "  \t".join(pairs) + f" : {text}"
    folder = tmp_path_factory.mktemp("right")
    event = read(folder, events=EVENTS + line + "\n", masks=MASKS).events[-1]
    assert event.number == int(tags["event"], 16)
    assert event.name == tags["name"]
    assert event.minimum == int(tags["minimum"])
    counters = tags.get("counters", "")
    assert event.counters == tuple(sorted(int(each) for each in counters.split(",") if each))
    assert event.text == text.strip()

"""--where: what it takes, what it refuses with a caret, and what it means in a store."""

import fnmatch
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_names import PlainNames
from synthetic import IMAGES, START_NS, WINDOW_NS, make_run, make_window, random_hits

from opd.errors import UnknownNameError, UsageError
from opd.sampling.window import CgroupInfo, EventInfo
from opd.store.database import open_writer
from opd.store.dictionary import Dictionary
from opd.store.patterns import Pattern
from opd.store.queries import ReportQuery, open_reader
from opd.store.where import LENGTH_LIMIT, TESTS_LIMIT, Where
from opd.store.writer import StoreWriter

EVENTS = [EventInfo("cpu-clock", "cpu-clock", "ns", hz=99), EventInfo("page-faults", "x", "count")]
CGROUPS = {1: "/", 2: "/system.slice/nginx.service", 3: "/docker/abc"}
UNITS = {0: "[unknown]", 1: "[none]", 2: "nginx.service", 3: "[none]"}
CONTAINERS = {0: "[unknown]", 1: "[none]", 2: "[none]", 3: "abc"}
WINDOWS = 14


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """A store of some minutes, separated by everything, and its rows as a plain list."""
    directory = tmp_path_factory.mktemp("history")
    writer = StoreWriter(directory, PlainNames)
    writer.open_run(make_run(events=EVENTS))
    writer.add_images([(info, None) for info in IMAGES])
    writer.add_cgroups([CgroupInfo(*pair) for pair in CGROUPS.items()])
    names = PlainNames(None)
    paths = {info.uid: info.path for info in IMAGES}
    for info in IMAGES:
        names.add_image(info, None)
    rows = []
    for sequence in range(WINDOWS):
        hits = [
            hit._replace(cpu=at % 3, tid=hit.tgid + at % 2, cgroup=hit.tgid % 4)
            for at, hit in enumerate(random_hits(sequence, rows=30, events=2))
        ]
        writer.append(make_window(sequence, hits))
        for hit in hits:
            uid, offset = hit.frames[0]
            (name,), _ = names.name_runs(uid, names.elf_addresses(uid, [offset]), caller=False)
            rows.append(
                {
                    "comm": hit.comm,
                    "pid": hit.tgid,
                    "image": paths[uid],
                    "symbol": name.text,
                    "event": EVENTS[hit.event].name,
                    "mode": ("user", "kernel")[hit.mode],
                    "thread": hit.tid,
                    "cpu": hit.cpu,
                    "cgroup": CGROUPS.get(hit.cgroup, "[unknown]"),
                    "unit": UNITS[hit.cgroup],
                    "container": CONTAINERS[hit.cgroup],
                    "window": sequence,
                    "samples": hit.hits,
                    "weight": hit.weight,
                }
            )
    writer.close()
    connection = sqlite3.connect(directory / "opd.db")
    connection.execute("UPDATE cgroups SET unit = 'nginx.service' WHERE path LIKE '%nginx%'")
    connection.execute("UPDATE cgroups SET container = 'abc' WHERE path LIKE '%docker%'")
    connection.commit()
    connection.close()
    with open_reader(directory) as reader:
        yield reader, rows


TEXTS = {
    "comm": ["worker0", "worker*", "*1", "nobody", "w?rker[12]", "w?rker[!12]"],
    "image": ["[kernel]", "libc.so.6", "lib*", "/usr/*", "/usr/bin/cat", "c?t", "[anon]"],
    "symbol": ["[unknown]", "*0x*", "*f*", "nothing"],
    "event": ["cpu-clock", "page-faults", "*"],
    "mode": ["user", "kernel", "k*"],
    "cgroup": ["/", "/system.slice/*", "nginx.service", "[unknown]"],
    "unit": ["nginx.service", "nginx*", "[none]", "[unknown]"],
    "container": ["abc", "[none]", "*"],
}
NUMBERS = {"pid": (99, 111), "thread": (99, 112), "cpu": (-1, 3)}

_text_tests = st.sampled_from(sorted(TEXTS)).flatmap(
    lambda key: st.tuples(st.just(key), st.sampled_from(["=", "!="]), st.sampled_from(TEXTS[key]))
)
_number_tests = st.sampled_from(sorted(NUMBERS)).flatmap(
    lambda key: st.tuples(
        st.just(key),
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        st.integers(*NUMBERS[key]).map(str),
    )
)
_trees = st.recursive(
    _text_tests | _number_tests,
    lambda inner: (
        st.tuples(st.just("not"), inner) | st.tuples(st.sampled_from(["and", "or"]), inner, inner)
    ),
    max_leaves=8,
)


def written(tree):
    """The tree as somebody would type it."""
    if tree[0] == "not":
        return f"not ({written(tree[1])})"
    if tree[0] in ("and", "or"):
        return f"({written(tree[1])}) {tree[0]} {written(tree[2])}"
    key, operator, value = tree
    return f"{key} {operator} '{value}'" if len(value) % 2 else f"{key}{operator}{value}"


def spelled(tree, row):
    """The same expression in Python, with True and False for the comparisons."""
    if tree[0] == "not":
        return f"not ({spelled(tree[1], row)})"
    if tree[0] in ("and", "or"):
        return f"({spelled(tree[1], row)}) {tree[0]} {spelled(tree[2], row)}"
    return str(compares(tree, row))


def compares(test, row):
    """One comparison."""
    key, operator, value = test
    have = row[key]
    if key in NUMBERS:
        return {
            "=": have == int(value),
            "!=": have != int(value),
            "<": have < int(value),
            "<=": have <= int(value),
            ">": have > int(value),
            ">=": have >= int(value),
        }[operator]
    meant = [have]
    if key in ("image", "cgroup") and "/" not in value:
        meant.append(have.rpartition("/")[2])
    same = any(value == text or fnmatch.fnmatchcase(text, value) for text in meant)
    if value.startswith("["):  # all in brackets is itself
        same = value in meant
    return same == (operator == "=")


@settings(max_examples=150, deadline=None)
@given(
    tree=_trees,
    event=st.sampled_from(["cpu-clock", "page-faults"]),
    sort=st.sampled_from([("comm",), ("symbol", "unit"), ("pid", "mode"), ("container", "cgroup")]),
    since=st.none() | st.integers(0, WINDOWS * 10),
)
def test_a_filter_is_the_plain_one(history, tree, event, sort, since):
    """Any expression, from roll-ups or windows, lets through what a look at each row does."""
    reader, rows = history
    since_ns = None if since is None else START_NS + since * 1_000_000_000
    result = reader.report(
        ReportQuery(event=event, sort=sort, top=0, where=written(tree), since_ns=since_ns)
    )
    mine = [
        row
        for row in rows
        if row["event"] == event and (row["window"] + 1) * WINDOW_NS > (since or 0) * 1_000_000_000
    ]
    kept = [row for row in mine if eval(spelled(tree, row))]  # noqa: S307 - True, False, and, or, not
    sums = {}
    for row in kept:
        entry = sums.setdefault(tuple(row[key] for key in sort), [0, 0])
        entry[0] += row["samples"]
        entry[1] += row["weight"]
    found = dict(
        zip(
            zip(*result.keys.values(), strict=True),
            map(list, zip(result.samples, result.weight, strict=True)),
            strict=True,
        )
    )
    assert found == sums
    assert (result.total, result.weight_total) == (
        sum(row["samples"] for row in kept),
        sum(row["weight"] for row in kept),
    )
    assert (result.all_total, result.all_weight) == (
        sum(row["samples"] for row in mine),
        sum(row["weight"] for row in mine),
    )
    assert sum(result.percent) == pytest.approx(100 if kept else 0)


def test_a_filter_of_events_shows_which(history):
    """Without an event asked for, a filter of events is about all of them, each apart."""
    reader, rows = history
    result = reader.report(ReportQuery(sort=("comm",), where="event=page-faults", top=0))
    assert set(result.keys) == {"comm", "event"}
    assert set(result.keys["event"]) == {"page-faults"}
    assert result.total == sum(row["samples"] for row in rows if row["event"] == "page-faults")
    assert sum(result.percent) == pytest.approx(100)
    assert result.cores == [None] * len(result.samples)


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("com=nginx", 0, "did you mean comm"),
        ("comm=a and uint=b", 11, "unknown key 'uint'"),
        ("comm", 4, "= or != after comm"),
        ("comm=a comm=b", 7, "expected 'and', 'or' or the end"),
        ("(comm=a", 7, "expected 'and', 'or' or ')'"),
        ("comm=a)", 6, "the end"),
        ("comm=", 5, "expected a value"),
        ("comm='a", 5, "this ' has no end"),
        ("pid=many", 4, "pid is a number"),
        ("cpu>", 4, "expected a value"),
        ("comm>a", 4, "takes = or !="),
        ("not", 3, "expected KEY=VALUE"),
        ("comm=a or", 9, "expected KEY=VALUE"),
        ("", 0, "expected KEY=VALUE"),
        ("=a", 0, "expected KEY=VALUE"),
        ("(" * 40 + "cpu=1" + ")" * 40, 30, "levels"),
        (" or ".join(["cpu=1"] * (TESTS_LIMIT + 1)), TESTS_LIMIT * 9, "more than"),
    ],
)
def test_what_is_wrong_is_pointed_at(text, at, said):
    """The message says what was expected, and a caret stands under where."""
    with pytest.raises(UsageError) as caught:
        Where(text)
    first, shown, caret = caught.value.message.split("\n")
    assert said in first
    assert caret.strip() == "^"
    if len(text) < 60:
        assert (shown, caret) == (f"  {text}", " " * (2 + at) + "^")
    assert len(shown) < 90


def test_keys_that_are_not_there_are_listed(tmp_path):
    """An unknown key and one that was not separated are unknown names, with those that are."""
    with pytest.raises(UnknownNameError, match="valid: comm, pid, image"):
        Where("name=x")
    open_writer(tmp_path).close()
    writer = StoreWriter(tmp_path, PlainNames)
    writer.open_run(make_run())
    writer.close()
    with open_reader(tmp_path) as reader, pytest.raises(UnknownNameError) as caught:
        reader.report(ReportQuery(where="comm=a and cpu=1"))
    assert "cpu was not separated" in caught.value.message
    assert "cpu" not in caught.value.hint


def test_length_is_bounded():
    """A text that is too long is refused before it is read."""
    with pytest.raises(UsageError, match=f"at most {LENGTH_LIMIT}"):
        Where("comm=" + "x" * LENGTH_LIMIT)
    Where(" or ".join(["cpu!=1"] * TESTS_LIMIT))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("symbol=operator()", "operator()"),
        ("(symbol=operator())", "operator()"),
        ("symbol=std::vector<int>::at", "std::vector<int>::at"),
        ("symbol='operator new'", "operator new"),
        ('comm = "it\'s"', "it's"),
        ("comm=''", ""),
        ("COMM=a", "a"),
    ],
)
def test_values_are_taken_as_typed(text, value):
    """Parentheses that pair, quotes and spaces around the operator do what one expects."""
    (step,) = Where(text).steps
    assert step.value == value


_letters = st.text("ab/*?[]!", max_size=7)


@settings(max_examples=300, deadline=None)
@given(pattern=_letters, texts=st.lists(st.text("ab/*[]", max_size=6), max_size=5))
def test_patterns_are_the_shells(pattern, texts):
    """As fnmatch has it, or the text itself; brackets around all are themselves."""
    connection = open_memory()
    found = Pattern(pattern).matching(connection, texts)
    itself = pattern.startswith("[") and pattern.find("]") == len(pattern) - 1
    itself = itself and "[" not in pattern[1:]
    for text, good in zip(texts, found, strict=True):
        expected = text == pattern or (not itself and fnmatch.fnmatchcase(text, pattern))
        assert good == expected, (pattern, text)
    dictionary = Dictionary(connection)
    numbers = {dictionary.name(text): text for text in texts}
    names = {numbers[number] for number in Pattern(pattern).names(connection)}
    assert names == {text for text, good in zip(texts, found, strict=True) if good}
    connection.close()


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"a\*", "a*", "ab"),
        (r"\[x\]*", "[x]y", "x"),
        ("operator*", "operator*", "xoperator"),
        ("[^a]b", "cb", "ab"),
        ("a[", "a[", "a"),
        ("trailing\\", "trailing\\", "trailing"),
    ],
)
def test_special_characters_can_be_meant_themselves(pattern, good, bad):
    """A backslash takes the next one as it is."""
    connection = open_memory()
    assert Pattern(pattern).matching(connection, [good, bad]) == [True, False]
    connection.close()


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("libc*", "/usr/lib/libc.so.6", "/usr/libc/other"),
        ("libc.so", "/usr/lib/libc.so", "/usr/lib/xlibc.so"),
        ("/usr/*", "/usr/lib/x", "/opt/usr/x"),
        ("[kernel]", "[kernel]", "/k"),
    ],
)
def test_paths_match_by_their_last_part(pattern, good, bad):
    """Without a slash, the last part alone."""
    connection = open_memory()
    assert Pattern(pattern, paths=True).matching(connection, [good, bad]) == [True, False]
    connection.close()


def open_memory():
    """A store's names in memory."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE names (id INTEGER PRIMARY KEY, hash INTEGER, text TEXT)")
    return connection

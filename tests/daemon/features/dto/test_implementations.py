"""Both sides in one process: kept apart, laid out anew, tried, and refused with a reason."""

from __future__ import annotations

import os

import pytest

from dto_libraries import commit, compiled, repository, source
from opd.errors import OperationFailedError, UsageError
from opd.features.dto import trying
from opd.features.dto.linking import FUNCTIONS
from opd.features.dto.pairs import open_pair
from opd.features.dto.sides import Sources, check, find_both, runs_code
from opd.features.dto.trying import prepare
from opd_native.dto_load import wrong_result

pytestmark = pytest.mark.usefixtures("cache")

# Tells which of two libraries it is, and counts in a variable of its own.
TELLS = 'const char *volatile who = "{who}"; static int seen;'
SLOW = "seen++; if (n == 3) { a[0] = (unsigned char)who[0]; a[1] = (unsigned char)seen; return d; }"


def quiet(_words):
    """Tell nobody."""


def in_fork(work):
    """Do it in a process of its own, which libraries may stay loaded in; what it gave."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, repr(work()).encode())
        except BaseException as error:  # noqa: BLE001
            os.write(write, f"{error!r}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    return told


def asked(functions):
    """Ask a library that TELLS who it is, and how often it was asked."""
    from opd_native._core import ffi

    room = ffi.new("char[3]")
    functions.pointer.copy(room, room, 3)
    return bytes(ffi.buffer(room, 2))


def two(tmp_path, kind):
    """Make two libraries of the same names."""
    return [
        compiled(tmp_path, who, source(before=TELLS.format(who=who), in_copy=SLOW), kind=kind)
        for who in ("first", "second")
    ]


@pytest.mark.parametrize("kind", ["so", "o"])
def test_two_of_the_same_names_are_kept_apart(tmp_path, cache, kind):
    """Each has its own code and its own variables, and results that are right."""
    first, second = two(tmp_path, kind)

    def work():
        pair = open_pair(Sources(baseline=first, current=second), FUNCTIONS, layouts=2)
        a, b = pair.functions(pair.layouts - 1)
        wrong = [
            wrong_result(name, address)
            for one in (a, b)
            for name, address in zip(FUNCTIONS, one.addresses, strict=True)
        ]
        pair.close()
        return [asked(a), asked(a), asked(b), "".join(wrong), pair.how, list(cache.glob("link-*"))]

    how = "namespace" if kind == "so" else "linked"
    # wrong_result calls copy once, and so does move.
    assert in_fork(work) == repr([b"f\x03", b"f\x04", b"s\x03", "", [how, how], []])


def test_layouts_differ_and_are_the_seed_s(tmp_path):
    """The distance between the two, and where each lies in its page, are drawn."""
    first, second = two(tmp_path, "o")

    def work():
        pair = open_pair(Sources(baseline=first, current=second), FUNCTIONS, layouts=8)
        places = []
        for layout in range(pair.layouts):
            a, b = pair.functions(layout)
            places.append((a.addresses[0] % 4096, a.addresses[0] - b.addresses[0]))
        pair.close()
        return places

    places = eval(in_fork(work))  # noqa: S307 - our own
    assert len({place for place, _ in places}) >= 7
    assert {distance > 0 for _, distance in places} == {True, False}, "they change places"
    assert eval(in_fork(work)) == places  # noqa: S307


def test_a_library_beside_a_kernel(tmp_path):
    """One side linked, the other our own; a shared library has one layout."""
    first, _ = two(tmp_path, "o")
    shared = compiled(tmp_path, "libx", source())

    def work():
        linked = open_pair(Sources(baseline="rep-movsb", current=first), ["memcpy"], layouts=3)
        one = asked(linked.functions(2)[1])
        loaded = open_pair(Sources(baseline=shared, current="libc"), ["memcpy"], layouts=3)
        return [one, linked.how, linked.layouts, loaded.how, loaded.layouts]

    assert in_fork(work) == repr([b"f\x01", ["own", "linked"], 3, ["namespace", "own"], 1])


def test_more_libraries_than_namespaces(tmp_path):
    """Those beyond are loaded from a copy, each apart all the same."""
    first, second = two(tmp_path, "so")

    def work():
        hows, answers = set(), []
        for _ in range(12):
            pair = open_pair(Sources(baseline=first, current=second), FUNCTIONS)
            hows.update(pair.how)
            answers.append(tuple(map(asked, pair.functions(0))))
        return sorted(hows), set(answers)

    assert in_fork(work) == repr((["copy", "namespace"], {(b"f\x01", b"s\x01")}))


def test_an_indirect_function_is_resolved(tmp_path):
    """Shared or linked, what is called is what its resolver chose."""
    text = source(before=TELLS.format(who="x"), in_copy=SLOW).replace("*memcpy(", "*chosen(", 1)
    text = text.replace("return memcpy(d, s, n)", "return chosen(d, s, n)")
    text += """
static void *(*resolve(void))(void *, const void *, size_t) { return chosen; }
void *memcpy(void *, const void *, size_t) __attribute__((ifunc("resolve")));
"""
    shared = compiled(tmp_path, "shared", text)
    linked = compiled(tmp_path, "linked", text, kind="o")

    def work():
        pair = open_pair(Sources(baseline=shared, current=linked), FUNCTIONS)
        return [asked(one) for one in pair.functions(0)]

    assert in_fork(work) == repr([b"x\x01", b"x\x01"])


def test_revisions_are_built_and_linked(tmp_path):
    """From one command to both in one process; what was compared is told."""
    tree = repository(tmp_path / "tree")
    shas = [commit(tree, who, source(before=TELLS.format(who=who), in_copy=SLOW)) for who in "ab"]
    sources = Sources(
        baseline="git:a", current="git:b", tree=str(tree), build="make libx.a", artifact="libx.a"
    )
    assert check(sources, FUNCTIONS) == []
    said: list[str] = []
    prepare(sources, FUNCTIONS, said.append)
    assert any(line.startswith("building git:a") for line in said)

    def work():
        pair = open_pair(sources, FUNCTIONS, tell=said.append)
        told = pair.details()
        answers = [asked(one) for one in pair.functions(0)]
        return [answers, [told[side]["commit"] for side in ("baseline", "current")]]

    assert in_fork(work) == repr([[b"a\x01", b"b\x01"], shas])


def test_flags_of_one_side(tmp_path):
    """The same revision by two commands are two builds."""
    tree = repository(tmp_path / "tree")
    commit(tree, "one", source())
    sources = Sources(
        baseline="git:one",
        current="git:one",
        tree=str(tree),
        build="make libx.a",
        current_build="make libx.a CFLAGS='-O1 -fPIC -w'",
        artifact="libx.a",
    )
    first, second = find_both(sources, FUNCTIONS, quiet)
    assert first.library.path != second.library.path


def test_changes_that_are_not_committed_are_noted(tmp_path):
    """A reader of git:HEAD may think that they are in it."""
    tree = repository(tmp_path / "tree")
    commit(tree, "one", source())
    (tree / "x.c").write_text("changed")
    sources = Sources(current="git:one", tree=str(tree), build="make", artifact="libx.so")
    assert ["not committed" in note for note in check(sources, FUNCTIONS)] == [True]


@pytest.mark.parametrize(
    ("side", "said"),
    [
        ("avx3", "is none; did you mean avx2"),
        ("lib/x.so", "from / on"),
        ("/nowhere/x.so", "No such file"),
        ("git:v1", "tree="),
        ("worktree", "tree="),
    ],
)
def test_sides_that_cannot_be(side, said):
    """Whichever side it is on."""
    for sources in (Sources(baseline=side), Sources(current=side)):
        with pytest.raises(UsageError, match=said):
            check(sources, FUNCTIONS)


def test_whose_code_it_is():
    """Only kernels are opd's own."""
    assert runs_code(Sources(baseline="libc", current="nt")) == ""
    assert "library" in runs_code(Sources(current="/lib/x.so"))
    for side in ("git:v1", "worktree"):
        named = Sources(baseline=side, tree="/x", build="make", artifact="x.so")
        assert "build command" in runs_code(named)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"in_copy": "abort();"}, "killed by SIGABRT, in memcpy"),
        ({"in_copy": "*(volatile int *)8 = 1;"}, "killed by SIGSEGV, in memcpy"),
        ({"in_copy": "for (;;) pause();"}, "did not come back within 0.5 s, in memcpy"),
        ({"in_copy": "if (n > 9) n--;"}, "memcpy of 5000 bytes does not write what it should"),
        ({"in_copy": "n++;"}, "writes beyond its end"),
        ({"in_copy": "return 0;"}, "does not return where it wrote"),
        ({"in_copy": "_exit(0);"}, "ended the process, in memcpy"),
        (
            {"before": "__attribute__((constructor)) static void go(void) { for (;;) pause(); }"},
            "did not come back within 0.5 s, in its constructors",
        ),
        (
            {"before": "__attribute__((constructor)) static void go(void) { exit(3); }"},
            "ended the process, status 3, in its constructors",
        ),
    ],
)
def test_what_goes_wrong_in_a_library_is_told(tmp_path, monkeypatch, parts, said):
    """Before anything is measured, and which side it is."""
    monkeypatch.setattr(trying, "TRY_SECONDS", 0.5)
    library = compiled(tmp_path, "libx", source(**parts))
    with pytest.raises(OperationFailedError, match=said) as caught:
        prepare(Sources(current=library), FUNCTIONS, quiet)
    assert caught.value.message.startswith(f"current={library}: ")


def test_a_wrong_compare_is_found(tmp_path):
    """One that always says equal."""
    text = source(compare=False) + "int memcmp(const void *a, const void *b, size_t n) {return 0;}"
    library = compiled(tmp_path, "libx", text)
    with pytest.raises(OperationFailedError, match="memcmp of 5000 bytes says 0 and 0"):
        prepare(Sources(baseline=library), ["memcmp"], quiet)
    prepare(Sources(baseline=library), ["memcpy"], quiet)


def test_a_library_that_needs_what_is_not_there(tmp_path):
    """The name is told, and how to give it."""
    text = source(before="double lgamma_of_nobody(double);", in_copy="lgamma_of_nobody(1);")
    shared = compiled(tmp_path, "shared", text)
    with pytest.raises(OperationFailedError, match=r"does not load: .*lgamma_of_nobody"):
        prepare(Sources(baseline=shared), ["memcpy"], quiet)
    linked = compiled(tmp_path, "linked", text, kind="o")
    with pytest.raises(OperationFailedError, match=r"lgamma_of_nobody(.|\n)*link=-lNAME"):
        prepare(Sources(baseline=linked), ["memcpy"], quiet)
    text = source(before="double lgamma(double);", in_copy="turns += lgamma(3) > 9;")
    prepare(
        Sources(baseline=compiled(tmp_path, "m", text, kind="o"), link="-lm"), ["memcpy"], quiet
    )


def test_objects_without_a_linker(tmp_path, monkeypatch):
    """It is said what to install."""
    library = compiled(tmp_path, "x", source(), kind="o")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="objcopy and as and ld are not installed"):
        check(Sources(baseline=library), ["memcpy"])

"""suite=functional: right implementations, wrong ones, and ones that die or hang."""

import subprocess

import pytest

from opd.errors import UsageError
from opd.features.dto.options import DtoOptions
from opd.probes import running
from opd.probes.jobs import Control, measure_all
from opd.probes.local import LocalKeeper
from opd.store.queries import open_reader
from opd_native.dto import Functions, kernels
from opd_native.dto_functional import Part, functional

WRONG = r"""
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
void *memcpy(void *a, const void *b, size_t n)
{
    char *x = a; const char *y = b;
    for (size_t i = 0; i < n; i++) x[i] = y[i];
    if (n == 65537) x[n] = 1;
    return a;
}
void *memmove(void *a, const void *b, size_t n)
{
    char *x = a; const char *y = b;
    for (size_t i = 0; i < n; i++) x[i] = y[i];
    return a;
}
void *memset(void *a, int c, size_t n)
{
    if (n == 4096) abort();
    for (size_t i = 0; i < n; i++) ((char *)a)[i] = (char)c;
    return n == 1 ? NULL : a;
}
int memcmp(const void *a, const void *b, size_t n)
{
    const unsigned char *x = a, *y = b;
    while (n > 100000) pause();
    for (size_t i = 0; i < n; i++) if (x[i] != y[i]) return (signed char)x[i] - (signed char)y[i];
    return 0;
}
"""


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """A library in which each function is wrong in another way."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "wrong.c").write_text(WRONG)
    command = ["cc", "-O1", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-shared"]
    subprocess.run(
        [*command, "-fPIC", "-o", folder / "libwrong.so", folder / "wrong.c"], check=True
    )
    return folder / "libwrong.so"


def of(library, *names):
    """Functions of the library, only these."""
    import ctypes

    loaded = ctypes.CDLL(str(library))
    every = ("memcpy", "memmove", "memset", "memcmp")
    return Functions.at(
        [
            ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value if name in names else 0
            for name in every
        ],
        loaded,
    )


@pytest.mark.parametrize("name", ["libc", "avx2", "sse2"])
def test_right_ones_have_no_difference(name):
    """Every part and operation has cases, none of them a difference."""
    result = functional(kernels(name), threshold=16384, largest=65536, random=20)
    assert (result.differences, result.first) == (0, "")
    assert set(result.by_part) == {part.name.lower() for part in Part}
    assert all(result.by_part.values())
    assert all(result.by_op.values())
    assert sum(result.by_op.values()) == sum(result.by_part.values()) == result.cases > 5000


@pytest.mark.parametrize(
    ("name", "parts", "words"),
    [
        ("memcpy", {Part.SIZES}, "memcpy of 65537 bytes, offsets 0 and 0, .*: byte 65537 is 0x01"),
        ("memmove", {Part.OVERLAP}, "overlap: memmove of .* bytes.*: byte .* is 0x"),
        ("memset", {Part.OFFSETS}, "memset of 1 bytes.*: it does not return its destination"),
        ("memcmp", {Part.SIZES}, "memcmp of .*: the sign is -?1, libc's is -?1"),
        ("memmove", {Part.THREADS}, "threads: memmove of"),
        ("memmove", {Part.FORKS}, "forks: memmove of"),
        ("memmove", {Part.SIGNALS}, "signals: memmove of"),
    ],
)
def test_a_difference_is_told_as_the_case_it_was(wrong, name, parts, words):
    """What was called with what, and the first byte, sign or pointer that is not libc's."""
    import re

    result = functional(
        of(wrong, name), threshold=65536, largest=131072, parts=frozenset(parts), limit=10
    )
    assert result.differences > 0
    assert re.search(words, result.first), result.first


def test_dying_and_hanging_are_differences(tmp_path):
    """The case during which it died, or did not come back, is told; later parts still run."""
    (tmp_path / "w.c").write_text(
        "#include <stdlib.h>\n#include <unistd.h>\n"
        "void *memset(void *a, int c, size_t n) { if (n == 4096) abort();"
        " for (size_t i = 0; i < n; i++) ((char *)a)[i] = (char)c; return a; }\n"
        "int memcmp(const void *a, const void *b, size_t n) { for (;;) pause(); }\n"
    )
    library = tmp_path / "w.so"
    flags = ["-O1", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", library, tmp_path / "w.c"], check=True)
    both = frozenset({Part.SIZES, Part.EDGES})
    dead = functional(of(library, "memset"), threshold=4096, largest=8192, parts=both)
    assert "memset of 4096 bytes" in dead.first
    assert "ended by signal 6 (Aborted)" in dead.first
    assert dead.differences == 2
    hung = functional(of(library, "memcmp"), threshold=4096, largest=8192, parts=both, limit=0.2)
    assert "memcmp of 0 bytes" in hung.first
    assert "it did not end in time" in hung.first


def test_the_probe_says_the_case_and_is_void(wrong, tmp_path):
    """A difference makes the run void with the exact case; cases are counted."""
    text = f"suite=functional,current={wrong},threads=2,random_cases=5,round_limit=1"
    keeper = LocalKeeper(str(tmp_path))
    measure_all(running.plan("dto", text), "asked", keeper, Control(lambda: "", lambda *_: None))
    keeper.close()
    with open_reader(tmp_path) as reader:
        (run,) = reader.probe_runs()
    assert f"current {wrong} differs from libc: sizes: " in run.void


def test_bad_options_are_refused():
    """A largest size below the threshold or too small for any case."""
    with pytest.raises(UsageError, match="64 or more"):
        running.plan("dto", "suite=functional,largest=63")
    with pytest.raises(ValueError, match="not below the threshold"):
        DtoOptions(largest=4096, threshold=8192)

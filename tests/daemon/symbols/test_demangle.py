"""Names without parameters, against c++filt and perf."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opd_native.demangle import demangle

SOURCE = Path(__file__).parents[2] / "data" / "symbols" / "spellings.cpp"


@pytest.fixture(scope="module")
def cpp_program(tmp_path_factory):
    """A C++ program whose functions have every kind of name, each of them hot."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    path = tmp_path_factory.mktemp("cpp") / "spellings"
    subprocess.run(["g++", "-std=c++20", "-w", "-O1", str(SOURCE), "-o", str(path)], check=True)
    return path


def functions(path, *flags):
    """Raw names of the functions that a file defines."""
    out = subprocess.run(
        ["nm", *flags, "--defined-only", str(path)], capture_output=True, text=True, check=True
    ).stdout
    fields = [line.split() for line in out.splitlines()]
    return sorted({f[2].partition("@")[0] for f in fields if len(f) == 3 and f[1] in "tTwW"})


def filtered(names):
    """The names as c++filt prints them without parameters."""
    if shutil.which("c++filt") is None:
        pytest.skip("no c++filt")
    out = subprocess.run(
        ["c++filt", "-p"], input="\n".join(names) + "\n", capture_output=True, text=True, check=True
    ).stdout
    return out.splitlines()


def differences(names):
    """Where ours and c++filt's differ; it spells out std::string, and shows Rust's hashes."""
    names = [raw for raw in names if not re.match(r"_R|.*S[dios]|.*17h[0-9a-f]{16}E", raw)]
    pairs = zip(names, filtered(names), strict=True)
    return [(raw, demangle(raw), theirs) for raw, theirs in pairs if demangle(raw) != theirs]


def test_every_kind_of_cpp_name(cpp_program):
    """Operators, templates, lambdas, constructors, clones: all as c++filt prints them."""
    names = functions(cpp_program)
    assert len(names) > 50
    assert differences(names) == []


def test_names_of_libstdcpp():
    """Thousands of names of the C++ library read as c++filt prints them."""
    out = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"libstdc\+\+\.so\.6 .*x86-64.* => (\S+)", out)
    if match is None:
        pytest.skip("no libstdc++")
    names = functions(match[1], "-D")
    assert len(names) > 1000
    assert len(differences(names)) == 0


def profile(program, data):
    """What perf report shows of a run; None when perf itself crashed, as 6.1 now and then does."""
    record = ["perf", "record", "-q", "-B", "-N", "-e", "cpu-clock:u", "-F", "3999"]
    report = ["perf", "report", "--stdio", "--no-children", "-q", "-F", "sym"]
    try:
        done = subprocess.run(
            [*record, "-o", str(data), str(program)], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("no perf")
    if done.returncode > 0:
        pytest.skip(f"perf record: {done.stderr.decode()}")
    shown = subprocess.run(
        [*report, "--dsos", program.name, "-i", str(data)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode < 0 or shown.returncode < 0:
        return None
    shown.check_returncode()
    return shown.stdout


@pytest.mark.privileged
def test_as_perf_prints(cpp_program, tmp_path):
    """What perf report shows for a profile of the program is what we make of its symbols."""
    tries = (profile(cpp_program, tmp_path / f"perf.data.{i}") for i in range(5))
    out = next((one for one in tries if one is not None), None)
    if out is None:
        pytest.skip("perf crashed five times")
    shown = re.finditer(r"\[\.\] (.*?)(?:  +-.*)?$", out, re.MULTILINE)
    seen = {match[1].strip() for match in shown}
    ours = {demangle(raw) for raw in functions(cpp_program)}
    assert len(seen) > 20
    assert {name for name in seen if not re.match(r"0x[0-9a-f]+$|.*@plt$", name)} <= ours


def test_c_names_stay():
    """Names that no compiler mangled are left alone, suffixes and all."""
    for name in (
        "main",
        "foo.isra.0",
        "foo.part.0.cold",
        "_start",
        "_Znot",
        "_Rx",
        "?f@@YAXXZ",
        "",
    ):
        assert demangle(name) == name


def test_rust_names():
    """Both of Rust's schemes, without hashes."""
    assert (
        demangle("_ZN4core3ptr42drop_in_place$LT$alloc..string..String$GT$17h0b1a2c3d4e5f6789E")
        == "core::ptr::drop_in_place<alloc::string::String>"
    )
    assert demangle("_RNvMNtCs1234_7mycrate3fooNtB2_3Foo3baz.llvm.42") == "<mycrate::foo::Foo>::baz"


@given(st.text("_ZRNKSTILEBCD0123456789abcdefghijklmnopqrstuvwxyz.$", max_size=80))
def test_arbitrary_names(tail):
    """Any text comes back as some text: its own where it does not parse."""
    for start in ("_Z", "_ZN", "_R", "_RNv"):
        assert demangle(start + tail)

"""The kernel's names against a plain reading of the list."""

import bisect
import contextlib
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opd.symbols.kallsyms import open_kallsyms
from opd_native.errors import NativeError
from opd_native.kallsyms import Kallsyms, kernel_modules


def plain_scan(text):
    """(addresses, first symbol of each) of the text symbols, by the book."""
    first = {}
    for line in text.splitlines():
        fields = line.split()
        if fields[1] in "tTwW" and int(fields[0], 16):
            module = fields[3].strip("[]") if len(fields) > 3 else ""
            first.setdefault(int(fields[0], 16), (fields[2], module))
    return sorted(first), first


@pytest.fixture(scope="module")
def live():
    """The running kernel's list, as text and as a table read from that text."""
    text = Path("/proc/kallsyms").read_text()
    try:
        return text, Kallsyms(text.encode())
    except NativeError as error:
        pytest.skip(f"kallsyms: {error}")


def test_running_kernel(live):
    """10,000 addresses of the running kernel have the names a plain scan gives them."""
    text, table = live
    starts, first = plain_scan(text)
    chooser = random.Random(2)
    addresses = [chooser.choice(starts) + chooser.choice((0, 1, 7, 64)) for _ in range(10_000)]
    for address, found in zip(addresses, table.lookup(addresses), strict=True):
        start = starts[bisect.bisect_right(starts, address) - 1]
        assert (found.name, found.module) == first[start]
        assert found.start == start
    assert len(table) >= len(starts)


def test_text_addresses_of_the_running_kernel(live):
    """_text, _stext and _etext are those of the list."""
    text, table = live
    said = {f[2]: int(f[0], 16) for f in map(str.split, text.splitlines()) if len(f) == 3}
    expected = (said.get("_text", 0), said.get("_stext", 0), said.get("_etext", 0))
    assert tuple(table.text) == expected


def test_path_and_bytes_agree(live, tmp_path):
    """A copy of the list read from a path gives the same table."""
    text, table = live
    (tmp_path / "kallsyms").write_text(text)
    with Kallsyms(tmp_path / "kallsyms") as copy:
        assert len(copy) == len(table)
        assert copy.bytes_held == table.bytes_held


def test_ranges(live):
    """The range of a function ends where the next one starts."""
    text, table = live
    starts, first = plain_scan(text)
    middle = len(starts) // 2
    name = first[starts[middle]][0]
    assert (starts[middle], starts[middle + 1]) in table.ranges([name, "no such function"])
    assert table.ranges([]) == []


def test_hidden_addresses():
    """A list of zeros is refused with EACCES, which a caller can explain."""
    with pytest.raises(NativeError, match="kallsyms") as caught:
        Kallsyms(b"0000000000000000 T _text\n0000000000000000 t other\n")
    assert caught.value.errno == 13


def test_modules(tmp_path):
    """Modules come with their ranges; without the file there are none."""
    path = tmp_path / "modules"
    path.write_text("nf_tables 4096 0 - Live 0xffffffffc0a00000\n" * 600)
    assert kernel_modules(path) == [("nf_tables", 0xFFFFFFFFC0A00000, 0xFFFFFFFFC0A01000)] * 600
    assert kernel_modules(tmp_path / "none") == []


LINE = st.tuples(
    st.integers(0xFFFFFFFF81000000, 0xFFFFFFFF81000100),
    st.sampled_from("tTwWdDrRbA"),
    st.text("abc_.0", min_size=1, max_size=6),
    st.sampled_from(["", "", "\t[mod]", "\t[bpf]"]),
)


@given(st.lists(LINE, max_size=60), st.integers(0xFFFFFFFF80FFFFF0, 0xFFFFFFFF81000200))
def test_any_list_in_any_order(lines, address):
    """For any list, in order or not, the table and the plain scan agree."""
    text = "".join(f"{a:016x} {kind} {name}{tag}\n" for a, kind, name, tag in lines)
    starts, first = plain_scan(text)
    if not starts:
        with pytest.raises(NativeError):
            Kallsyms(text.encode())
        return
    with Kallsyms(text.encode()) as table:
        (found,) = table.lookup([address])
        at = bisect.bisect_right(starts, address)
        expected = first[starts[at - 1]] if at else ("", "")
        assert (found.name, found.module) == expected


@given(st.binary(max_size=300))
def test_garbage(data):
    """Arbitrary bytes are a table or an error, never a crash."""
    with contextlib.suppress(NativeError), Kallsyms(data) as table:
        assert len(table.lookup([0, 1 << 63, (1 << 64) - 1])) == 3


def test_the_running_list_is_read_once_and_kept(live, tmp_path):
    """The second time its packed form is mapped: the same names, from the owner's file alone."""
    _text, table = live
    directory = tmp_path / "cache"
    some = [0xFFFFFFFF81000000 + 4096 * i for i in range(1000)] + [table.text.text]
    for _time in range(2):
        with open_kallsyms(str(directory)) as kept:
            assert kept.bytes_held < 4096  # mapped, not read
            assert len(kept) == len(table)
            assert kept.text == table.text
            assert kept.lookup(some) == table.lookup(some)
    assert [file.name for file in directory.iterdir()] == ["kallsyms"]
    assert (directory / "kallsyms").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("harm", ["others may write", "cut short", "of another boot", "a link"])
def test_a_kept_list_that_cannot_be_trusted_is_made_anew(live, tmp_path, harm):
    """Names never come from a file that somebody else, another boot or a crash left."""
    open_kallsyms(str(tmp_path)).close()
    file = tmp_path / "kallsyms"
    good = file.read_bytes()
    if harm == "others may write":
        file.chmod(0o622)
    elif harm == "cut short":
        file.write_bytes(good[:-100])
    elif harm == "of another boot":
        file.write_bytes(good[:8] + bytes(16) + good[24:])
    else:
        file.rename(tmp_path / "other")
        file.symlink_to(tmp_path / "other")
    with open_kallsyms(str(tmp_path)) as kept:
        assert len(kept) == len(live[1])
    assert file.read_bytes() == good
    assert not file.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("directory", ["", "/proc/nowhere"])
def test_without_a_place_to_keep_it_the_list_is_read(live, directory):
    """A cache that cannot be written changes nothing but the cost."""
    with open_kallsyms(directory) as read:
        assert len(read) == len(live[1])
        assert read.bytes_held > 4096

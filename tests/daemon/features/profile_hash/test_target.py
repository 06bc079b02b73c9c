"""What profile_hash counts: the kernel, a module, a file, or why it cannot."""

import errno
import subprocess

import pytest

from opd.features.declared import UnavailableError
from opd.features.profile_hash.options import ProfileHashOptions
from opd.features.profile_hash.target import find_code
from opd_native.errors import NativeError
from opd_native.kallsyms import Kallsyms

LIST = b"""ffffffff81000000 T _text
ffffffff81000000 T _stext
ffffffff81000100 T first
ffffffff81000200 T second
ffffffff81000400 T _etext
ffffffff82000000 D data
"""
MODULES = "ext4 4096 1 - Live 0xffffffffc0000000\nnf_tables 8192 0 - Live 0xffffffffc0100000\n"


def find(modules="/no/such/file", **options):
    """By the list above."""
    chosen = ProfileHashOptions(**options)
    return find_code(chosen, open_list=lambda: Kallsyms(LIST), modules=str(modules))


def test_the_kernel_from_stext_to_etext():
    """A slot every 2^shift bytes."""
    code = find(shift=4)
    assert code.what == "[kernel]"
    assert (code.target.start, code.target.end) == (0xFFFFFFFF81000000, 0xFFFFFFFF81000400)
    assert code.target.length == 64


@pytest.mark.parametrize("text", ["first-second", "ffffffff81000100-0xffffffff81000200"])
def test_a_range_is_of_symbols_or_addresses(text):
    """Both ends are where they say."""
    target = find(range=text).target
    assert (target.start, target.end) == (0xFFFFFFFF81000100, 0xFFFFFFFF81000200)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1000-2000", "is not inside of [kernel], which is 0xffffffff81000000-0xffffffff81000400"),
        ("second-first", "its end is not above its start"),
        ("first-first", "its end is not above its start"),
        ("first-data", "has no symbol 'data'"),
        ("first-nothing", "has no symbol 'nothing'"),
    ],
)
def test_a_range_outside_is_refused(text, words):
    """With where the code is."""
    with pytest.raises(UnavailableError) as caught:
        find(range=text)
    assert words in str(caught.value)


def test_a_module_by_its_name(tmp_path):
    """Written with - or _."""
    modules = tmp_path / "modules"
    modules.write_text(MODULES)
    code = find(modules=modules, module="nf-tables")
    assert code.target.start == 0xFFFFFFFFC0100000
    assert code.target.end == 0xFFFFFFFFC0102000
    with pytest.raises(UnavailableError, match=r"no module 'nf_table' is loaded.*nf_tables"):
        find(modules=modules, module="nf_table")
    with pytest.raises(UnavailableError, match="this kernel has no modules"):
        find(module="ext4")


def test_hidden_addresses_are_told():
    """With what helps."""

    def hidden():
        raise NativeError(errno.EACCES, "read /proc/kallsyms")

    with pytest.raises(UnavailableError, match=r"kptr_restrict.*root"):
        find_code(ProfileHashOptions(), open_list=hidden)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A position-independent program of two functions."""
    place = tmp_path_factory.mktemp("program")
    source = place / "p.c"
    source.write_text("int two(void) { return 2; }\nint main(void) { return two() - 2; }\n")
    subprocess.run(["cc", "-O0", "-pie", "-fPIE", "-o", place / "p", source], check=True)
    return place / "p"


def test_a_file_is_counted_by_its_own_addresses(program):
    """Its code, whatever is mapped where; known by build-id, or by device and inode."""
    code = find(binary=str(program))
    target = code.target
    assert code.what == str(program)
    assert target.segments
    assert all(target.start <= at < target.end for _, _, at in target.segments)
    assert target.inode == program.stat().st_ino
    code.close()
    one = find(binary=str(program), range="two-main")
    assert one.target.end - one.target.start < 64
    one.close()


def test_a_range_may_be_of_short_addresses_after_0x(program):
    """Those of a file begin low."""
    with pytest.raises(UnavailableError, match=r"range 0x1-0x2 \(0x1-0x2\) is not inside of"):
        find(binary=str(program), range="0x1-0x2")


def test_a_file_with_a_header_alone_is_told(tmp_path):
    """Random behind the magic number: no traceback, no number of an error."""
    wrong = tmp_path / "wrong"
    for size in (4, 63, 64, 4096):
        wrong.write_bytes(b"\x7fELF\x02\x01\x01" + b"\xa5" * size)
        with pytest.raises(UnavailableError) as caught:
            find(binary=str(wrong))
        assert str(caught.value).startswith(str(wrong))
        assert "Errno" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/no/such/file", "No such file"),
        ("/etc/hostname", "is no ELF file"),
        ("/", "/"),
    ],
)
def test_a_file_that_cannot_be_counted_is_told(path, words):
    """With its name."""
    with pytest.raises(UnavailableError) as caught:
        find(binary=path)
    assert path in str(caught.value)
    assert words in str(caught.value)

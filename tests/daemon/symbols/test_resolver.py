"""The resolver on real files: kept by descriptor, deleted, replaced, stripped."""

import os
import shutil
import subprocess
from array import array
from pathlib import Path

import pytest

from opd.sampling.window import EventInfo, ImageInfo, RunInfo
from opd.symbols.files import ImageFiles
from opd.symbols.identity import identity
from opd.symbols.kernel import KERNEL_BASE, own_vdso, running_kernel_build_id
from opd.symbols.resolver import UNKNOWN, Name, Resolver
from opd_native.elf import NAMED, Elf
from opd_native.errors import NativeError
from opd_native.kallsyms import Kallsyms

OTHER_ID = "ab" * 20


def run_info(**changes):
    """A RunInfo of this machine's kernel."""
    values = {
        "run": "0" * 32, "boot": "", "kind": "live", "session": "", "origin": "",
        "kernel_release": "6.1.0", "kernel_build_id": running_kernel_build_id(),
        "host": os.uname().nodename, "cpus": 1, "started_ns": 0,
        "events": [EventInfo("cpu-clock", "cpu-clock", "ns")],
    }  # fmt: skip
    return RunInfo(**(values | changes))


@pytest.fixture
def resolver(tmp_path):
    """A resolver for the running kernel with an empty folder of debug files."""
    made = Resolver(run_info(), debug_root=str(tmp_path / "debug"))
    yield made
    made.close()


def offset_of(path, name):
    """File offset of a symbol, and its ELF address."""
    out = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout
    address = next(int(f[0], 16) for f in map(str.split, out.splitlines()) if f[2:] == [name])
    headers = subprocess.run(
        ["readelf", "-lW", str(path)], capture_output=True, text=True, check=True
    ).stdout
    for line in headers.splitlines():
        fields = line.split()
        if fields[:1] == ["LOAD"] and "E" in fields[6:8]:
            offset, start = int(fields[1], 16), int(fields[2], 16)
            return address - start + offset, address
    raise AssertionError("no executable segment")


def file_info(path, uid=7, **changes):
    """The ImageInfo that a sampler without build-ids would give for a file."""
    status = Path(path).stat()
    values = {
        "uid": uid, "kind": "file", "path": str(path),
        "dev_major": os.major(status.st_dev), "dev_minor": os.minor(status.st_dev),
        "inode": status.st_ino,
    }  # fmt: skip
    return ImageInfo(**(values | changes))


def build_id(path):
    """The file's build-id."""
    with Path(path).open("rb") as stream, Elf(stream.fileno()) as elf:
        return elf.build_id


def open_descriptors():
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("way", ["pie", "no_pie", "static", "separate_code", "noseparate_code"])
def test_file_by_descriptor(resolver, program, way):
    """An offset in a mapped file becomes its ELF address and its symbol's name."""
    path = program(way)
    offset, address = offset_of(path, "hidden_static")
    resolver.add_image(file_info(path), os.open(path, os.O_RDONLY))
    addresses = resolver.elf_addresses(7, [offset, offset + 3])
    assert addresses == array("Q", [address, address + 3])
    assert resolver.names(7, addresses) == [Name("hidden_static", "hidden_static", "named")] * 2


def test_deleted_file_is_named_by_its_descriptor(resolver, program, tmp_path):
    """A file deleted after its mapping still has names when its descriptor came along."""
    path = tmp_path / "deleted"
    shutil.copy(program("pie"), path)
    offset, _address = offset_of(path, "exported")
    info = file_info(path, deleted=True)
    resolver.add_image(info, os.open(path, os.O_RDONLY))
    path.unlink()
    assert resolver.names(7, resolver.elf_addresses(7, [offset]))[0].text == "exported"


@pytest.mark.parametrize("way", ["pie", "no_build_id"])
def test_replaced_file_is_never_misnamed(resolver, program, build, tmp_path, way):
    """Another file at the path of the one that ran gives no names at all, and is counted."""
    path = tmp_path / "service"
    shutil.copy(program(way), path)
    info = file_info(path, build_id=build_id(path))
    offset, _address = offset_of(path, "exported")
    other = build("int imposter(int x) { return x; } int main(void) { return imposter(1); }")
    path.rename(tmp_path / "old")
    shutil.copy(other, path)
    resolver.add_image(info, None)
    addresses = resolver.elf_addresses(7, [offset])
    assert resolver.names(7, addresses) == [UNKNOWN]
    assert resolver.counters == {"image_replaced": 1}


def test_wrong_descriptor_is_refused(resolver, program):
    """A descriptor of a file with another build-id is not believed either."""
    path = program("pie")
    resolver.add_image(file_info(path, build_id=OTHER_ID), os.open(path, os.O_RDONLY))
    assert resolver.names(7, [0x1000]) == [UNKNOWN]
    assert resolver.counters == {"image_replaced": 1}


def test_path_without_proof_is_not_trusted(resolver, program):
    """Neither build-id nor inode known: the file at the path may be any file."""
    path = program("no_build_id")
    resolver.add_image(ImageInfo(uid=7, kind="file", path=str(path)), None)
    assert resolver.names(7, [0x1000]) == [UNKNOWN]
    resolver.add_image(file_info(path), None)
    offset, _address = offset_of(path, "exported")
    assert resolver.names(7, resolver.elf_addresses(7, [offset]))[0].text == "exported"


def test_inode_of_another_host_is_not_trusted(program):
    """A recording of another machine cannot name our files by inode."""
    resolver = Resolver(run_info(kind="import", host="elsewhere"))
    resolver.add_image(file_info(program("no_build_id")), None)
    assert resolver.names(7, [0x1000]) == [UNKNOWN]
    path = program("pie")
    resolver.add_image(file_info(path, uid=8, inode=0, build_id=build_id(path)), None)
    offset, _address = offset_of(path, "exported")
    assert resolver.names(8, resolver.elf_addresses(8, [offset]))[0].text == "exported"
    resolver.close()


def test_missing_and_foreign_files(resolver, tmp_path):
    """Files that are gone or no ELF files, FIFOs among them, are unknown and counted."""
    (tmp_path / "script").write_text("#!/bin/sh\n")
    os.mkfifo(tmp_path / "fifo")
    for uid, name in enumerate(("none", "script", "fifo")):
        path = tmp_path / name
        info = ImageInfo(uid=uid, kind="file", path=str(path), inode=1, build_id=OTHER_ID)
        resolver.add_image(info, None)
        assert resolver.elf_addresses(uid, [5, 6]) == array("Q", [5, 6])
        assert resolver.names(uid, [5, 6]) == [UNKNOWN] * 2
    assert resolver.counters == {"image_gone": 1, "image_not_elf": 2}


def test_stripped_file_and_its_debug_file(program, tmp_path):
    """A stripped file gives IMAGE!0xSTART, and names once its build-id's debug file is there."""
    path, stripped = program("pie"), tmp_path / "worker"
    subprocess.run(["strip", "-s", "-o", str(stripped), str(path)], check=True)
    _offset, address = offset_of(path, "hidden_static")
    identifier = build_id(stripped)
    resolver = Resolver(run_info(), debug_root=str(tmp_path))
    resolver.add_image(file_info(stripped), None)
    expected = f"worker!{address:#x}"
    assert resolver.names(7, [address + 2]) == [Name(expected, expected, "range")]
    resolver.close()
    debug = tmp_path / ".build-id" / identifier[:2] / f"{identifier[2:]}.debug"
    debug.parent.mkdir(parents=True)
    subprocess.run(["objcopy", "--only-keep-debug", str(path), str(debug)], check=True)
    resolver = Resolver(run_info(), debug_root=str(tmp_path))
    resolver.add_image(file_info(stripped), None)
    assert resolver.names(7, [address + 2])[0].text == "hidden_static"
    resolver.close()


def test_debug_file_of_another_build_is_ignored(program, tmp_path):
    """A file at the debug file's place that has another build-id names nothing."""
    path, stripped = program("pie"), tmp_path / "worker"
    subprocess.run(["strip", "-s", "-o", str(stripped), str(path)], check=True)
    identifier = build_id(stripped)
    debug = tmp_path / ".build-id" / identifier[:2] / f"{identifier[2:]}.debug"
    debug.parent.mkdir(parents=True)
    shutil.copy(program("no_pie"), debug)
    resolver = Resolver(run_info(), debug_root=str(tmp_path))
    resolver.add_image(file_info(stripped), None)
    assert resolver.names(7, [offset_of(path, "hidden_static")[1]])[0].kind == "range"
    resolver.close()


def test_return_addresses_name_the_caller(resolver, program):
    """A return address at the very end of a function belongs to that function."""
    path = program("pie")
    resolver.add_image(file_info(path), None)
    start = offset_of(path, "asm_second")[1]
    assert resolver.names(7, [start])[0].text == "asm_second"
    assert resolver.names(7, [start], caller=True)[0].text == "asm_labels"
    assert resolver.names(7, [0], caller=True) == [UNKNOWN]


def test_build_id_comes_from_the_file(resolver, program):
    """An image without a build-id gets the file's, and its identity from it."""
    path = program("pie")
    resolver.add_image(file_info(path), None)
    assert resolver.image_build_id(7) == build_id(path)
    assert resolver.image_identity(7) == identity(f"build-id:{build_id(path)}")
    bare = file_info(program("no_build_id"), uid=8)
    resolver.add_image(bare, None)
    numbers = f"{bare.dev_major}:{bare.dev_minor}:{bare.inode}:0"
    assert resolver.image_build_id(8) == ""
    assert resolver.image_identity(8) == identity(f"inode:{numbers}:{bare.path}")


def test_pseudo_images(resolver):
    """BPF programs have their own name; anonymous and unknown memory has none."""
    resolver.add_image(
        ImageInfo(uid=1, kind="bpf", path="[bpf]", symbol="bpf_prog_1", start=4096, end=8192), None
    )
    assert resolver.elf_addresses(1, [5000]) == array("Q", [904])
    assert resolver.names(1, [904]) == [Name("bpf_prog_1", "bpf_prog_1", "named")]
    assert resolver.image_identity(1) == identity("bpf:bpf_prog_1")
    for uid, kind in ((2, "anon"), (3, "unknown"), (4, "vsyscall")):
        resolver.add_image(ImageInfo(uid=uid, kind=kind, path=f"[{kind}]"), None)
        assert resolver.elf_addresses(uid, [77]) == array("Q", [77])
        assert resolver.names(uid, [77]) == [UNKNOWN]
        assert resolver.image_identity(uid) == identity(f"[{kind}]")


@pytest.fixture
def kernel():
    """The running kernel's list; skipped where it hides its addresses or has no build-id."""
    if not running_kernel_build_id():
        pytest.skip("the kernel has no build-id")
    try:
        with Kallsyms() as table:
            yield table
    except NativeError as error:
        pytest.skip(f"kallsyms: {error}")


def test_kernel_names(resolver, kernel):
    """Runtime addresses of the kernel are stored from a fixed base and named by kallsyms."""
    text = kernel.text.text
    resolver.add_image(ImageInfo(uid=1, kind="kernel", path="[kernel]"), None)
    runtime = [text + 0x1000, text + 0x100000]
    addresses = resolver.elf_addresses(1, runtime)
    assert list(addresses) == [KERNEL_BASE + 0x1000, KERNEL_BASE + 0x100000]
    expected = [found.name for found in kernel.lookup(runtime)]
    assert [name.text for name in resolver.names(1, addresses)] == expected
    assert resolver.image_identity(1) == identity(f"kernel:{running_kernel_build_id()}")


def test_kernel_of_another_boot(kernel):
    """The recording's own place of _text counts, and the names stay right."""
    resolver = Resolver(run_info(kind="import"))
    resolver.set_kernel_text(0xFFFFFFFFA0000000)
    resolver.add_image(ImageInfo(uid=1, kind="kernel", path="[kernel]"), None)
    addresses = resolver.elf_addresses(1, [0xFFFFFFFFA0001234])
    assert list(addresses) == [KERNEL_BASE + 0x1234]
    expected = kernel.lookup([kernel.text.text + 0x1234])[0].name
    assert resolver.names(1, addresses)[0].text == expected
    resolver.close()


def test_another_kernel_has_no_names():
    """Kernel frames of a kernel that is not the running one stay unknown, and are counted."""
    resolver = Resolver(OTHER_ID)
    resolver.add_image(
        ImageInfo(uid=1, kind="kernel", path="[kernel]", start=0xFFFFFFFFA0000000), None
    )
    resolver.add_image(ImageInfo(uid=2, kind="vdso", path="[vdso]"), None)
    addresses = resolver.elf_addresses(1, [0xFFFFFFFFA0001000])
    assert list(addresses) == [KERNEL_BASE + 0x1000]
    assert resolver.names(1, addresses) == [UNKNOWN]
    assert resolver.names(2, [0x700]) == [UNKNOWN]
    assert resolver.counters == {"kernel_foreign": 2}
    resolver.close()


def test_hidden_kernel_addresses(tmp_path):
    """A list of zeros is said to be hidden."""
    if not running_kernel_build_id():
        pytest.skip("the kernel has no build-id")
    (tmp_path / "kallsyms").write_text("0000000000000000 T _text\n0000000000000000 T x\n")
    resolver = Resolver(run_info(), kallsyms=str(tmp_path / "kallsyms"))
    resolver.add_image(ImageInfo(uid=1, kind="kernel", path="[kernel]"), None)
    assert resolver.names(1, resolver.elf_addresses(1, [0xFFFFFFFF81001000])) == [UNKNOWN]
    assert resolver.counters == {"kernel_hidden": 1}
    resolver.close()


def test_module_names(tmp_path):
    """A module's addresses are relative to its start, which may differ in this boot."""
    if not running_kernel_build_id():
        pytest.skip("the kernel has no build-id")
    (tmp_path / "kallsyms").write_text(
        "ffffffff81000000 T _text\nffffffffc0a00000 t nft_first\t[nf_tables]\n"
        "ffffffffc0a00100 t nft_second\t[nf_tables]\nffffffffc0b00000 t other\t[other]\n"
    )
    (tmp_path / "modules").write_text("nf_tables 4096 0 - Live 0xffffffffc0a00000\n")
    resolver = Resolver(
        run_info(), kallsyms=str(tmp_path / "kallsyms"), modules=str(tmp_path / "modules")
    )
    start = 0xFFFFFFFFC0F00000
    info = ImageInfo(uid=1, kind="module", path="[nf_tables]", start=start, end=start + 0x1000)
    resolver.add_image(info, None)
    resolver.add_image(
        ImageInfo(uid=2, kind="module", path="[gone]", start=start, end=start + 1), None
    )
    addresses = resolver.elf_addresses(1, [start + 0x10, start + 0x110])
    assert list(addresses) == [0x10, 0x110]
    assert [name.text for name in resolver.names(1, addresses)] == ["nft_first", "nft_second"]
    assert resolver.names(1, [0x200000]) == [UNKNOWN]
    assert resolver.names(2, [0]) == [UNKNOWN]
    assert resolver.counters == {"module_gone": 1}
    resolver.close()


def test_vdso_names(resolver):
    """Offsets in the vdso are named by the kernel's own vdso image."""
    image = own_vdso()
    if not image or not running_kernel_build_id():
        pytest.skip("no vdso or no build-id")
    with Elf(image) as elf:
        elf.load_symbols()
        answers = elf.names(range(0, len(image), 64))
        expected = [one.name.decode() for one in answers if one.kind == NAMED]
    resolver.add_image(ImageInfo(uid=3, kind="vdso", path="[vdso]"), None)
    names = resolver.names(3, resolver.elf_addresses(3, range(0, len(image), 64)))
    assert [name.text for name in names if name.kind == "named"] == expected
    assert any("clock_gettime" in name for name in expected)


def test_tables_stay_within_the_limit(program):
    """With room for one table only, files take turns and every answer stays right."""
    resolver = Resolver(run_info(), memory_limit=1)
    ways = ["pie", "no_pie", "static", "no_plt", "separate_code"]
    for uid, way in enumerate(ways):
        resolver.add_image(file_info(program(way), uid=uid), None)
    for _round in range(2):
        for uid, way in enumerate(ways):
            address = offset_of(program(way), "hidden_static")[1]
            assert resolver.names(uid, [address])[0].text == "hidden_static"
    assert len(resolver._tables) == 1
    resolver.close()


def test_descriptors_stay_within_the_limit(program):
    """Of more files than may be open the oldest are closed, and opened again by path."""
    path = program("pie")
    files = ImageFiles(limit=4)
    before = open_descriptors()
    for uid in range(20):
        files.give(uid, os.open(path, os.O_RDONLY))
    assert open_descriptors() == before + 4
    files.open_elf(file_info(path, uid=0)).close()
    files.close()
    assert open_descriptors() == before


def test_no_descriptor_leaks(program):
    """A closed resolver leaves no descriptor behind."""
    before = open_descriptors()
    resolver = Resolver(run_info())
    for uid, way in enumerate(["pie", "static", "no_pie"]):
        resolver.add_image(file_info(program(way), uid=uid), os.open(program(way), os.O_RDONLY))
        resolver.names(uid, [0x1000])
    resolver.close()
    assert open_descriptors() == before


def test_names_fit_a_line(resolver, tmp_path, compiler):
    """Control characters in a symbol or a path are escaped."""
    source, path = tmp_path / "s.c", tmp_path / "a\nb"
    source.write_text('int f(void) __asm__("\\"two\\\\tparts\\""); int f(void) { return 1; }\n')
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    resolver.add_image(file_info(path), None)
    with path.open("rb") as stream, Elf(stream.fileno()) as elf:
        elf.load_symbols()
        start = next(one.start for one in elf.names(range(0x2000)) if b"parts" in one.name)
    assert resolver.names(7, [start])[0].text == "two\\tparts"

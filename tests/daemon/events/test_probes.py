"""Probes: the path, the function in it, its offset; what is not there is refused."""

import os
import subprocess
from pathlib import Path

import pytest

from opd.errors import EventError, PermissionDeniedError
from opd.events import parse_event
from places import PROGRAMS


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A machine whose sysfs has the PMU of uprobes."""
    root = tmp_path_factory.mktemp("machine")
    place = root / "sys" / "bus" / "event_source" / "devices" / "uprobe"
    (place / "format").mkdir(parents=True)
    (place / "type").write_text("8\n")
    (place / "format" / "retprobe").write_text("config:0\n")
    (place / "format" / "ref_ctr_offset").write_text("config:32-63\n")
    return {"sysfs": str(root / "sys"), "proc": str(root / "proc")}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A compiled program whose functions are known."""
    target = tmp_path_factory.mktemp("a folder") / "ticks"
    subprocess.run(["gcc", "-O1", "-g", PROGRAMS / "ticks.c", "-o", target], check=True)
    return target


def offset(program, name, machine):
    """Where a probe of that function is put."""
    return parse_event(f"uprobe:{program}:{name}", **machine).config2


def test_a_function_and_an_offset_from_it(machine, program):
    """Type and path are the kernel's; the same place by number; every call is one."""
    request = parse_event(f"uprobe:{program}:tick", **machine)
    assert (request.type, request.config, request.path) == (8, 0, str(program))
    assert (request.hz, request.period, request.unit) == (None, 1, "count")
    assert request.name == f"uprobe:{program}:tick"
    assert request.fallbacks == ()
    start = request.config2
    assert offset(program, "tick+0x2", machine) == start + 2
    assert offset(program, f"{start:#x}", machine) == start
    assert offset(program, f"{start}", machine) == start
    assert offset(program, "hidden", machine) != start


def test_a_return_modifiers_and_a_count(machine, program):
    """A return is a bit of the format; what stands behind is as of any event."""
    request = parse_event(f"uretprobe:{program}:tick:u:100:0:0:1".replace(":u:", ":"), **machine)
    assert (request.config, request.period, request.exclude_kernel) == (1, 100, True)
    assert request.name == f"uretprobe:{program}:tick:u"


def test_a_stripped_program_knows_its_exports_alone(machine, program, tmp_path):
    """.dynsym serves where there is no .symtab; the others are unknown."""
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, program], check=True)
    with pytest.raises(EventError, match="no function 'tick'"):
        parse_event(f"uprobe:{stripped}:tick", **machine)
    shared = tmp_path / "shared.so"
    flags = ["-shared", "-fPIC", "-O1", "-s"]
    subprocess.run(["gcc", *flags, PROGRAMS / "ticks.c", "-o", shared], check=True)
    assert offset(shared, "tick", machine) > 0


def test_a_path_with_colons(machine, program, tmp_path):
    """The longest needed part of the words that is a file."""
    odd = tmp_path / "a:b"
    odd.symlink_to(program)
    request = parse_event(f"uprobe:{odd}:tick:50hz", **machine)
    assert (request.path, request.hz) == (str(odd), 50)


def test_two_functions_of_one_name(machine, tmp_path):
    """Which of them, only an offset can say."""
    for i in (1, 2):
        code = f"static int same(void) {{ return {i}; }}\nint f{i}(void) {{ return same(); }}\n"
        (tmp_path / f"{i}.c").write_text(code)
    shared = tmp_path / "two.so"
    sources = [tmp_path / "1.c", tmp_path / "2.c"]
    subprocess.run(["gcc", "-shared", "-fPIC", "-O0", *sources, "-o", shared], check=True)
    with pytest.raises(EventError, match="several functions 'same'"):
        parse_event(f"uprobe:{shared}:same", **machine)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("uprobe:", ["expected an absolute path, got ''"]),
        ("uprobe:ticks:tick", ["expected an absolute path, got 'ticks'"]),
        ("uprobe:{program}", ["expected a symbol behind the path"]),
        ("uprobe:{program}:", ["expected a symbol behind the path"]),
        ("uprobe:/no/such/file:tick", ["cannot open /no/such/file", "No such file"]),
        ("uprobe:/:tick", ["/ is no ELF file"]),
        ("uprobe:/dev/null:tick", ["/dev/null is no ELF file"]),
        ("uprobe:{source}:tick", ["is no ELF file"]),
        ("uprobe:{program}:tik", ["no function 'tik'", "nm -D"]),
        ("uprobe:{program}:stdout", ["no function 'stdout'"]),
        ("uprobe:{program}:0", ["offset 0", "no executable segment"]),
        ("uprobe:{program}:99999999999999999999", ["no executable segment"]),
        ("uprobe:{program}:tick+0xffffff", ["outside of the code"]),
        ("uprobe:{program}:tick+0xffffffffffffffff", ["outside of the code"]),
        ("uretprobe:{program}:tick+1", ["leave out the offset"]),
        ("uprobe:{program}:tick:0", ["'0' is below the minimum"]),
        ("uprobe:{program}:tick:1:1", ["only 0 is right"]),
        ("uprobe:{program}:tick:x", ["unknown modifier 'x'"]),
        ("uprobe:/\0:tick", ["cannot open"]),
        ("uprobe:/" + "x" * 8192, ["1 to 8192 characters"]),
    ],
)
def test_refused_with_the_token(machine, program, text, parts):
    """The file, the function or the number that is wrong."""
    text = text.replace("{program}", str(program)).replace("{source}", str(PROGRAMS / "ticks.c"))
    with pytest.raises(EventError) as caught:
        parse_event(text, **machine)
    for part in parts:
        assert part in str(caught.value)


def test_a_kernel_without_uprobes(program, tmp_path):
    """It says what the kernel lacks; one without returns, that."""
    with pytest.raises(EventError, match="no PMU 'uprobe'"):
        parse_event(f"uprobe:{program}:tick", sysfs=str(tmp_path), proc=str(tmp_path))
    place = tmp_path / "bus" / "event_source" / "devices" / "uprobe"
    place.mkdir(parents=True)
    (place / "type").write_text("8")
    with pytest.raises(EventError, match="no retprobe"):
        parse_event(f"uretprobe:{program}:tick", sysfs=str(tmp_path), proc=str(tmp_path))


@pytest.mark.privileged
def test_a_file_that_may_not_be_read(machine, tmp_path):
    """Another user gets 77."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    locked = tmp_path / "locked"
    locked.write_bytes(Path("/bin/true").read_bytes())
    locked.chmod(0o711)
    for parent in {*tmp_path.parents[:-2], *Path(machine["sysfs"]).parents[:-2]}:
        parent.chmod(parent.stat().st_mode | 0o055)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setuid(65534)
            parse_event(f"uprobe:{locked}:main", **machine)
        except PermissionDeniedError as error:
            status = 0 if error.exit_status == 77 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

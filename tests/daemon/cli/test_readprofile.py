"""opctl readprofile: files as /proc/profile is, a daemon's buffer, readprofile(8) beside it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import struct
import subprocess
import sys
from array import array

import pytest

from opd.cli import opctl
from opd.cli.profilebuffer import Function, Profile, counters, read_map, read_words, rows_of
from opd.errors import UsageError
from opd.query import tables
from opd.query.server import Server

# Functions as kallsyms lists them, with what belongs to nobody's profile around.
MAP = """\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T startup
ffffffff81000040 t idle_loop
ffffffff81000100 W weak_copy
ffffffff81000100 t copy_alias
ffffffff81000180 T last_one
ffffffff81000200 T _etext
ffffffff81000300 D some_data
ffffffff81000400 t in_module [ext4]
"""
START = 0xFFFFFFFF81000000
LENGTH = 32
BINS = {4: 10, 7: 2, 16: 5, 24: 1}


@pytest.fixture
def files(tmp_path):
    """A map and a buffer of 16-byte slots."""
    names, buffer = tmp_path / "map", tmp_path / "profile"
    names.write_text(MAP)
    words = [16, *(BINS.get(slot, 0) for slot in range(LENGTH))]
    buffer.write_bytes(struct.pack(f"={len(words)}I", *words))
    return names, buffer


@pytest.fixture
def profile():
    """The same buffer."""
    return Profile(START, 16, LENGTH, BINS)


def of_file(capsys, files, *words):
    """What opctl prints of the files."""
    names, buffer = files
    assert opctl.main(["readprofile", "-p", str(buffer), "-m", str(names), *words]) == 0
    return capsys.readouterr().out


def test_functions_are_those_from_stext_to_etext(files):
    """The first name of an address; modules and data are no part of it."""
    functions = read_map(str(files[0]))
    assert [(one.name, one.start - START, one.end - START) for one in functions] == [
        ("startup", 0, 0x40),
        ("idle_loop", 0x40, 0x100),
        ("weak_copy", 0x100, 0x180),
        ("last_one", 0x180, 0x200),
    ]


def test_a_map_may_be_compressed(tmp_path):
    """As readprofile takes it."""
    packed = tmp_path / "System.map.gz"
    packed.write_bytes(gzip.compress(MAP.encode()))
    assert len(read_map(str(packed))) == 4


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("ffffffff81000000 T start\n", "no _stext"),
        ("0000000000000000 T _stext\n0000000000000000 T x\n", "all addresses are 0"),
        ("not a map\n", "not a line of a map"),
    ],
)
def test_what_is_no_map_is_said(tmp_path, text, word):
    """And where."""
    path = tmp_path / "map"
    path.write_text(text)
    with pytest.raises(UsageError, match=word) as caught:
        read_map(str(path))
    assert str(path) in str(caught.value)


def test_a_file_of_the_other_byte_order_is_turned_round(files):
    """Unless it is not to be looked at."""
    path = files[1]
    words = read_words(str(path))
    swapped = array("I", words)
    swapped.byteswap()
    path.write_bytes(swapped.tobytes())
    assert read_words(str(path)) == words
    assert read_words(str(path), swap=False) == swapped


@pytest.mark.parametrize("data", [b"", b"\x10\0\0\0", b"\x10\0\0\0\1\0\0", b"\x11\0\0\0\1\0\0\0"])
def test_what_is_no_buffer_is_said(tmp_path, data):
    """Too short, no whole words, no step."""
    path = tmp_path / "profile"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="no profile buffer"):
        read_words(str(path))


def test_ticks_are_those_of_the_slots_of_a_function(files, profile):
    """Every tick is in one row or nobody's."""
    rows, unknown = rows_of(profile, read_map(str(files[0])))
    assert [(row.function.name, row.ticks) for row in rows] == [
        ("idle_loop", 12),
        ("weak_copy", 5),
        ("last_one", 1),
    ]
    assert unknown == 0
    assert rows[0].load == 12 / 0xC0
    gap = [Function("idle_loop", START + 0x40, START + 0x50)]
    rows, unknown = rows_of(profile, gap)
    assert (rows[0].ticks, unknown) == (10, 8)


def test_counters_are_all_slots_of_a_function(files, profile):
    """Those without ticks too, up to the buffer's end."""
    rows, _ = rows_of(profile, read_map(str(files[0])), everything=True)
    assert rows[0].function.name == "startup"
    assert [ticks for _, ticks in counters(profile, rows[1])] == [10, 0, 0, 2, *[0] * 8]
    short = profile._replace(length=6)
    assert len(counters(short, rows[1])) == 2


def test_lines_are_readprofiles(capsys, files):
    """Ticks, name, ticks a byte; nobody's; the sum."""
    assert of_file(capsys, files).splitlines() == [
        "    12 idle_loop                                  0.0625",
        "     5 weak_copy                                  0.0391",
        "     1 last_one                                   0.0078",
        "     0 *unknown*",
        "    18 total                                      0.0352",
    ]
    assert of_file(capsys, files, "-v").splitlines()[0] == (
        "ffffffff81000040 idle_loop                                    12   0.0625"
    )
    assert of_file(capsys, files, "-a").splitlines()[0].split() == ["0", "startup", "0.0000"]
    assert of_file(capsys, files, "-b").splitlines()[:4] == [
        "idle_loop:",
        "\tffffffff81000040\t10",
        "\tffffffff81000070\t2",
        "  total\t\t\t\t12",
    ]
    assert "\t0xffffffff81000070\tidle_loop+0x30\t2" in of_file(capsys, files, "-s").splitlines()
    assert of_file(capsys, files, "-i") == "Sampling_step: 16\n"
    top = of_file(capsys, files, "--top", "1").splitlines()
    assert [line.split()[:2] for line in top] == [
        ["12", "idle_loop"],
        ["0", "*unknown*"],
        ["18", "total"],
    ]


def test_json_and_csv_have_the_same(capsys, files):
    """Whole numbers for addresses; bins and counters by name."""
    answer = json.loads(of_file(capsys, files, "-b", "-s", "--format", "json"))
    assert (answer["ticks"], answer["step"], answer["start"]) == (18, 16, START)
    assert answer["rows"][0]["bins"] == [
        {"address": START + 0x40, "ticks": 10},
        {"address": START + 0x70, "ticks": 2},
    ]
    assert len(answer["rows"][0]["counters"]) == 12
    sheet = list(csv.DictReader(io.StringIO(of_file(capsys, files, "--format", "csv"))))
    assert [(row["symbol"], row["ticks"]) for row in sheet] == [
        (row["symbol"], str(row["ticks"])) for row in answer["rows"]
    ]
    slots = list(csv.DictReader(io.StringIO(of_file(capsys, files, "-b", "--format", "csv"))))
    assert sum(int(row["ticks"]) for row in slots) == 18


@pytest.mark.parametrize(
    "words",
    [
        ("-r", "-i"),
        ("--raw", "x", "-i"),
        ("-p", "x", "-r"),
        ("-p", "x", "--raw", "y"),
        ("-n",),
        ("--top", "-1"),
    ],
)
def test_contradictions_are_refused(capsys, words):
    """Before anything is asked or read."""
    assert opctl.main(["readprofile", *words]) == 2
    assert capsys.readouterr().out == ""


def test_no_daemon_is_69_and_a_missing_file_1(capsys, tmp_path):
    """As every subcommand."""
    assert opctl.main(["readprofile", "--endpoint", f"ipc://{tmp_path}/none"]) == 69
    assert opctl.main(["readprofile", "-p", str(tmp_path / "none")]) == 1
    assert opctl.main(["readprofile", "--session-dir", str(tmp_path)]) == 2
    capsys.readouterr()


@pytest.mark.parametrize(
    "case",
    [
        (None, 1, "No such file or directory"),
        (b"", 2, "0 bytes are no profile buffer"),
        (b"\x10\0\0", 2, "3 bytes are no profile buffer"),
        (struct.pack("=I", 16), 2, "4 bytes are no profile buffer"),
        (struct.pack("=3I", 16, 1, 1)[:-1], 2, "11 bytes are no profile buffer"),
        (struct.pack("=3I", 16, 1, 1), 2, "it was cut short"),
        (b"\xfa\x01\x9c\x83" * 64, 2, "not with a step"),
    ],
)
def test_a_file_that_is_no_buffer_is_one_line(capsys, files, tmp_path, case):
    """With the file, in words, by the status that it has elsewhere."""
    content, status, words = case
    wrong = tmp_path / "wrong"
    if content is not None:
        wrong.write_bytes(content)
    assert_is_refused(capsys, ("-p", str(wrong), "-m", str(files[0])), status, str(wrong), words)


@pytest.mark.parametrize(
    "case",
    [
        ("map", None, 1, "No such file or directory"),
        ("map", b"", 2, "no _stext"),
        ("map", bytes(range(256)) * 99, 2, "no _stext"),
        ("map", b"\xff\xfe\x07 \x80 \x81\n", 2, "not a line of a map"),
        ("map", b"\0" * (1 << 17), 2, "a line of 65536"),
        ("map", b"-1 T _stext\n", 2, "not a line of a map"),
        ("map", b"9 T _stext\n9 T _etext\n", 2, "is not above"),
        ("map.gz", b"no gzip", 2, "cannot be unpacked"),
        ("map.gz", gzip.compress(MAP.encode())[:-20], 2, "cannot be unpacked"),
        ("map.gz", gzip.compress(MAP.encode())[:12] + b"\xff" * 40, 2, "cannot be unpacked"),
    ],
)
def test_a_file_that_is_no_map_is_one_line(capsys, files, tmp_path, case):
    """The same."""
    name, content, status, words = case
    wrong = tmp_path / "wrong" / name
    wrong.parent.mkdir()
    if content is not None:
        wrong.write_bytes(content)
    assert_is_refused(capsys, ("-p", str(files[1]), "-m", str(wrong)), status, str(wrong), words)


def assert_is_refused(capsys, options, status, *words):
    """One line of words on stderr, nothing on stdout."""
    assert opctl.main(["readprofile", *options]) == status
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "Errno" not in said.err
    for word in words:
        assert word in said.err


def test_devices_without_an_end_are_refused_at_once(capsys, files):
    """By their first word, or line."""
    assert_is_refused(capsys, ("-p", "/dev/zero", "-m", str(files[0])), 2, "begins with 0")
    assert_is_refused(capsys, ("-p", str(files[1]), "-m", "/dev/zero"), 2, "a line of 65536")


class Backend:
    """Has a buffer with names."""

    def __init__(self) -> None:
        self.asked = []
        self.resets = 0

    def hello(self):
        """Nothing but what the server says."""
        return {}

    def readprofile(self, params):
        """Keep what was asked for."""
        self.asked.append(params)
        slots = sorted(BINS)
        columns = [
            tables.numbers("slot", "u64", slots),
            tables.numbers("ticks", "u64", [BINS[slot] for slot in slots]),
        ]
        if params["names"]:
            names = ["idle_loop", "idle_loop", "copy\n", ""]
            columns += [
                tables.strings("symbol", names),
                tables.numbers("symbol_start", "u64", [START + at for at in (64, 64, 256, 0)]),
                tables.numbers("symbol_end", "u64", [START + at for at in (256, 256, 384, 0)]),
            ]
        answer = {"what": "kernel", "image": "[kernel]", "outside": 4, "start": START, "step": 16}
        return {**answer, "length": LENGTH, "ticks": 18, "rows": tables.table(4, columns)}

    def readprofile_reset(self):
        """Count it."""
        self.resets += 1
        return {"reset": True}


@pytest.fixture
def backend(tmp_path):
    """A server with a buffer; what it was asked."""
    made = Backend()
    server = Server(f"ipc://{tmp_path}/sock", made, state_dir=tmp_path)
    made.endpoint = server.endpoint
    server.start()
    yield made
    server.stop()


def test_a_daemons_buffer_is_shown_with_its_names(capsys, backend):
    """A name reaches no terminal unescaped; what nobody names is *unknown*."""
    assert opctl.main(["readprofile", "--endpoint", backend.endpoint]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["12", "idle_loop"],
        ["5", "copy\\x0a"],
        ["1", "*unknown*"],
        ["17", "total"],
    ]
    assert backend.asked == [{"names": True, "all": False}]
    assert opctl.main(["readprofile", "--endpoint", backend.endpoint, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ticks"], answer["outside"], answer["unknown"]) == (18, 4, 1)


def test_the_raw_buffer_is_proc_profiles(capsys, backend, tmp_path):
    """The step, then a word a slot; names are not asked for."""
    path = tmp_path / "raw"
    assert opctl.main(["readprofile", "--endpoint", backend.endpoint, "--raw", str(path)]) == 0
    words = struct.unpack(f"={LENGTH + 1}I", path.read_bytes())
    assert words == (16, *(BINS.get(slot, 0) for slot in range(LENGTH)))
    assert backend.asked == [{"names": False, "all": False}]
    wrong = str(tmp_path / "no" / "such")
    assert opctl.main(["readprofile", "--endpoint", backend.endpoint, "--raw", wrong]) == 1
    assert wrong in capsys.readouterr().err


def test_a_raw_buffer_can_go_to_stdout(backend):
    """For a pipe."""
    command = [sys.executable, "-m", "opd.cli.opctl", "readprofile", "--raw", "-"]
    done = subprocess.run(
        [*command, "--endpoint", backend.endpoint], capture_output=True, check=True, timeout=60
    )
    assert done.stdout[:4] == struct.pack("=I", 16)
    assert len(done.stdout) == 4 * (LENGTH + 1)


def test_a_raw_buffer_that_nobody_can_take_is_one_line(backend):
    """A full device, at stdout and as a file."""
    command = [sys.executable, "-m", "opd.cli.opctl", "readprofile"]
    command += ["--endpoint", backend.endpoint, "--raw"]
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        for where in ("-", "/dev/full"):
            done = subprocess.run(
                [*command, where],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                timeout=60,
            )
            assert done.returncode == 1
            assert done.stderr.count("\n") == 1
            assert "cannot write" in done.stderr
            assert "No space left on device" in done.stderr


def test_a_large_buffer_is_written_in_parts(profile):
    """Each slot at its place, across the parts."""
    large = profile._replace(length=(1 << 20) + 5, bins={0: 1, (1 << 20) - 1: 2, 1 << 20: 3})
    parts = list(large.chunks())
    assert [len(part) for part in parts] == [1, 1 << 20, 5]
    assert (parts[0][0], parts[1][0], parts[1][-1], parts[2][0]) == (16, 1, 2, 3)
    assert sum(map(sum, parts[1:])) == 6


def test_a_map_of_a_kernel_loaded_elsewhere_is_refused(capsys, backend, tmp_path):
    """Its names would be of nothing, and all ticks nobody's."""
    path = tmp_path / "System.map"
    path.write_text(MAP.replace("ffffffff81", "ffffffff91"))
    words = ("--endpoint", backend.endpoint, "-m", str(path))
    assert_is_refused(capsys, words, 2, str(path), "loaded elsewhere", "0xffffffff81000000")


def test_a_map_of_ones_own_names_a_daemons_buffer(capsys, backend, files):
    """Without the daemon's names."""
    words = ["--endpoint", backend.endpoint, "-m", str(files[0])]
    assert opctl.main(["readprofile", *words]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[:2] == ["12", "idle_loop"]
    assert backend.asked == [{"names": False, "all": False}]


def test_reset_asks_for_nothing_else(capsys, backend):
    """And shows nothing of the buffer."""
    assert opctl.main(["readprofile", "--endpoint", backend.endpoint, "-r"]) == 0
    assert capsys.readouterr().out == "all slots are 0\n"
    assert (backend.resets, backend.asked) == (1, [])


def test_readprofile_reads_what_we_write(backend, files, tmp_path):
    """util-linux's program finds the same ticks in the same functions.

    It counts the last slot of a function to the next one, so the buffer has none there.
    """
    program = shutil.which("readprofile") or shutil.which("readprofile", path="/usr/sbin")
    if program is None:
        pytest.skip("no readprofile(8) here")
    path = tmp_path / "raw"
    assert opctl.main(["readprofile", "--endpoint", backend.endpoint, "--raw", str(path)]) == 0
    done = subprocess.run(
        [program, "-p", str(path), "-m", str(files[0])],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = {line.split()[1]: int(line.split()[0]) for line in done.stdout.splitlines()}
    ours = {"idle_loop": 12, "total": 18}
    assert {name: found[name] for name in ours} == ours

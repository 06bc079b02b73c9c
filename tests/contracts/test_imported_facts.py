"""What import makes of a file's own facts: times, kernel, mappings, periods, tasks."""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from opd.sampling.kernel import kernel_build_id
from perfdata_writer import (
    DEFAULT_SAMPLE_TYPE,
    KERNEL,
    MISC_KERNEL,
    MISC_MMAP_BUILD_ID,
    PERIOD,
    TIME,
    USER,
    Attr,
    PerfData,
)
from places import BIN

NIGHT_NS = int(dt.datetime(2024, 1, 31, 3, 12, tzinfo=dt.UTC).timestamp()) * 10**9
KERNEL_PID = 2**32 - 1


def opctl(*arguments, check=True):
    """Run opctl; its JSON, or the finished process."""
    done = subprocess.run(
        [BIN / "opctl", "--format", "json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if not check:
        return done
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


class Imported:
    """A store with one recording in it."""

    def __init__(self, data, folder, *, mtime_ns=None):
        path = data.write(folder / "some.data")
        if mtime_ns is not None:
            os.utime(path, ns=(mtime_ns, mtime_ns))
        self.store = str(folder / "new" / "store")
        self.result = opctl("--session-dir", self.store, "import", str(path))

    def report(self, *arguments):
        """All rows of a report."""
        return opctl("--session-dir", self.store, "report", "--top", "0", *arguments)


def hits(pid=7, times=(1000,), **attr):
    """A recording with a sample at each time."""
    data = PerfData([Attr(**attr)])
    data.comm(pid=pid, comm="demo", time=times[0] - 1, execs=True)
    data.mmap2(pid=pid, start=0x400000, length=0x1000, path="/nonexistent/demo", time=times[0] - 1)
    for time in times:
        data.sample(pid=pid, ip=0x400123, time=time, chain=[USER, 0x400123])
    return data


def test_import_creates_the_session_directory(tmp_path):
    """`--session-dir DIR` is made when missing, parents too, private, and answers afterwards."""
    imported = Imported(hits(), tmp_path)
    assert Path(imported.store).stat().st_mode & 0o777 == 0o750
    assert imported.report()["total"] == 1


def test_times_come_from_the_clock_data(tmp_path):
    """With CLOCK_DATA the samples are where they were on the wall clock, and a range finds them."""
    data = hits(times=(5_000_000_000, 65_000_000_000), clockid=1)
    data.features["clock_data"] = (1, NIGHT_NS, 0)
    imported = Imported(data, tmp_path)
    assert imported.report()["total"] == 2
    assert imported.report("--since", "2024-01-31T03:13Z")["total"] == 1
    assert imported.report("--until", "2024-01-31T03:12:30+00:00")["total"] == 1
    assert imported.report("--since", "2024-01-31T03:14:00Z")["total"] == 0


def test_times_come_from_the_mtime_else(tmp_path):
    """Without CLOCK_DATA the last sample was taken when the file was last written."""
    data = hits(times=(5_000_000_000, 65_000_000_000))
    imported = Imported(data, tmp_path, mtime_ns=NIGHT_NS)
    assert imported.report("--since", "2024-01-31T03:11:45Z")["total"] == 1
    assert imported.report("--since", "2024-01-31T03:10:30Z")["total"] == 2
    assert imported.report("--until", "2024-01-31T03:11:30Z")["total"] == 1


def test_a_recording_of_years_ago_is_all_there(tmp_path):
    """The default range of a store without a daemon is everything, whatever its age."""
    assert Imported(hits(), tmp_path, mtime_ns=NIGHT_NS).report()["total"] == 1


def test_a_recording_without_times_is_imported(tmp_path):
    """`perf record --per-thread` has no TIME, and all ones as the times of its samples."""
    data = PerfData([Attr(sample_type=DEFAULT_SAMPLE_TYPE & ~TIME)])
    data.features["sample_time"] = (2**64 - 1, 2**64 - 1)
    data.comm(pid=7, comm="demo", execs=True)
    data.sample(pid=7, ip=0x400123, chain=[USER, 0x400123])
    done = opctl(
        *("--session-dir", str(tmp_path / "s")),
        *("import", str(data.write(tmp_path / "no-times.data"))),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["samples"] == 1


def test_a_sample_weighs_its_period(tmp_path):
    """By PERIOD where samples carry it, by the attribute's fixed period where they do not."""
    data = PerfData(
        [
            Attr("cpu-clock", ids=(1,), frequency=True, sample_period=99),
            Attr("page-faults", config=2, ids=(2,), sample_period=5),
        ]
    )
    data.attrs[1].sample_type &= ~PERIOD
    data.attrs[0].sample_type |= PERIOD
    for period in (10, 30):
        data.sample(event=0, pid=7, ip=0x10, time=1000, period=period, chain=[USER, 0x10])
    data.sample(event=1, pid=7, ip=0x10, time=1001, chain=[USER, 0x10])
    imported = Imported(data, tmp_path)
    clock, faults = imported.report(), imported.report("-e", "page-faults")
    assert (clock["total"], clock["weight_total"]) == (2, 40)
    assert (faults["total"], faults["weight_total"]) == (1, 5)
    assert clock["quality"]["hz_asked"] == 99
    assert faults["quality"]["hz_asked"] is None


def text_of_the_kernel():
    """Where _text and some later function of the running kernel are."""
    found = {}
    for line in Path("/proc/kallsyms").read_text().splitlines():
        address, kind, name = line.split()[:3]
        if name in ("_text", "do_sys_poll", "do_exit") and kind in "tTDd":
            found[name] = int(address, 16)
    if not found.get("_text") or not found.get("do_exit"):
        pytest.skip("kallsyms hides its addresses here")
    return found["_text"], found["do_exit"]


def kernel_recording(*, in_table=b"", in_mapping=b""):
    """One kernel sample, with the kernel's build-id in the table, in its mapping, or nowhere."""
    text, function = text_of_the_kernel()
    data = PerfData([Attr()])
    if in_table:
        data.features["build_ids"] = [(-1, MISC_KERNEL, in_table, "[kernel.kallsyms]")]
    where = {"pid": KERNEL_PID, "tid": 0, "start": text, "length": 0x2000000, "offset": text}
    path = "[kernel.kallsyms]_text"
    if in_mapping:
        assert MISC_MMAP_BUILD_ID
        data.mmap2(**where, path=path, build_id=in_mapping, misc=MISC_KERNEL)
    else:
        data.mmap(**where, path=path, misc=MISC_KERNEL)
    data.sample(pid=7, ip=function, time=1000, misc=MISC_KERNEL, chain=[KERNEL, function])
    return data


@pytest.mark.parametrize("place", ["in_table", "in_mapping"])
def test_kernel_names_when_the_build_ids_agree(tmp_path, place):
    """The live kallsyms names a file's kernel of the same build-id, wherever the file says it."""
    own = bytes.fromhex(kernel_build_id())
    rows = Imported(kernel_recording(**{place: own}), tmp_path).report()["rows"]
    assert [(row["image"], row["symbol"]) for row in rows] == [("[kernel]", "do_exit")]


@pytest.mark.parametrize("build_id", [b"", bytes(range(20))], ids=["none", "another"])
def test_no_kernel_names_when_they_do_not(tmp_path, build_id):
    """Another kernel's samples, or an unknown one's, are kept and have no made-up names."""
    answer = Imported(kernel_recording(in_table=build_id), tmp_path).report()
    assert [(row["image"], row["symbol"]) for row in answer["rows"]] == [("[kernel]", "[unknown]")]
    assert answer["quality"]["frames"] == {"named": 0, "ranges": 0, "unknown": 1}
    assert answer["quality"]["degraded"]["unnamed"] == 1


def test_a_mapping_with_an_impossible_build_id_is_still_a_mapping(tmp_path):
    """An inode under the flag for build-ids (a kernel's mistake) costs at most the name."""
    data = PerfData([Attr()])
    data.comm(pid=7, comm="demo", time=1, execs=True)
    raw = bytearray(
        data.mmap2(
            pid=7, start=0x400000, length=0x1000, path="/opt/demo", build_id=bytes(20), time=2
        )
    )
    raw[8 + 32] = 254
    data.records[-1] = bytes(raw)
    data.sample(pid=7, ip=0x400123, time=3, chain=[USER, 0x400123])
    imported = Imported(data, tmp_path)
    assert [row["image"] for row in imported.report()["rows"]] == ["/opt/demo"]


def mapping_of_libc(data, **more):
    """Map this machine's libc by device and inode, with a sample in a function of it."""
    path = next(
        line.split()[5]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "libc.so" in line or "libc-" in line
    )
    status = Path(path).stat()
    table = subprocess.run(["readelf", "-Ws", path], capture_output=True, text=True, check=True)
    value = next(
        int(line.split()[1], 16)
        for line in table.stdout.splitlines()
        if len(line.split()) == 8 and line.split()[7].startswith("qsort_r@")
    )
    data.comm(pid=7, comm="demo", time=1, execs=True)
    device = (os.major(status.st_dev), os.minor(status.st_dev))
    about = {"path": path, "device": device, "inode": status.st_ino, **more}
    data.mmap2(pid=7, start=0x7F0000000000, length=1 << 30, time=2, **about)
    data.sample(pid=7, ip=0x7F0000000000 + value, time=3, chain=[USER, 0x7F0000000000 + value])
    return path


@pytest.mark.parametrize(
    ("host", "symbol"), [(socket.gethostname(), "qsort_r"), ("elsewhere", "[unknown]")]
)
def test_an_inode_proves_nothing_on_another_host(tmp_path, host, symbol):
    """A file known by device and inode alone is named on the machine that recorded it only."""
    data = PerfData([Attr()])
    path = mapping_of_libc(data)
    data.features["hostname"] = host
    rows = Imported(data, tmp_path).report()["rows"]
    assert [(row["image"], row["symbol"]) for row in rows] == [(path, symbol)]


def test_pid_0_is_swapper_and_tasks_without_a_comm_are_their_pid(tmp_path):
    """Even where a COMM record calls pid 0 something else."""
    data = PerfData([Attr()])
    data.comm(pid=0, comm="idle-task", time=1)
    data.sample(pid=0, ip=0xFFFFFFFF81000000, time=2, misc=MISC_KERNEL, chain=[KERNEL])
    data.sample(pid=4711, ip=0x10, time=3, chain=[USER, 0x10])
    rows = Imported(data, tmp_path).report("--sort", "comm,pid,mode")["rows"]
    assert {(row["comm"], row["pid"], row["mode"]) for row in rows} == {
        ("swapper", 0, "kernel"),
        (":4711", 4711, "user"),
    }


def test_deleted_is_no_part_of_an_image(tmp_path):
    """The path has no ` (deleted)`."""
    data = PerfData([Attr()])
    data.comm(pid=7, comm="demo", time=1, execs=True)
    data.mmap2(pid=7, start=0x400000, length=0x1000, path="/opt/demo (deleted)", time=2)
    data.sample(pid=7, ip=0x400123, time=3, chain=[USER, 0x400123])
    assert Imported(data, tmp_path).report("--sort", "image")["rows"][0]["image"] == "/opt/demo"


def test_lost_samples_are_counted_and_not_in_the_total(tmp_path):
    """LOST and LOST_SAMPLES of a file are `lost.ring_full`, beside the total."""
    data = hits(times=(1000, 2000))
    data.lost_samples(5, time=1500)
    answer = Imported(data, tmp_path).report()
    assert answer["total"] == 2
    assert answer["quality"]["lost"] == {"ring_full": 5, "window_dropped": 0, "hash_full": 0}


def test_stubs_of_a_linkage_table_are_name_at_plt(tmp_path):
    """PLT stubs are NAME@plt, a C++ NAME demangled without parameters."""
    source, program = tmp_path / "stub.cc", tmp_path / "stub"
    source.write_text("int main(int n, char **) { delete new int[n]; return 0; }\n")
    subprocess.run(["g++", "-O0", source, "-o", program], check=True)
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", program], capture_output=True, text=True, check=True
    ).stdout
    stub = next(
        int(line.split()[0], 16) for line in listing.splitlines() if line.endswith("<_Znam@plt>:")
    )
    status = program.stat()
    data = PerfData([Attr()])
    data.features["hostname"] = socket.gethostname()
    data.comm(pid=7, comm="stub", time=1, execs=True)
    device = (os.major(status.st_dev), os.minor(status.st_dev))
    about = {"path": str(program), "device": device, "inode": status.st_ino}
    data.mmap2(pid=7, start=0x400000, length=1 << 20, time=2, **about)
    data.sample(pid=7, ip=0x400000 + stub, time=3, chain=[USER, 0x400000 + stub])
    rows = Imported(data, tmp_path).report()["rows"]
    assert [row["symbol"] for row in rows] == ["operator new[]@plt"]


def test_import_says_json_and_nothing_else(tmp_path):
    """Without a terminal there is no progress; stdout is one JSON document."""
    path = hits().write(tmp_path / "some.data")
    done = opctl("--session-dir", str(tmp_path / "s"), "import", str(path), check=False)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    assert json.loads(done.stdout)["complete"] is True

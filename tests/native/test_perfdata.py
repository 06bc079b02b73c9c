"""The reader of perf.data against perf itself, and against what a test wrote."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import perfdata_writer as writer
from opd_native._core import ffi, lib
from opd_native.perfdata import PerfDataError, PerfDataFile, PerfDataFormatError, ReadStats
from perfdata_writer import Attr, PerfData

CORPUS = Path(__file__).parent / "fuzz" / "corpus" / "perfdata"
EXPECTED = json.loads(
    (Path(__file__).parent.parent / "data" / "perfdata" / "expected.json").read_text()
)
RECORDINGS = sorted(CORPUS.glob("*.data"))


def drain(data: PerfDataFile) -> list[tuple[int, int, bytes]]:
    """All records as (event, time, bytes)."""
    event = ffi.new("struct opd_perfdata_event *")
    out = []
    while (status := lib.opd_perfdata_next(data.pointer, event)) == 1:
        size = event.record.size
        out.append((event.event, event.record.time, bytes(ffi.buffer(event.bytes, size))))
    assert status == 0
    return out


def read(blob: bytes) -> tuple[list[tuple[int, int, bytes]], ReadStats]:
    """All records of a recording in memory, and how reading went."""
    with PerfDataFile.from_bytes(blob) as data:
        return drain(data), data.stats()


def samples_by_name(data: PerfDataFile, records: list[tuple[int, int, bytes]]) -> Counter[str]:
    """How many SAMPLE records each event has, by its name."""
    names = [attr.name for attr in data.attrs]
    return Counter(names[event] for event, _, raw in records if raw[:4] == b"\x09\0\0\0")


def perf_counts(path: Path) -> tuple[dict[str, int], dict[str, int]]:
    """What `perf report --stats` counts: records by type, samples by event."""
    out = subprocess.run(
        ["perf", "report", "--stats", "-i", path], check=True, capture_output=True, text=True
    ).stdout
    records: dict[str, int] = {}
    samples: dict[str, int] = {}
    section = "Aggregated"
    for line in out.splitlines():
        if head := re.fullmatch(r"(.*) stats:", line):
            section = head[1]
        elif row := re.fullmatch(r"\s*(\w+) events:\s+(\d+).*", line):
            if section == "Aggregated":
                records[row[1]] = int(row[2])
            elif row[1] == "SAMPLE":
                samples[section] = int(row[2])
    del records["TOTAL"]
    return records, samples


def example() -> PerfData:
    """A small recording that has most kinds of records."""
    data = PerfData(
        [Attr("cpu-clock", ids=(11, 12)), Attr("page-faults", config=2, ids=(21,))],
        features={
            "hostname": "host",
            "os_release": "6.1.0",
            "version": "6.1",
            "arch": "x86_64",
            "nr_cpus": (4, 2),
            "cpu_description": "A CPU",
            "cpuid": "AuthenticAMD,25,17,1",
            "command_line": ["perf", "record", "-a"],
            "build_ids": [
                (-1, 1, b"\x11" * 20, "[kernel.kallsyms]"),
                (-1, 2, b"\x22" * 16, "/usr/bin/demo"),
            ],
            "pmus": {1: "software", 10: "ibs_op"},
            "pmu_caps": {"ibs_op": {"zen4_ibs_extensions": "1"}},
            "sample_time": (1000, 2000),
            "clock_resolution_ns": 1,
            "clock_data": (1, 10**18, 500),
        },
    )
    data.comm(pid=7, comm="demo", time=1000, execs=True)
    data.mmap2(pid=7, start=0x400000, length=0x1000, path="/usr/bin/demo", time=1001)
    data.sample(pid=7, ip=0x400123, time=1002, chain=[writer.USER, 0x400123], event_id=12)
    data.sample(event=1, pid=7, ip=0x400123, time=1003)
    data.fork(pid=8, parent=7, time=1004)
    data.exit(pid=8, parent=7, time=1005)
    data.lost(5, time=1006)
    data.lost_samples(3, time=1007)
    data.throttle(time=1008)
    data.ksymbol(address=2**64 - 4096, length=64, name="bpf_prog_1", time=1009)
    data.cgroup(id_=4, path="/a", time=1010)
    data.finished_round()
    return data


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_counts_of_recordings_are_those_of_perf(name: str) -> None:
    """A recording holds as many records of each type, and samples of each event, as perf found."""
    try:
        data = PerfDataFile.from_bytes((CORPUS / name).read_bytes())
    except PerfDataFormatError as error:
        if "libzstd" in error.reason:
            pytest.skip(error.reason)
        raise
    with data:
        records = drain(data)
        assert dict(data.stats().records) == EXPECTED[name]["records"]
        if "samples" in EXPECTED[name]:
            assert samples_by_name(data, records) == EXPECTED[name]["samples"]
        assert (data.stats().end_error, data.stats().late, data.stats().skipped_records) == (0,) * 3
        assert data.bad_features == 0


def test_zstd_in_the_pipe_layout_is_read() -> None:
    """Compressed records in the pipe layout are read, where perf 6.1 itself gives up."""
    try:
        records, stats = read((CORPUS / "zstdpipe.data").read_bytes())
    except PerfDataFormatError as error:
        pytest.skip(error.reason)
    assert stats.end_error == 0
    assert stats.records["COMPRESSED"] > 0
    assert stats.samples == sum(raw[:4] == b"\x09\0\0\0" for _, _, raw in records) > 0


def test_facts_are_those_that_were_written() -> None:
    """Every fact of a file comes back as it was written, in both layouts."""
    for blob in (example().to_bytes(), example().to_pipe_bytes()):
        with PerfDataFile.from_bytes(blob) as data:
            assert (data.hostname, data.os_release, data.version) == ("host", "6.1.0", "6.1")
            assert (data.arch, data.cpuid) == ("x86_64", "AuthenticAMD,25,17,1")
            assert data.cpu_description == "A CPU"
            assert (data.cpus_available, data.cpus_online) == (4, 2)
            assert data.command_line == ["perf", "record", "-a"]
            assert [(b.build_id, b.path, b.misc & 7) for b in data.build_ids] == [
                ("11" * 20, "[kernel.kallsyms]", 1),
                ("22" * 16, "/usr/bin/demo", 2),
            ]
            assert data.pmus == {1: "software", 10: "ibs_op"}
            assert data.pmu_caps == {"ibs_op": {"zen4_ibs_extensions": "1"}}
            assert data.sample_time == (1000, 2000)
            assert data.clock_resolution_ns == 1
            assert data.clock_data is not None
            assert (data.clock_data.wall_ns, data.clock_data.clock_ns) == (10**18, 500)
            assert [(a.name, a.config, a.ids) for a in data.attrs] == [
                ("cpu-clock", 0, (11, 12)),
                ("page-faults", 2, (21,)),
            ]
            assert data.bad_features == 0


def test_records_come_back_as_they_were_written() -> None:
    """All records are delivered byte for byte, each with its event, in both layouts."""
    data = example()
    want = [raw for raw in data.records if raw[:4] != b"\x44\0\0\0"]
    for blob in (data.to_bytes(), data.to_pipe_bytes(), data.to_bytes(interrupted=True)):
        records, stats = read(blob)
        assert [raw for _, _, raw in records] == want
        assert [event for event, _, _ in records] == [0, 0, 0, 1] + [0] * 7
        assert (stats.lost, stats.lost_samples, stats.samples) == (5, 3, 2)
        assert stats.end_error == 0


def test_an_interrupted_recording_says_so() -> None:
    """A file whose writer was killed is read to its end and has no facts."""
    with PerfDataFile.from_bytes(example().to_bytes(interrupted=True)) as data:
        assert data.interrupted
        assert data.hostname == ""
        assert [attr.name for attr in data.attrs] == ["cpu-clock", "page-faults"]
        assert len(drain(data)) == 11


def test_names_are_made_when_the_file_has_none() -> None:
    """An event without EVENT_DESC is named from its type, its config and the PMU's name."""
    attrs = [
        Attr(None, type=0, config=1, ids=(1,)),
        Attr(None, type=1, config=99, ids=(2,)),
        Attr(None, type=4, config=0x1C2, ids=(3,)),
        Attr(None, type=10, config=0x80000, ids=(4,)),
        Attr(None, type=77, ids=(5,)),
    ]
    data = PerfData(attrs, features={"pmus": {10: "ibs_op"}})
    data.sample()
    with PerfDataFile.from_bytes(data.to_bytes()) as opened:
        assert [attr.name for attr in opened.attrs] == [
            "instructions",
            "software/config=0x63/",
            "r1c2",
            "ibs_op/config=0x80000/",
            "pmu-77/config=0x0/",
        ]


@pytest.mark.parametrize(
    ("head", "word"),
    [
        (b"2ELIFREP", "byte order"),
        (b"PERFFILE", "version 1"),
        (b"\x7fELF\x02\x01\x01\0", "not a perf.data"),
        (b"", "empty"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(head: bytes, word: str) -> None:
    """Foreign, old and byte-swapped files are refused in words."""
    blob = head + struct.pack("<Q", 104) + bytes(88) if head else b""
    with pytest.raises(PerfDataFormatError, match=word):
        PerfDataFile.from_bytes(blob)


def test_a_bad_descriptor_is_no_bad_format() -> None:
    """An error of the system is told apart from bytes that are no recording."""
    with pytest.raises(PerfDataError) as caught:
        PerfDataFile(-1)
    assert not isinstance(caught.value, PerfDataFormatError)
    assert caught.value.errno == errno.EBADF


def test_a_file_that_shrinks_while_open_ends_early(tmp_path: Path) -> None:
    """A recording cut short under the reader ends with what was read, not with a crash."""
    data = PerfData()
    for i in range(20000):
        data.sample(time=i + 1, chain=range(10))
    path = data.write(tmp_path / "perf.data")
    with path.open("r+b") as file, PerfDataFile(file.fileno()) as opened:
        os.truncate(path, path.stat().st_size // 2)
        records = drain(opened)
        stats = opened.stats()
    assert stats.end_error == errno.ENODATA
    assert 9000 < len(records) < 20000
    assert [raw for _, _, raw in records] == data.records[: len(records)]


def test_the_pipe_layout_is_read_from_a_pipe() -> None:
    """What `perf record -o -` writes is read from a pipe, a file's layout is refused there."""
    for blob, good in ((example().to_pipe_bytes(), True), (example().to_bytes(), False)):
        into, out = os.pipe()
        os.write(out, blob)
        os.close(out)
        try:
            if good:
                with PerfDataFile(into) as data:
                    assert len(drain(data)) == 11
            else:
                with pytest.raises(PerfDataFormatError, match="pipe"):
                    PerfDataFile(into)
        finally:
            os.close(into)


def test_payloads_beside_the_records_are_passed_over() -> None:
    """AUXTRACE and TRACING_DATA are followed by bytes that are no records."""
    data = PerfData()
    data.sample(time=1)
    data.append(writer.record(71, 0, struct.pack("<QQQIIII", 16, 0, 0, 0, 0, 0, 0)) + b"\xff" * 16)
    data.sample(time=2)
    data.append(writer.record(66, 0, struct.pack("<II", 5, 0)) + b"\xff" * 8)
    data.sample(time=3)
    records, stats = read(data.to_bytes())
    assert [time for _, time, _ in records] == [1, 2, 3]
    assert (stats.end_error, stats.skipped_records) == (0, 0)


def test_events_are_told_apart_by_id_without_identifier() -> None:
    """Where IDENTIFIER is missing, the ID at the same place of every record tells the event."""
    base = writer.IP | writer.TID | writer.TIME | writer.ID | writer.CPU
    data = PerfData(
        [
            Attr("a", ids=(1,), sample_type=base),
            Attr("b", ids=(2, 3), config=2, sample_type=base | writer.PERIOD | writer.RAW),
        ]
    )
    data.sample(event=1, time=1, raw=b"x" * 20, event_id=3)
    data.sample(event=0, time=2)
    data.comm(event=1, pid=1, comm="c", time=3)
    data.sample(event=1, time=4, event_id=99)
    records, stats = read(data.to_bytes())
    assert [event for event, _, _ in records] == [1, 0, 1]
    assert stats.unknown_id == 1


def test_events_that_cannot_be_told_apart_end_the_reading() -> None:
    """Two events of different shape and without ids give a reason, not guesses."""
    data = PerfData(
        [
            Attr("a", ids=(), sample_type=writer.IP | writer.TIME),
            Attr("b", ids=(), sample_type=writer.IP | writer.TIME | writer.RAW),
        ]
    )
    data.sample(time=1)
    records, stats = read(data.to_bytes())
    assert records == []
    assert "which event" in stats.end_reason


@given(st.lists(st.lists(st.integers(1, 1000), max_size=30), max_size=5), st.integers(0, 2**32))
@settings(deadline=None)
def test_order_does_not_depend_on_the_order_within_a_round(
    rounds: list[list[int]], seed: int
) -> None:
    """Records of a round shuffled in the file come out in time order, none lost, none late."""
    shuffler = random.Random(seed)
    base = 0
    data = PerfData()
    for times in rounds:
        shuffled = [base + time for time in times]
        shuffler.shuffle(shuffled)
        for time in shuffled:
            data.sample(time=time, ip=len(data.records))
        data.finished_round()
        base += 1000
    records, stats = read(data.to_bytes())
    times = [time for _, time, _ in records]
    assert times == sorted(base * 1000 + t for base, r in enumerate(rounds) for t in r)
    assert stats.late == 0
    places = [data.records.index(raw) for _, _, raw in records]
    assert all(
        place < after
        for place, after, time, next_time in zip(places, places[1:], times, times[1:], strict=False)
        if time == next_time
    )


@given(st.data())
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_damage_never_yields_more_than_the_file_holds(data: st.DataObject) -> None:
    """Cut or changed anywhere, a recording is refused or read to a stated end, twice the same."""
    path = data.draw(st.sampled_from(RECORDINGS))
    blob = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 8))):
        at = data.draw(st.integers(0, len(blob) - 1))
        blob[at] = data.draw(st.integers(0, 255))
    blob = blob[: data.draw(st.integers(0, len(blob)))]
    try:
        records, stats = read(bytes(blob))
    except PerfDataFormatError:
        return
    assert stats.ended
    assert bool(stats.end_error) == bool(stats.end_reason)
    assert stats.end_offset <= len(blob)
    if not stats.records.get("COMPRESSED"):
        assert sum(len(raw) for _, _, raw in records) <= len(blob)
    assert (records, stats) == read(bytes(blob))


@given(st.integers(0, 1200))
@settings(deadline=None)
def test_truncation_keeps_all_that_came_before(cut: int) -> None:
    """Every record that lies whole before the cut is delivered."""
    data = example()
    blob = data.to_bytes(interrupted=True)
    header = len(blob) - sum(map(len, data.records))
    cut = min(header + cut, len(blob))
    records, stats = read(blob[:cut])
    whole = []
    at = header
    for raw in data.records[:-1]:
        at += len(raw)
        if at <= cut:
            whole.append(raw)
    assert [raw for _, _, raw in records] == whole
    assert (stats.end_error == 0) == (cut in {header, len(blob)} or stats.end_offset == cut)


@pytest.fixture(scope="module")
def perf() -> str:
    """The perf program, where it is installed and may record."""
    found = shutil.which("perf")
    if found is None:
        pytest.skip("perf is not installed")
    return found


LOAD = """
for i in 1 2 3 4 5 6 7 8; do /bin/true; done
i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done
"""


def record(perf: str, path: Path, *arguments: str) -> Path:
    """Record with perf while some short processes run."""
    command = [perf, "record", "-q", "-o", path, *arguments, "--", "sh", "-c", LOAD]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"perf record: {done.stderr.strip()[:200]}")
    return path


@pytest.mark.privileged
@pytest.mark.parametrize(
    "arguments",
    [
        ("-a", "-g", "-e", "cpu-clock,page-faults,context-switches", "-F", "999"),
        ("-g", "-e", "cpu-clock", "-F", "999"),
        ("-e", "cpu-clock", "-F", "500", "--call-graph", "dwarf,4096"),
        ("-a", "-z", "-g", "-e", "cpu-clock", "-F", "999"),
        ("-a", "-e", "cpu-clock", "--switch-events", "--all-cgroups", "-k", "CLOCK_MONOTONIC"),
        ("-a", "-e", "sched:sched_switch", "-R"),
        ("-d", "-W", "--phys-data", "-e", "page-faults", "-c", "1", "--user-regs=ax,ip"),
    ],
    ids=["system", "process", "dwarf", "zstd", "switch", "tracepoint", "fields"],
)
def test_a_fresh_recording_counts_as_perf_counts(
    perf: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Records by type, samples by event and the order of samples are those of perf."""
    path = record(perf, tmp_path / "perf.data", *arguments)
    counted, samples = perf_counts(path)
    with path.open("rb") as file, PerfDataFile(file.fileno()) as data:
        records = drain(data)
        assert dict(data.stats().records) == counted
        assert samples_by_name(data, records) == samples
        assert data.stats().late == 0
        assert data.stats().skipped_records == 0
        lines = subprocess.run(
            [perf, "script", "--ns", "-F", "time", "-G", "-i", path],
            check=True, capture_output=True, text=True,
        ).stdout.split()  # fmt: skip
        times = [time for _, time, raw in records if raw[:4] == b"\x09\0\0\0"]
        assert [int(line.rstrip(":").replace(".", "")) for line in lines] == times

"""Recordings of IBS samples imported: every derived event against an independent count."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections import Counter

import pytest

from ibs_recording import FETCH_NAME, OP_NAME, Writer
from ibs_reference import Cpu
from opd.importing import import_perf_data
from opd.store.queries import ReportQuery, open_reader
from opd_native.ibs import derived_events
from places import BIN
from zstd_records import COMPRESSED, COMPRESSED2, FEATURE, compressed

ZEN4 = Cpu(0x19, 0x11, 0xBFF)
CPUS = {
    "zen1": Cpu(0x17, 1, 0x3FF),
    "zen2": Cpu(0x17, 0x31, 0x3FF),
    "early_zen3": Cpu(0x19, 1, 0x3FF),
    "zen3": Cpu(0x19, 0x21, 0x3FF),
    "zen4": ZEN4,
    "zen5": Cpu(0x1A, 2, 0x81BFF),
    "zen6": Cpu(0x1A, 0x50, 0xDFBFF),
    "barcelona": Cpu(0x10, 4, 0x1F),
    "carrizo": Cpu(0x15, 0x60, 0x7FF),
}


def imported(tmp_path, content, name="recording"):
    """Import bytes; the summary and a reader of the store."""
    path = tmp_path / f"{name}.data"
    path.write_bytes(content)
    with path.open("rb") as file:
        summary = import_perf_data(file.fileno(), tmp_path / "store", name=name, origin=str(path))
    return summary, open_reader(tmp_path / "store")


def check_totals(reader, truth):
    """Every derived event's hits and weight, and those of the two events themselves."""
    for name in (FETCH_NAME, OP_NAME, *(event.name for event in derived_events())):
        result = reader.report(ReportQuery(event=name, top=0))
        assert (name, result.total, result.weight_total) == (
            *(name, truth.hits[name]),
            truth.weight[name],
        )


@pytest.mark.parametrize("cpu", CPUS.values(), ids=CPUS)
def test_every_derived_event_of_ten_thousand_samples(cpu, tmp_path):
    """Totals of all events, and rows by process and image, equal the count beside the writing."""
    writer = Writer(cpu, seed=cpu.model)
    truth = writer.write(10_000 if cpu == ZEN4 else 2_000)
    summary, reader = imported(tmp_path, writer.data.to_bytes())
    with reader:
        assert summary["samples"] == truth.samples
        assert summary["complete"]
        check_totals(reader, truth)
        for event in ("IBS_OP_ALL", "IBS_OP_DATA_CACHE_MISS", "IBS_FETCH_LATENCY"):
            result = reader.report(ReportQuery(event=event, sort=("comm", "image"), top=0))
            rows = zip(result.keys["comm"], result.keys["image"], result.samples, strict=True)
            found = Counter({(comm, image): count for comm, image, count in rows})
            wanted = {key[1:]: n for key, n in truth.by_image.items() if key[0] == event}
            assert found == wanted
        assert len(truth.hits) > 50
        for name in ("incomplete", "inexact", "mismatched"):
            assert truth.quality[name] > 0
            assert str(truth.quality[name]) in summary["detail"], (name, summary["detail"])


@pytest.mark.parametrize("pipe", [False, True], ids=["file", "pipe"])
@pytest.mark.parametrize("kind", [COMPRESSED, COMPRESSED2, None])
def test_every_layout_gives_the_same(pipe, kind, tmp_path):
    """File and pipe, plain and compressed both ways."""
    writer = Writer(ZEN4, seed=7)
    truth = writer.write(3_000)
    if kind:
        writer.data.features["compressed"] = FEATURE
        size = sum(map(len, writer.data.records))
        writer.data.records = list(compressed(writer.data.records, kind))
        assert sum(map(len, writer.data.records)) < size
    content = writer.data.to_pipe_bytes() if pipe else writer.data.to_bytes()
    summary, reader = imported(tmp_path, content)
    with reader:
        assert summary["complete"], summary["detail"]
        check_totals(reader, truth)


def test_facts_that_come_after_the_samples_count(tmp_path):
    """In the pipe layout the CPU may be told last."""
    cpu = CPUS["early_zen3"]
    writer = Writer(cpu, seed=8)
    truth = writer.write(1_000)
    whole = writer.data.to_pipe_bytes()
    samples = b"".join(writer.data.records)
    head = whole[: len(whole) - len(samples)]
    attrs = 16 + 2 * (8 + 128 + 16)
    summary, reader = imported(tmp_path, head[:attrs] + samples + head[attrs:])
    with reader:
        assert summary["complete"], summary["detail"]
        check_totals(reader, truth)


def test_a_kernel_before_5_10_tells_no_itlb_latency(tmp_path):
    """Its fourth register of a fetch is another; the rest is the same."""
    writer = Writer(CPUS["zen2"], release="5.4.0-42-generic", seed=9)
    truth = writer.write(1_000)
    name = "IBS_FETCH_ITLB_REFILL_LATENCY"
    assert truth.hits.pop(name) > 0
    del truth.weight[name]
    _, reader = imported(tmp_path, writer.data.to_bytes())
    with reader:
        check_totals(reader, truth)


def test_events_are_told_by_name_without_a_table_of_pmus(tmp_path):
    """Then of any type that is not the kernel's own."""
    writer = Writer(ZEN4, seed=10, types=(9, 15))
    truth = writer.write(500)
    del writer.data.features["pmus"]
    _, reader = imported(tmp_path, writer.data.to_bytes())
    with reader:
        check_totals(reader, truth)


def test_events_of_one_pmu_share_what_is_derived(tmp_path):
    """Two ops events of one recording: each is an event, the derived ones are of both."""
    writer = Writer(ZEN4, seed=13)
    second = dataclasses.replace(writer.data.attrs[1], name="ibs_op/l3missonly=1/", ids=(22,))
    writer.data.attrs[1].ids = (21,)
    writer.data.attrs.append(second)
    truth = writer.write(1_000)
    _, reader = imported(tmp_path, writer.data.to_bytes())
    with reader:
        both = [reader.report(ReportQuery(event=name)) for name in (OP_NAME, second.name)]
        assert all(one.total > 0 for one in both)
        assert sum(one.total for one in both) == truth.hits.pop(OP_NAME)
        assert sum(one.weight_total for one in both) == truth.weight.pop(OP_NAME)
        names = [event.name for event in reader.events()]
        assert len(names) == len(set(names)) == 3 + len(derived_events())
        for name, count in truth.hits.items():
            assert reader.report(ReportQuery(event=name)).total == count, name


def test_a_machine_that_is_not_told_is_known_by_its_caps(tmp_path):
    """Without CPUID: a Zen has the extended fetch control."""
    writer = Writer(CPUS["zen2"], seed=14)
    truth = writer.write(500)
    del writer.data.features["cpuid"]
    _, reader = imported(tmp_path, writer.data.to_bytes())
    with reader:
        check_totals(reader, truth)


def test_a_recording_that_tells_its_times_is_read_once(tmp_path):
    """With the kernel's build-id and the samples' times in the header there is no pass ahead."""
    writer = Writer(ZEN4, seed=15)
    truth = writer.write(500)
    writer.data.features["sample_time"] = (10_000, 10_000 + 499_000)
    kernel = (-1, 1, bytes(range(20)), "[kernel.kallsyms]")
    writer.data.features["build_ids"] = [kernel]
    summary, reader = imported(tmp_path, writer.data.to_bytes())
    with reader:
        assert summary["samples"] == truth.samples
        check_totals(reader, truth)


def test_a_recording_cut_short_keeps_what_came_before(tmp_path):
    """Samples before the cut count in every event that they satisfy."""
    writer = Writer(ZEN4, seed=16)
    writer.write(200)
    whole = len(writer.data.to_bytes())
    truth_of = Writer(ZEN4, seed=16)
    truth = truth_of.write(150)
    kept = sum(map(len, truth_of.data.records))
    content = writer.data.to_bytes(interrupted=True)
    content = content[: len(content) - sum(map(len, writer.data.records)) + kept + 20]
    assert len(content) < whole
    # An interrupted file has no facts: the machine and its PMUs are not told.
    summary, reader = imported(tmp_path, content)
    with reader:
        assert not summary["complete"]
        assert summary["samples"] == truth.samples
        names = [event.name for event in reader.events()]
        assert names == ["pmu-10/config=0x200000000000000/", "pmu-11/config=0x80000/"]


def test_nothing_is_derived_without_raw_records(tmp_path):
    """The event itself is counted, and it is said why there is no more."""
    writer = Writer(ZEN4, seed=11)
    for attr in writer.data.attrs:
        attr.sample_type &= ~(1 << 10)
    truth = writer.write(300)
    summary, reader = imported(tmp_path, writer.data.to_bytes())
    with reader:
        assert [event.name for event in reader.events()] == [FETCH_NAME, OP_NAME]
        assert reader.report(ReportQuery(event=OP_NAME)).total == truth.hits[OP_NAME]
    assert f"{OP_NAME}: recorded without --raw-samples" in summary["detail"]


def test_opctl_reports_a_derived_event(tmp_path):
    """From the command line, of a recording that opctl imported."""
    writer = Writer(ZEN4, seed=12)
    truth = writer.write(1_000)
    path = writer.data.write(tmp_path / "perf.data")
    store = tmp_path / "store"
    environment = {**os.environ, "NO_COLOR": "1"}
    command = [BIN / "opctl", "--session-dir", store, "--format", "json"]
    subprocess.run([*command, "import", path], check=True, capture_output=True, env=environment)
    done = subprocess.run(
        [*command, "report", "-e", "IBS_OP_DATA_CACHE_MISS", "--top", "0"],
        check=True,
        capture_output=True,
        env=environment,
    )
    answer = json.loads(done.stdout)
    assert answer["event"] == "IBS_OP_DATA_CACHE_MISS"
    assert answer["total"] == truth.hits["IBS_OP_DATA_CACHE_MISS"]


@pytest.mark.parametrize("place", [0, 100, 299])
@pytest.mark.parametrize("time", [2**64 - 1, 2**64 - 2, 2**63, 0])
def test_a_time_that_cannot_be_loses_no_sample(place, time, tmp_path):
    """Corrupt times end no import: each sample is counted."""
    writer = Writer(ZEN4, seed=17)
    writer.data.features["nr_cpus"] = (2**32 - 1, 2**32 - 1)
    for number in range(300):
        writer.sample(time if number == place else 10_000 + number * 1000)
        if number % 50 == 49:
            writer.data.finished_round()
    summary, reader = imported(tmp_path, writer.data.to_bytes())
    with reader:
        assert summary["samples"] == writer.truth.samples
        check_totals(reader, writer.truth)


def test_strings_that_are_no_text_are_written_as_bytes(tmp_path):
    """Names of events and the kernel's release are bytes of a file."""
    writer = Writer(ZEN4, seed=18)
    truth = writer.write(100)
    name = "ibs_op/na\ufffdme/"
    writer.data.attrs[1].name = name
    writer.data.features["os_release"] = "6.8.0\ufffd"
    content = writer.data.to_bytes().replace("\ufffd".encode(), b"\xff\xfe\xfd")
    _, reader = imported(tmp_path, content)
    with reader:
        result = reader.report(ReportQuery(event=r"ibs_op/na\xff\xfe\xfdme/", top=0))
        assert result.total == truth.hits[OP_NAME]

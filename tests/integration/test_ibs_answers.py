"""Answers from recordings of IBS samples, against counts of the facts they were made of."""

import json
import math
import subprocess
from collections import Counter, defaultdict

import pytest

from ibs_facts import BASE, OLDER_SOURCES, draw_ops, record_ops
from places import BIN

FACTS = draw_ops(1, 5000)
ACCESSES = [fact for fact in FACTS if fact.load or fact.store]
FETCHES = 500


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The store of an imported recording."""
    directory = tmp_path_factory.mktemp("ibs")
    recording = directory / "perf.data"
    record_ops(FACTS, fetches=FETCHES).write(recording)
    opctl(directory / "store", "import", recording)
    return directory / "store"


def opctl(directory, *words):
    """What opctl prints of a store, as JSON."""
    command = [BIN / "opctl", "--session-dir", directory, "--format", "json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_derived_events_are_events(store):
    """Report -e of one gives its total, by process."""
    expected = Counter(fact.pid for fact in ACCESSES if fact.dc_miss)
    answer = opctl(store, "report", "-e", "IBS_OP_DATA_CACHE_MISS", "--sort", "pid", "--top", "0")
    assert answer["total"] == sum(expected.values())
    assert {row["pid"]: row["samples"] for row in answer["rows"]} == expected


def test_the_event_of_the_pmu_is_found_by_its_feature(store):
    """A recording has it as perf named it; `ibs_op` means it too."""
    events = [event["name"] for event in opctl(store, "events")["events"]]
    for name, total in (("ibs_op", len(FACTS)), ("ibs_fetch", FETCHES)):
        (full,) = (event for event in events if event.startswith(f"{name}/"))
        answer = opctl(store, "report", "-e", name)
        assert (answer["event"], answer["total"]) == (full, total)


def test_an_answer_without_samples_says_what_keeps_them(store):
    """Of mem and branches, in the table only."""
    for method, option in (("mem", "memaccess"), ("branches", "branch_target")):
        words = ("--since", "2001-01-01", "--until", "2001-01-02")
        command = [BIN / "opctl", "--session-dir", store, method, *words]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert f"--ext-feature ibs_op:{option}=true" in text
        assert opctl(store, method, *words)["rows"] == []
        assert (
            option
            not in subprocess.run(
                [BIN / "opctl", "--session-dir", store, method],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )


def test_ratios_and_percentiles_are_those_of_the_facts(store):
    """A share exactly, with its counts; percentiles within their bucket."""
    answer = opctl(store, "report", "--metric", "dc_miss_ratio", "--sort", "comm")
    accesses = Counter(f"work{fact.pid % 3}" for fact in ACCESSES)
    misses = Counter(f"work{fact.pid % 3}" for fact in ACCESSES if fact.dc_miss)
    found = {row["comm"]: (row["numerator"], row["denominator"]) for row in answer["rows"]}
    assert found == {comm: (misses[comm], accesses[comm]) for comm in accesses}
    latencies = defaultdict(list)
    for fact in ACCESSES:
        if fact.load and fact.dc_miss:
            latencies[f"work{fact.pid % 3}"].append(fact.latency)
    for percent in (50, 99):
        metric = f"load_latency_p{percent}"
        answer = opctl(store, "report", "--metric", metric, "--sort", "comm")
        for row in answer["rows"]:
            values = sorted(latencies[row["comm"]])
            exact = values[math.ceil(percent / 100 * len(values)) - 1]
            assert abs(row["value"] - exact) <= max(exact / 16, 0.5)
            assert row["low"] <= exact <= row["high"]
            assert row["n"] == len(values)
            assert row["numerator"] == sum(values)
    mean = opctl(store, "report", "--metric", "load_latency_mean", "--sort", "comm")["total"]
    everything = [latency for values in latencies.values() for latency in values]
    assert mean["value"] == pytest.approx(sum(everything) / len(everything))
    fetches = opctl(store, "report", "--metric", "fetch_latency_p99", "--sort", "comm")["total"]
    assert fetches["n"] == FETCHES
    share = opctl(store, "report", "--metric", "dram_share", "--sort", "comm")["total"]
    told = [fact for fact in ACCESSES if fact.source]
    assert share["denominator"] == len(told)
    assert share["numerator"] == sum(fact.source == "dram" for fact in told)


def test_mem_tells_sources_lines_and_threads(store):
    """Every access was kept, so all counts are exact."""
    answer = opctl(store, "mem", "--by", "source,tlb", "--top", "0")
    expected = Counter((fact.served, fact.tlb) for fact in ACCESSES)
    assert {(row["source"], row["tlb"]): row["accesses"] for row in answer["rows"]} == expected
    remote = Counter(
        fact.served
        for fact in ACCESSES
        if fact.load and fact.source and (fact.remote or fact.source == "far-cache")
    )
    by_source = opctl(store, "mem", "--by", "source", "--top", "0")["rows"]
    assert {row["source"]: row["remote"] for row in by_source if row["remote"]} == remote
    for total in answer["totals"]:
        chosen = [
            fact
            for fact in ACCESSES
            if (fact.served, fact.tlb) == (total["source"], total["tlb"])
            and fact.load == (total["op"] == "load")
        ]
        assert total["accesses"] == len(chosen)
        assert total["latency"] == sum(fact.latency for fact in chosen)
    lines = opctl(store, "mem", "--by", "line", "--top", "0", "--where", "comm=work1")
    threads = defaultdict(set)
    for fact in ACCESSES:
        if fact.pid % 3 == 1:
            threads[f"{fact.physical // 64 * 64:#x}"].add(fact.tid)
    assert {row["line"]: row["threads"] for row in lines["rows"]} == {
        line: len(found) for line, found in threads.items()
    }
    nodes = opctl(store, "mem", "--by", "node")
    assert [row["node"] for row in nodes["rows"]] == [-1]


def test_branches_go_where_the_records_say(store):
    """Addresses of both ends, how often taken and mispredicted."""
    answer = opctl(store, "branches", "--by", "address", "--top", "0")
    expected = defaultdict(lambda: [0, 0, 0, 0])
    for fact in FACTS:
        if fact.branch:
            start = fact.rip if fact.kernel else fact.rip - BASE
            item = expected[f"{start:#x}", f"{fact.target - BASE:#x}"]
            for at, number in enumerate((1, fact.taken, fact.mispredicted, fact.is_return)):
                item[at] += number
    names = ("samples", "taken", "mispredicted", "returns")
    found = {
        (row["address"], row["to_address"]): [row[name] for name in names] for row in answer["rows"]
    }
    assert found == expected
    assert answer["samples"] == sum(fact.branch for fact in FACTS)


def test_tables_and_csv_have_the_same_rows(store):
    """Of mem, branches and a metric; what is not told is a dash, or empty."""
    for words in (
        ("mem", "--by", "source"),
        ("branches",),
        ("report", "--metric", "dc_miss_ratio", "--sort", "comm"),
    ):
        rows = opctl(store, *words)["rows"]
        for form in ("csv", "table"):
            command = [BIN / "opctl", "--session-dir", store, "--format", form, *words]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            lines = [line for line in text.splitlines() if not line.startswith("#")]
            assert len(lines) == len(rows) + 1
            assert all(name in lines[0] for name in rows[0] if form == "csv")


def test_a_derived_event_is_recomputed_from_raw_records(store):
    """All records were kept: exactly what was counted, and by process as counted from the facts."""
    answer = opctl(store, "derive", "IBS_OP_DATA_CACHE_MISS", "--by", "pid", "--top", "0")
    expected = Counter(fact.pid for fact in ACCESSES if fact.dc_miss)
    assert {row["pid"]: row["samples"] for row in answer["rows"]} == expected
    assert answer["total"]["samples"] == answer["total"]["low"] == answer["total"]["high"]
    assert answer["counted"] == answer["total"]["samples"] == sum(expected.values())
    assert answer["records"] == {"offered": len(FACTS), "kept": len(FACTS), "lost": 0}
    latency = opctl(store, "derive", "IBS_OP_TAG_TO_RETIRE", "--where", "comm=work1")
    values = [fact.tag_to_retire for fact in FACTS if fact.pid % 3 == 1]
    assert latency["total"]["hits"] == len(values)
    assert latency["total"]["mean"] == pytest.approx(sum(values) / len(values))
    assert latency["total"]["samples"] == len(values)


def test_stats_of_a_store_tell_what_became_of_the_records(store):
    """Of each PMU apart; samples of the events derived of it."""
    features = opctl(store, "stats")["features"]
    assert features["ibs_op"]["own"]["records"] == len(FACTS)
    assert features["ibs_fetch"]["own"]["records"] == FETCHES
    assert features["ibs_op"]["own"]["accesses"] == len(ACCESSES)
    assert features["ibs_op"]["own"]["branches"] == sum(fact.branch for fact in FACTS)
    assert features["ibs_op"]["own"]["IBS_OP_LOAD"] == sum(fact.load for fact in FACTS)
    # The kernel's words for sources were left out of the recording: 0 is none of them.
    assert features["ibs_op"]["own"]["compared"] == len(FACTS)
    only = opctl(store, "stats", "ibs_fetch")["features"]
    assert list(only) == ["ibs_fetch"]


def test_sources_before_zen4_have_codes_of_their_own(tmp_path):
    """Three bits instead of five, of a Zen2 machine."""
    facts = draw_ops(2, 1500, sources=tuple(OLDER_SOURCES))
    recording = tmp_path / "perf.data"
    record_ops(facts, cpuid="AuthenticAMD,23,49,0", caps=0x3FF).write(recording)
    opctl(tmp_path / "store", "import", recording)
    rows = opctl(tmp_path / "store", "mem", "--by", "source", "--top", "0")["rows"]
    expected = Counter(fact.served for fact in facts if fact.load or fact.store)
    assert {row["source"]: row["accesses"] for row in rows} == expected
    assert {"l3", "far-cache", "remote-dram", "io"} <= expected.keys()

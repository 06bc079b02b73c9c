"""The pointer chase: options, placement, cache levels of curves, what it tells."""

from __future__ import annotations

import os

import msgspec
import pytest

from measured import Measured, measured
from opd.errors import OperationFailedError, UsageError
from opd.features.pchase.building import VECTORS
from opd.features.pchase.hooks import PCHASE
from opd.features.pchase.levels import find_levels, sweep, sysfs_caches
from opd.features.pchase.options import ChaseOptions
from opd.features.pchase.original import COLUMNS, as_csv, header, rows_alone
from opd.features.pchase.placement import Rule, node_cpus, parse_placement, place
from opd.probes.measuring import VoidRunError
from opd_native.pchase import Load, has_load

FOUR_NODES = {0: [0, 1], 1: [2, 3], 2: [4, 5], 3: [6, 7]}
CPUS = list(range(8))
QUICK = {"seconds": 0.002, "experiments": 2, "chain": 64 << 10}


def run(options: ChaseOptions, cpus: tuple[int, ...] = ()) -> Measured:
    """Measure here; samples of the whole by metric, details and notes."""
    return measured(PCHASE, options, cpus)


def test_a_chase_tells_latency_and_bandwidth():
    """A step is a load of each chain; the bandwidth is of whole lines."""
    values, details, _notes = run(ChaseOptions(**QUICK, chains=4, page=0))
    assert len(values["latency_ns"]) == 2
    for latency, load in zip(values["latency_ns"], values["ns_per_load"], strict=True):
        assert latency == pytest.approx(4 * load)
        assert latency > 0.1
    assert details["chain"]["nodes"] == 1024
    assert details["chain"]["single_cycle"]
    assert len(details["experiments"]) == 2


@pytest.mark.parametrize(
    "more",
    [
        {"access": "forward", "stride": 3},
        {"access": "reverse"},
        {"access": "page_random", "laps": 3},
        {"access": "same_set", "laps": 8},
        {"mmu_page": "thp", "chain": 2 << 20},
        {"hint": "nta", "work": 7},
        {"hint": "t0", "ahead": 5, "chains": 14},
        {"threads": 2, "loaders": 1, "load": "copy", "load_memory": 65536},
        {"iterations": 3, "line": 256, "page": 1024},
        {"chains": 28},
        {"numa": "add:0"},
    ],
)
def test_every_option_runs(more):
    """One short run of each."""
    try:
        values, _details, _notes = run(ChaseOptions(**(QUICK | more)))
    except VoidRunError as error:
        pytest.skip(error.message)
    assert min(values["latency_ns"]) > 0
    assert ("load_bytes_per_second" in values) == ("loaders" in more)


def test_streams_tell_what_they_moved():
    """With the lines that stores read first counted apart."""
    try:
        values, _details, _notes = run(
            ChaseOptions(mode="bandwidth", load="copy", load_memory=1 << 20, seconds=0.002)
        )
    except VoidRunError as error:
        pytest.skip(error.message)
    for own, bus in zip(
        values["bandwidth_bytes_per_second"], values["bus_bytes_per_second"], strict=True
    ):
        assert bus == pytest.approx(1.5 * own)


def test_lines_are_passed_between_cpus():
    """One figure a pair, a symmetric matrix; one CPU alone is void."""
    with pytest.raises(VoidRunError, match="only 1 is allowed"):
        run(ChaseOptions(mode="cores"), cpus=(0,))
    cpus = tuple(sorted(os.sched_getaffinity(0)))[:2]
    if len(cpus) < 2:
        return
    values, details, _notes = run(ChaseOptions(mode="cores"), cpus=cpus)
    assert len(values["pass_ns"]) == 1
    assert details["cores"]["ns"][0][1] == details["cores"]["ns"][1][0] == values["pass_ns"][0]


def test_a_curve_has_its_sizes_and_levels():
    """A small curve is measured from 4 KiB on; sysfs stands beside."""
    _values, details, _notes = run(ChaseOptions(mode="curve", chain=64 << 10, seconds=0.002))
    assert details["curve"]["bytes"][0] == 4096
    assert details["curve"]["bytes"][-1] <= 68 << 10
    assert len(details["curve"]["ns"]) == len(details["curve"]["bytes"])


def machine_of(size: int) -> float:
    """Latency of a made-up machine: 32 KiB, 1 MiB and 5 MiB of caches."""
    ns = 1.1
    for end, more in ((32 << 10, 2.8), (1 << 20, 10.0), (5 << 20, 90.0)):
        ns += more * max(0.0, 1 - end / size)
    return ns


def test_levels_of_a_known_curve():
    """Sizes within a third, latencies within a quarter, of what made the curve."""
    levels = find_levels(sweep(4096, 256 << 20, machine_of))
    assert [level.bytes is None for level in levels] == [False] * (len(levels) - 1) + [True]
    assert levels[0].ns == pytest.approx(1.1, rel=0.05)
    assert 32 << 10 <= (levels[0].bytes or 0) <= 80 << 10
    assert levels[-1].ns == pytest.approx(machine_of(256 << 20), rel=0.25)


def test_steps_of_a_staircase_are_found_exactly():
    """Sharp ends are found between the two sizes around them."""

    def stairs(size: int) -> float:
        return 1.0 if size <= 48 << 10 else 4.0 if size <= 2 << 20 else 100.0

    levels = find_levels(sweep(4096, 64 << 20, stairs))
    assert [level.ns for level in levels] == [1.0, 4.0, 100.0]
    assert levels[0].bytes == pytest.approx(48 << 10, rel=0.15)
    assert levels[1].bytes == pytest.approx(2 << 20, rel=0.15)


def test_caches_of_sysfs(tmp_path):
    """Data caches only, in bytes."""
    for index, (kind, level, size) in enumerate(
        [("Data", 1, "32K"), ("Instruction", 1, "32K"), ("Unified", 2, "1M")]
    ):
        at = tmp_path / f"devices/system/cpu/cpu0/cache/index{index}"
        at.mkdir(parents=True)
        (at / "type").write_text(f"{kind}\n")
        (at / "level").write_text(f"{level}\n")
        (at / "size").write_text(f"{size}\n")
    assert sysfs_caches(0, tmp_path) == [(1, 32 << 10), (2, 1 << 20)]


def test_placements_are_read():
    """All forms; anything else names them."""
    assert parse_placement("local") == Rule("local")
    assert parse_placement("xor:0x1") == Rule("xor", 1)
    assert parse_placement("map:0/1.2;3/0").domains == ((0, (1, 2)), (3, (0,)))
    for wrong in ("", "xor", "xor:-1", "add:x", "map:", "map:0", "map:0/", "local:1", "near"):
        with pytest.raises(ValueError, match="expected local, xor:MASK"):
            parse_placement(wrong)


def test_threads_and_chains_are_placed():
    """On a made-up machine of four nodes with two CPUs each."""
    assert place(Rule("local"), 3, 1, [0, 2], FOUR_NODES).cpus == [0, 2, 0]
    there = place(Rule("xor", 1), 2, 2, [0, 4], FOUR_NODES)
    assert (there.cpus, there.nodes) == ([0, 4], [1, 1, 3, 3])
    assert place(Rule("add", 3), 2, 1, [0, 2], FOUR_NODES).nodes == [3, 0]
    rule = parse_placement("map:1/0.2;1/3")
    there = place(rule, 2, 2, CPUS, FOUR_NODES)
    assert (there.cpus, there.nodes) == ([2, 3], [0, 2, 3, 3])
    for rule, words in (
        (Rule("xor", 4), "node 4; there are: 0 1 2 3"),
        (parse_placement("map:0/7;0/7"), "no node 7"),
        (parse_placement("map:0/0"), "has 1 threads"),
        (parse_placement("map:0/0.0.0;0/0"), "names 3 chains of 2"),
        (parse_placement("map:9/0;0/0"), "node 9 has none"),
    ):
        with pytest.raises(ValueError, match=words):
            place(rule, 2, 2, CPUS, FOUR_NODES)


def test_nodes_of_sysfs(tmp_path):
    """A node without CPUs (memory only) has none."""
    for node, cpus in ((0, "0-1,4"), (1, "")):
        at = tmp_path / f"devices/system/node/node{node}"
        at.mkdir(parents=True)
        (at / "cpulist").write_text(f"{cpus}\n")
    assert node_cpus(tmp_path) == {0: [0, 1, 4], 1: []}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"line": 12}, "multiple of 8"),
        ({"chain": 100}, "chain=100 is no multiple of line=64"),
        ({"page": 96}, "multiple of line"),
        ({"chain": 92 << 10, "page": 8192}, "the next is 98304"),
        ({"stride": 2}, "stride is of"),
        ({"line": 16, "laps": 3}, "in a line=16"),
        ({"ahead": 3}, "needs a hint"),
        ({"ahead": 3, "hint": "t0", "laps": 2}, "one lap"),
        ({"load_memory": 70000}, "load_memory"),
        ({"numa": "far"}, "expected local"),
    ],
)
def test_wrong_options_are_refused(more, words):
    """With what would be right."""
    with pytest.raises(ValueError, match=words):
        ChaseOptions(**more)


def test_needs_are_of_all_threads():
    """Memory of chains and streams; what is not there is refused."""
    need = PCHASE.needs(ChaseOptions(chain=1 << 20, chains=2, threads=3, loaders=1, load="triad"))
    assert need.memory_bytes >= (6 << 20) + (3 * 64 << 20)
    assert need.threads == 4
    with pytest.raises(UsageError, match="there are"):
        PCHASE.needs(ChaseOptions(numa="xor:512"))
    for vector in ("32", "64"):
        wide = ChaseOptions(mode="bandwidth", load="nt_copy", vector=vector)
        if has_load(Load.NT_COPY, VECTORS[vector]):
            assert PCHASE.needs(wide).memory_bytes >= 2 * wide.load_memory
        else:
            with pytest.raises(OperationFailedError, match="no such instructions"):
                PCHASE.needs(wide)
    with pytest.raises(OperationFailedError, match="two CPUs"):
        PCHASE.needs(ChaseOptions(mode="cores", cpus=(str(min(os.sched_getaffinity(0))),)))


def test_the_columns_are_pchases():
    """A row an experiment, of as many values as the header has names."""
    options = ChaseOptions(chain=1 << 20, chains=2, experiments=1)
    one = {
        "steps": [3 * 16384],
        "elapsed_seconds": 0.5,
        "elapsed_ticks": 1000,
        "latency_ns": 100.0,
        "bandwidth_bytes_per_second": 1.28e9,
    }
    good = {
        "parameters": msgspec.to_builtins(options),
        "details": {"chain": {"nodes": 16384, "ticks_per_ns": 2.5}, "experiments": [one, one]},
        "machine": {},
        "void": None,
    }
    curve = good | {"parameters": msgspec.to_builtins(ChaseOptions(mode="curve"))}
    assert header([good]) == as_csv([]) == ",".join(COLUMNS) + "\n"
    assert rows_alone([good]) == as_csv([good]).removeprefix(header([]))
    lines = as_csv([good, good | {"void": "killed"}, curve]).splitlines()
    assert lines[0].split(",") == list(COLUMNS)
    values = dict(zip(COLUMNS, lines[1].split(","), strict=True))
    assert values["iterations"] == "3.0"
    assert values["total operations"] == str(2 * 3 * 16384)
    assert values["memory latency (ns)"] == "100.000"
    assert values["memory bandwidth (MB/s)"] == "1280.000"
    assert lines[3:] == ["# void: killed", "# mode=curve has no such columns"]

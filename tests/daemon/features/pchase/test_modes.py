"""Modes of the pointer chase that look for something themselves."""

from __future__ import annotations

import msgspec
import pytest

from measured import Measured, measured
from opd.errors import UsageError
from opd.features.pchase import hooks
from opd.features.pchase.building import Speed
from opd.features.pchase.hooks import PCHASE
from opd.features.pchase.matrices import nodes_of
from opd.features.pchase.options import USED, ChaseOptions
from opd.probes.plan import read_all


def run(options: ChaseOptions) -> Measured:
    """Measure here; samples of the whole by metric, details and notes."""
    return measured(PCHASE, options)


def test_a_curve_tells_levels_in_cycles_too():
    """By the core's own speed, beside nanoseconds."""
    _values, details, _notes = run(ChaseOptions(mode="curve", chain=64 << 10, seconds=0.002))
    assert details["core_ghz"] > 0
    for level in details["levels"]:
        assert level["cycles"] == pytest.approx(level["ns"] * details["core_ghz"])


def test_what_a_tlb_miss_costs_is_a_difference():
    """Of lines everywhere and of those of 64 pages at a time, experiment by experiment."""
    values, details, _notes = run(
        ChaseOptions(mode="tlb", chain=4 << 20, seconds=0.002, experiments=2)
    )
    assert details["tlb"]["local_page"] == 256 << 10
    for tlb, everywhere, local in zip(
        values["tlb_ns"], values["latency_ns"], values["local_ns"], strict=True
    ):
        assert tlb == pytest.approx(everywhere - local)
    assert len(values.get("huge_ns", [1, 2])) == 2


def test_parallelism_is_one_chain_by_the_best_of_several():
    """Of as many bytes together; how many chains are enough stands beside."""
    values, details, _notes = run(
        ChaseOptions(mode="parallel", chain=1 << 20, page=0, seconds=0.002, experiments=3)
    )
    told = details["parallel"]
    assert told["chains"][0] == 1
    assert told["enough"] in told["chains"]
    for parallelism, one, best in zip(
        values["parallelism"], values["latency_ns"], values["ns_per_load"], strict=True
    ):
        assert parallelism == pytest.approx(one / best)
        assert parallelism >= 1


def test_chains_too_short_for_many_are_not_divided_further():
    """At least a page of 4 KiB each."""
    _values, details, _notes = run(
        ChaseOptions(mode="parallel", chain=16 << 10, seconds=0.002, experiments=1)
    )
    assert details["parallel"]["chains"] == [1, 2, 3, 4]


@pytest.mark.parametrize("mode", ["curve", "tlb", "parallel"])
@pytest.mark.parametrize(
    "shape",
    [
        {"line": 192, "chain": 192 << 10, "page": 0},
        {"line": 8192, "chain": 64 << 10, "page": 0},
        {"line": 8, "chain": 1 << 10, "page": 0},
    ],
)
def test_lines_that_divide_no_page_are_measured_too(mode, shape):
    """Modes that choose sizes themselves choose such as hold whole lines."""
    values, _details, _notes = run(ChaseOptions(mode=mode, seconds=0.001, experiments=1, **shape))
    assert mode == "curve" or values["latency_ns"][0] > 0


def test_nodes_ask_for_each_others_memory():
    """Each by its first allowed CPU; one without CPUs is only asked."""
    home = {0: [0, 1], 1: [2, 3], 2: []}
    assert nodes_of([1, 2, 3], home, [0, 1, 2]) == ({0: 1, 1: 2}, [0, 1, 2])
    assert nodes_of([3], home, [0, 2]) == ({1: 3}, [0, 2])
    assert nodes_of([5], {}, []) == ({0: 5}, [0])


def test_the_matrix_of_this_machines_nodes():
    """A row a node that asks; of one node one cell, which is said."""
    values, details, notes = run(
        ChaseOptions(mode="numa", chain=1 << 20, load_memory=1 << 20, seconds=0.002, experiments=2)
    )
    told = details["numa"]
    assert len(told["ns"]) == len(told["from"])
    assert all(len(row) == len(told["to"]) for row in told["bytes_per_second"])
    assert len(values["latency_ns"]) >= 2
    if len(told["to"]) == 1:
        assert "one NUMA node" in " ".join(notes)


def test_cores_that_were_busy_a_moment_ago_are_at_speed():
    """One that was not seen yet is not."""
    speed = Speed()
    assert not speed.is_up([0, 1])
    assert speed.is_up([0, 1])
    assert not speed.is_up([1, 2])


def test_what_a_mode_does_not_look_at_is_said():
    """Options of another mode do not vanish silently; the mode's own are no news."""
    quick = {"seconds": 0.002, "experiments": 1, "chain": 65536}
    options = ChaseOptions(**quick, mode="parallel", chains=4, access="reverse", laps=2)
    assert options.unused == ["chains", "access"]
    _values, _details, notes = run(options)
    assert "mode=parallel has no use for: chains access" in notes
    assert ChaseOptions(**quick, load="write").unused == ["load"]
    assert ChaseOptions(**quick, loaders=1, load="write", pin=False, nice=3).unused == []
    assert ChaseOptions(mode="bandwidth", load="write", threads=2, cpus=("0",)).unused == []
    assert ChaseOptions(mode="cores", numa="add:1").unused == ["numa"]
    names = {field.name for field in msgspec.structs.fields(ChaseOptions)}
    assert all(used <= names for used in USED.values())


def test_passes_or_seconds():
    """Seconds mean nothing where passes are counted."""
    with pytest.raises(UsageError, match="seconds and iterations: give one of them"):
        read_all(PCHASE, "seconds=0.5,iterations=3")
    (options,) = read_all(PCHASE, "seconds=0.2,iterations=0")
    assert options.seconds == 0.2


def test_suites_use_what_they_set():
    """No suite of ours sets an option that its mode does not look at."""
    for name in PCHASE.suites:
        assert [one.unused for one in read_all(PCHASE, f"suite={name}") if one.unused] == []


def test_chains_on_nodes_do_not_share_a_huge_page():
    """The kernel places whole hugetlb pages; this is known before anything is mapped."""
    options = ChaseOptions(chain=64 << 10, mmu_page="2m", numa="add:0")
    with pytest.raises(ValueError, match="chain=65536 on a node of its own is no multiple of mmu"):
        hooks._rehearse(options, [0])
    hooks._rehearse(options, [])

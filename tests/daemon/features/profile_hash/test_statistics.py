"""Statistics of profile_hash: the keys that programs read, and the words for people."""

import json

from opd.features.checks import check_stats
from opd.features.profile_hash.cpus import nodes_by_cpu
from opd.features.profile_hash.statistics import stats_of
from opd_native.pc_hash import PcHash

KEYS = [
    *("hits", "shared_updates", "updates_per_hit", "amortisation", "flushes", "flips"),
    *("evictions", "probe_max", "ns_per_hit", "flip_ns", "bytes"),
]


def counted():
    """Statistics of a hash that counted a hundred hits in four slots, on the second CPU."""
    hashed = PcHash(slots=8, ways=8, policy="flush", nodes=[-1, -1], length=100)
    hashed.add(1, [1, 2, 3, 4] * 25)
    hashed.flush()
    return stats_of(
        hashed.stats(), hashed.stats_by_cpu(), outside=7, seconds=30.0, table="8 slots a table"
    )


def test_the_document_has_exactly_its_keys():
    """In this order, and for each CPU that counted."""
    stats = check_stats(counted())
    assert list(stats.document) == [*KEYS, "per_cpu"]
    [one] = stats.document["per_cpu"]
    assert list(one) == ["cpu", *KEYS]
    assert one["cpu"] == 1
    assert one["hits"] == stats.document["hits"] == 100
    assert stats.document["shared_updates"] == 4
    assert stats.document["amortisation"] == 25.0
    assert stats.document["updates_per_hit"] == 0.04
    json.dumps(stats.document, allow_nan=False)


def test_people_see_it_beside_the_kernels_of_2004():
    """And what was not counted."""
    stats = counted()
    assert stats.values["outside"] == 7
    notes = "\n".join(stats.notes)
    assert "8 slots a table" in notes
    assert "3.84%" in notes
    assert "about 18" in notes
    assert "4.00%, one in 25" in notes


def test_before_the_first_hit_nothing_is_divided_by_zero():
    """All zero."""
    hashed = PcHash(slots=8, ways=8, policy="none", nodes=[-1], length=1)
    stats = stats_of(hashed.stats(), {}, outside=0, seconds=0.0, table="")
    assert stats.document["amortisation"] == 0.0
    assert stats.document["per_cpu"] == []


def test_cpus_that_may_come_have_a_place_and_a_node(tmp_path):
    """As the kernel lists them; what is not told is -1."""
    cpus, node = tmp_path / "devices/system/cpu", tmp_path / "devices/system/node/node1"
    cpus.mkdir(parents=True)
    node.mkdir(parents=True)
    (cpus / "possible").write_text("0-3\n")
    (node / "cpulist").write_text("2-3\n")
    assert nodes_by_cpu(str(tmp_path)) == [-1, -1, 1, 1]
    (cpus / "possible").unlink()
    (cpus / "online").write_text("0-1\n")
    assert nodes_by_cpu(str(tmp_path)) == [-1, -1]

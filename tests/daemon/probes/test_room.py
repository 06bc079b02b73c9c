import os
import resource

import pytest

from opd.errors import OperationFailedError, PermissionDeniedError, UsageError
from opd.features.declared import Need, ProbeOptions
from opd.probes import room
from opd.probes.room import Room, check_room, check_threads, cpus_of, memory_room, size_text

MIB = 1 << 20


def tree(tmp_path, cgroup, files, available=10_000):
    """Make a /proc and a /sys/fs/cgroup that say so."""
    proc, sys = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {available * 1024} kB\n")
    (proc / "self/cgroup").write_text(cgroup)
    for name, value in files.items():
        (sys / name).parent.mkdir(parents=True, exist_ok=True)
        (sys / name).write_text(f"{value}\n")
    return {"proc": proc, "sys": sys}


def test_without_limits_it_is_memavailable(tmp_path):
    """What the kernel says."""
    assert memory_room(**tree(tmp_path, "0::/\n", {})) == Room(10_000 * MIB, "MemAvailable")


def test_the_tightest_of_cgroups_up_the_tree_counts(tmp_path):
    """Version 2: a parent's limit bounds the child that has none."""
    files = {
        "a/memory.max": 500 * MIB,
        "a/memory.current": 200 * MIB,
        "a/b/memory.max": "max",
        "a/b/memory.current": 100 * MIB,
    }
    room = memory_room(**tree(tmp_path, "0::/a/b\n", files))
    assert room.bytes == 300 * MIB
    assert room.bound.endswith("/a")


def test_the_first_version_of_cgroups_counts_too(tmp_path):
    """Its "no limit" is a large number."""
    files = {
        "memory/memory.limit_in_bytes": 9223372036854771712,
        "memory/memory.usage_in_bytes": 7,
        "memory/x/memory.limit_in_bytes": 100 * MIB,
        "memory/x/memory.usage_in_bytes": 130 * MIB,
    }
    room = memory_room(**tree(tmp_path, "4:cpu:/\n3:memory,hugetlb:/x\n0::/\n", files))
    assert room.bytes == 0


def test_what_does_not_fit_says_what_there_is():
    """With a rest for others."""
    check_room(Need(memory_bytes=100 * MIB), ProbeOptions(), Room(200 * MIB, "a limit"))
    with pytest.raises(OperationFailedError, match="takes 180 MiB, and a limit leaves 136 MiB"):
        check_room(Need(memory_bytes=180 * MIB), ProbeOptions(), Room(200 * MIB, "a limit"))
    with pytest.raises(UsageError, match="memory_cap is 1 MiB"):
        check_room(
            Need(memory_bytes=2 * MIB), ProbeOptions(memory_cap=MIB), Room(1 << 40, "nothing")
        )


def test_address_space_that_is_taken_is_no_room(tmp_path, monkeypatch):
    """RLIMIT_AS bounds all that a process maps, the interpreter too."""
    place = tree(tmp_path, "0::/\n", {})
    (place["proc"] / "self/statm").write_text(f"{100 * MIB // resource.getpagesize()} 1 1 1 1 1\n")
    limit = (300 * MIB, 300 * MIB)
    monkeypatch.setattr(resource, "getrlimit", lambda _which: limit)
    assert memory_room(**place) == Room(200 * MIB, "RLIMIT_AS")


def test_a_nice_value_that_nobody_asked_for_is_not_refused(monkeypatch):
    """0 is as it is, whatever that is: opctl may run niced itself."""
    monkeypatch.setattr(room, "_has", lambda _capability: False)
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (0, 0))
    monkeypatch.setattr(os, "nice", lambda _more: 15)
    room.check_policy(ProbeOptions())
    room.check_policy(ProbeOptions(nice=16))
    with pytest.raises(PermissionDeniedError, match="nice=5"):
        room.check_policy(ProbeOptions(nice=5))
    with pytest.raises(PermissionDeniedError, match="fifo=1"):
        room.check_policy(ProbeOptions(fifo=1))


def test_threads_beyond_the_cpus_take_turns_and_thousands_are_refused():
    """A note for some, an error for what would only measure the scheduler."""
    assert check_threads(Need(threads=2), (0, 1)) == ""
    assert "take turns on 2 CPUs" in check_threads(Need(threads=3), (0, 1))
    with pytest.raises(OperationFailedError, match="10000 threads on 2 CPUs: at most 64"):
        check_threads(Need(threads=10_000), (0, 1))


@pytest.mark.parametrize("cpus", [("0", "4095"), ("x",), ("3-1",)])
def test_cpus_that_are_not_there_or_no_list(cpus):
    """Named."""
    with pytest.raises(UsageError, match="cpus"):
        cpus_of(ProbeOptions(cpus=cpus))


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1536, "1.5 KiB"), (100 << 30, "100 GiB"), (1 << 62, "4194304 TiB")],
)
def test_sizes_for_people(size, text):
    """Powers of 1024."""
    assert size_text(size) == text

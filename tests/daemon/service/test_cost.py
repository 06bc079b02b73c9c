"""What opd says of its own cost, on real daemons and made-up cgroups."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from opd.service import processes
from opd.service.cost import own_cgroup
from opd.service.stopwatch import Stopwatch

STAGES = {"drain", "order", "attribute", "hash", "take", "hand over", "names", "store", "query"}


def test_stages_and_total_agree(start_daemon, busy):
    """Every stage is there and costs something; what is not accounted for is a small part."""
    daemon = start_daemon("-e", "cpu-clock:4999hz", "--interval", "1")
    with subprocess.Popen([busy, "3"], stdout=subprocess.DEVNULL):
        pass
    daemon.ask("dump")
    status = daemon.ask("status", "--cost")
    cost = status["cost"]
    by_stage = {row["stage"]: row for row in cost["stages"]}
    assert set(by_stage) >= STAGES
    for stage in STAGES:
        assert by_stage[stage]["cpu_seconds"] > 0, stage
        assert by_stage[stage]["ns_per_sample"] > 0
    assert by_stage["order"]["estimate"]
    assert not by_stage["names"]["estimate"]
    total = cost["cpu_seconds"]
    named = sum(row["cpu_seconds"] for row in cost["stages"])
    assert named + cost["unaccounted_seconds"] == pytest.approx(total, abs=1e-6)
    assert abs(cost["unaccounted_seconds"]) < 0.1 * total + 0.05
    assert total == pytest.approx(status["cpu_seconds"], rel=0.2)
    memory = cost["memory"]
    assert {row["process"] for row in memory["processes"]} == {"opd", "opd-store"}
    assert all(row["pss_bytes"] > 1 << 20 for row in memory["processes"])
    assert memory["kernel"]["rings"] >= 512 << 10
    assert memory["total_bytes"] == memory["pss_bytes"] + memory["kernel_bytes"]
    table = daemon.opctl("status", "--cost").stdout
    assert "unaccounted" in table
    assert "~hash" in table
    assert daemon.stop() == 0


def test_status_without_cost_has_none(start_daemon):
    """The short status stays short, and a wrong value is refused."""
    daemon = start_daemon()
    assert "cost" not in daemon.ask("status")
    assert daemon.stop() == 0


def _spin(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_clocks_of_processes_and_threads():
    """A child's and a thread's CPU time are read from outside while they run."""
    program = "import time\nwhile time.process_time() < 0.5: pass\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as child:
        assert child.pid in list(processes.descendants())
        until = time.monotonic() + 60
        while processes.cpu_ns(child.pid) < 400_000_000:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert processes.pss_bytes(child.pid) > 1 << 20
        assert processes.page_table_bytes(child.pid) > 0
        assert processes.name_of(child.pid).startswith("python")
        child.communicate(b"\n")
    assert processes.cpu_ns(child.pid) == 0
    assert processes.reaped_ns(os.getpid()) >= 400_000_000
    assert processes.name_of(child.pid) == ""

    done, leave = threading.Event(), threading.Event()

    def work():
        _spin(0.2)
        done.set()
        leave.wait(60)

    thread = threading.Thread(target=work, name="a-worker")
    thread.start()
    assert done.wait(60)
    assert processes.threads_ns()["a-worker"] >= 200_000_000
    leave.set()
    thread.join()
    assert "a-worker" not in processes.threads_ns()


def test_a_stopwatch_counts_cpu_and_not_waiting():
    """Stages add up by name and by thread; sleep costs nothing."""
    stopwatch = Stopwatch()
    with stopwatch.stage("take"):
        _spin(0.05)
        time.sleep(0.3)
    with stopwatch.stage("take"):
        _spin(0.05)
    with stopwatch.stage("hand over"):
        pass
    stages = stopwatch.stages()
    assert 0.1e9 <= stages["take"] < 0.3e9
    assert stages["hand over"] < 0.05e9
    assert stopwatch.within("MainThread") == sum(stages.values())
    assert stopwatch.within("opd-query") == 0


def _place(tmp_path, cgroup, mounts, files):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text(cgroup)
    (tmp_path / "mounts").write_text(mounts)
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _own(tmp_path, pids):
    return own_cgroup(pids, proc=str(tmp_path), mounts=str(tmp_path / "mounts"))


def test_a_cgroup_of_our_own_tells_memory(tmp_path):
    """Cgroup v2: kernel memory as it says; none when somebody else lives there."""
    mounts = f"30 1 0:26 / {tmp_path}/cg rw,nosuid - cgroup2 cgroup2 rw\n"
    _place(
        tmp_path,
        "0::/system.slice/opd.service\n",
        mounts,
        {
            "cg/system.slice/opd.service/cgroup.procs": "10\n11\n",
            "cg/system.slice/opd.service/memory.current": "40000000\n",
            "cg/system.slice/opd.service/memory.stat": "anon 100\nkernel 700000\nslab 5\n",
        },
    )
    assert _own(tmp_path, [10, 11, 12]) == {
        "path": "/system.slice/opd.service",
        "memory_bytes": 40_000_000,
        "kernel_bytes": 700_000,
    }
    assert _own(tmp_path, [10]) is None


def test_a_hybrid_machine_tells_by_the_first_version(tmp_path):
    """Cgroup v1 holds the memory controller while v2 holds none."""
    mounts = (
        f"30 1 0:26 / {tmp_path}/cg/unified rw - cgroup2 cgroup2 rw\n"
        f"31 1 0:27 / {tmp_path}/cg/memory rw - cgroup cgroup rw,memory\n"
    )
    _place(
        tmp_path,
        "4:memory:/opd\n2:cpu,cpuacct:/opd\n0::/\n",
        mounts,
        {
            "cg/memory/opd/cgroup.procs": "10\n",
            "cg/memory/opd/memory.usage_in_bytes": "5000\n",
            "cg/memory/opd/memory.kmem.usage_in_bytes": "700\n",
        },
    )
    assert _own(tmp_path, [10, 11]) == {"path": "/opd", "memory_bytes": 5000, "kernel_bytes": 700}


def test_probes_are_no_cost_of_opd():
    """A child that measures is passed over with its own: its memory is not asked for."""
    code = (
        "import subprocess, sys;"
        "open('/proc/self/comm', 'w').write('opd-probe');"
        "child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True); child.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as probe:
        sleeper = int(probe.stdout.readline())
        found = set(processes.descendants())
        os.kill(sleeper, signal.SIGKILL)
    assert not {probe.pid, sleeper} & found

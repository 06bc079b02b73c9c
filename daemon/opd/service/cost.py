"""What opd itself costs, by stage of a sample's way and by process: ``status`` with ``cost``."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opd.service import processes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opd.service.daemon import Daemon

NS = 1_000_000_000
# What the kernel needs of an open perf event, beside its ring (Linux 6: struct perf_event).
_EVENT_BYTES = 1408
_C_STAGES = ("drain", "order", "attribute", "hash")
_QUERY_THREADS = ("opd-query", "opd-router", "opd-zmq")


def total_cpu_ns() -> int:
    """CPU time of this process, its live descendants, and all that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = time.process_time_ns() + round((ended.ru_utime + ended.ru_stime) * NS)
    for pid in processes.descendants():
        total += processes.cpu_ns(pid) + processes.reaped_ns(pid)
    return total


class NativeCost:
    """The drain's CPU time, also of samplers that were closed."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._samples = 0

    def retire(self, stats: Mapping[str, Any]) -> None:
        """Keep what a sampler cost that is closed now."""
        for name, used in _native(stats).items():
            self._before[name] = self._before.get(name, 0) + used
        self._samples += int(stats["samples"]) + int(stats["idle"])

    def read(self, stats: Mapping[str, Any] | None) -> tuple[dict[str, int], int]:
        """CPU time by stage, ns, and samples, of all samplers; ``stats`` of the present one."""
        now = _native(stats) if stats is not None else {}
        stages = {
            name: now.get(name, 0) + self._before.get(name, 0)
            for name in ("snapshot", *_C_STAGES, "wake-ups")
        }
        samples = int(stats["samples"]) + int(stats["idle"]) if stats is not None else 0
        return stages, samples + self._samples


def _native(stats: Mapping[str, Any]) -> dict[str, int]:
    cost = stats["cost"]
    stages = {name: int(cost[f"{name}_ns"]) for name in ("snapshot", *_C_STAGES)}
    return stages | {"wake-ups": max(int(stats["drain_cpu_ns"]) - sum(stages.values()), 0)}


def cost_of(daemon: Daemon) -> dict[str, Any]:
    """Give the ``cost`` of status; ``daemon.state_lock`` is held."""
    sampling = daemon.sampling
    stats = sampling.stats() if sampling is not None else None
    link = daemon.link.stats()
    native, samples = daemon.native_cost.read(stats)
    stages = _own_stages(daemon, native)
    stages += _worker_stages(link)
    stages += _other_children(daemon.link.worker_pid)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    stages.append(("ended children", "opd", round((ended.ru_utime + ended.ru_stime) * NS)))
    total = total_cpu_ns()
    named = sum(used for _stage, _process, used in stages)
    rows = [
        {
            "stage": stage,
            "process": process,
            "cpu_seconds": used / NS,
            "percent": 100 * used / total if total else 0.0,
            "ns_per_sample": used / samples if samples else None,
            "estimate": stage in _C_STAGES,
        }
        for stage, process, used in stages
    ]
    return {
        "cpu_seconds": total / NS,
        "cpu_percent": 100 * total / NS / max(time.monotonic() - daemon.started, 1e-9),
        "samples": samples,
        "stages": rows,
        "unaccounted_seconds": (total - named) / NS,
        "memory": memory_of(stats),
    }


def _own_stages(daemon: Daemon, native: Mapping[str, int]) -> list[tuple[str, str, int]]:
    """Of this process: each thread's time by what it is for."""
    threads = processes.threads_ns()
    marked = daemon.stopwatch.stages()
    query = sum(used for name, used in threads.items() if name.startswith(_QUERY_THREADS))
    query += processes.native_threads_ns("ZMQ")
    # A window that a dump cut was taken on the asker's thread.
    query -= daemon.stopwatch.within("opd-query")
    windows = threads.get("opd-windows", 0) - daemon.stopwatch.within("opd-windows")
    main = threads.get("MainThread", 0) - daemon.stopwatch.within("MainThread")
    return [
        ("start-up", "opd", daemon.start_cpu_ns + native["snapshot"]),
        *((name, "opd", native[name]) for name in _C_STAGES),
        ("wake-ups", "opd", native["wake-ups"] + max(windows, 0)),
        ("take", "opd", marked.get("take", 0)),
        ("hand over", "opd", marked.get("hand over", 0) + threads.get("opd-store-link", 0)),
        ("query", "opd", max(query, 0)),
        ("duties", "opd", max(main - daemon.start_cpu_ns, 0)),
        *((f"feature {name}", "opd", ns) for name, ns in daemon.featuring.cost_ns().items()),
    ]


def _worker_stages(link: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Of the store's worker, as it last reported."""
    stages = {name: round(seconds * NS) for name, seconds in link["stages"].items()}
    rest = round(link["cpu_seconds"] * NS) - round(link["ended_cpu_seconds"] * NS)
    children = round(link["children_cpu_seconds"] * NS)
    return [
        ("names", "opd-store", stages.get("names", 0)),
        ("store", "opd-store", stages.get("store", 0)),
        ("worker's start, talk", "opd-store", max(rest - sum(stages.values()), 0)),
        *([("worker's children", "opd-store", children)] if children else []),
    ]


def _other_children(worker: int) -> list[tuple[str, str, int]]:
    """Of the children that are not the worker: imports, bursts, queries."""
    stages: dict[str, int] = {}
    for pid in processes.descendants():
        if pid != worker and (name := processes.name_of(pid)):
            stages[name] = stages.get(name, 0) + processes.cpu_ns(pid) + processes.reaped_ns(pid)
    return [("child", name, used) for name, used in stages.items()]


# ---- memory


def memory_of(stats: Mapping[str, Any] | None) -> dict[str, Any]:
    """Memory by process, and the kernel's for us."""
    pids = [os.getpid(), *processes.descendants()]
    by_process: list[dict[str, Any]] = [
        {"process": name, "pid": pid, "pss_bytes": processes.pss_bytes(pid)}
        for pid in pids
        if (name := processes.name_of(pid))
    ]
    rings = int(stats["ring_bytes"]) if stats is not None else 0
    kernel = {
        "rings": rings,
        "perf_events": _EVENT_BYTES * int(stats["fds"]) if stats is not None else 0,
        "page_tables": sum(map(processes.page_table_bytes, pids)),
    }
    cgroup = own_cgroup(pids)
    if cgroup is not None:
        # The kernel charges page tables, sockets and objects to it, but not rings.
        kernel = {"rings": rings, "cgroup": cgroup["kernel_bytes"]}
    pss: int = sum(row["pss_bytes"] for row in by_process)
    return {
        "processes": by_process,
        "pss_bytes": pss,
        "kernel": kernel,
        "kernel_bytes": sum(kernel.values()),
        "kernel_by": "cgroup" if cgroup is not None else "computed",
        "cgroup": cgroup,
        "total_bytes": pss + sum(kernel.values()),
    }


def own_cgroup(
    pids: Sequence[int], *, proc: str = "/proc", mounts: str = "/proc/self/mountinfo"
) -> dict[str, Any] | None:
    """Give path, memory and kernel memory of a cgroup that holds our processes and no other.

    The memory controller's: of cgroup v2, else of v1. None where there is none.
    """
    try:
        lines = Path(proc, "self/cgroup").read_text().splitlines()
        roots = _mounted(Path(mounts).read_text())
    except OSError:
        return None
    for line in lines:
        _number, controllers, path = line.split(":", 2)
        version = 2 if not controllers else 1
        root = roots.get(version)
        if root is None or path == "/" or (version == 1 and "memory" not in controllers.split(",")):
            continue
        folder = Path(root + path)
        try:
            members = {int(pid) for pid in (folder / "cgroup.procs").read_text().split()}
            if not members or not members <= set(pids):
                continue
            return {"path": path, **(_memory_v2 if version == 2 else _memory_v1)(folder)}
        except (OSError, ValueError, KeyError):
            continue
    return None


def _mounted(mountinfo: str) -> dict[int, str]:
    """Where the hierarchies with the memory controller are, by version."""
    roots: dict[int, str] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        kind, _source, options = right.split(" ", 2)
        if kind == "cgroup2":
            roots[2] = left.split()[4]
        elif kind == "cgroup" and "memory" in options.split(","):
            roots[1] = left.split()[4]
    return roots


def _memory_v2(folder: Path) -> dict[str, int]:
    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    names = ("kernel_stack", "pagetables", "percpu", "sock", "slab")
    kernel = int(stat["kernel"]) if "kernel" in stat else sum(int(stat.get(n, 0)) for n in names)
    current = int((folder / "memory.current").read_text())
    return {"memory_bytes": current, "kernel_bytes": kernel}


def _memory_v1(folder: Path) -> dict[str, int]:
    return {
        "memory_bytes": int((folder / "memory.usage_in_bytes").read_text()),
        "kernel_bytes": int((folder / "memory.kmem.usage_in_bytes").read_text()),
    }

"""What machine this is and what runs on it, for those who were not there."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

_LIBRARIES = (
    *("cffi", "msgpack", "msgspec", "psutil", "pyzmq", "rich", "structlog"),
    *("duckdb", "numpy", "pyarrow"),
)
_SYSCTLS = (
    *("perf_event_paranoid", "perf_event_mlock_kb", "perf_event_max_sample_rate"),
    *("perf_event_max_stack", "perf_cpu_time_max_percent", "kptr_restrict", "nmi_watchdog"),
    *("pid_max", "threads-max"),
)
_FILE_MOST = 64 << 10


def program_versions() -> dict[str, str | None]:
    """Versions by name; None for what is not installed."""
    import sqlite3

    import zmq

    from opd import __version__

    versions: dict[str, str | None] = {
        "opd": __version__,
        "python": sys.version,
        "sqlite": sqlite3.sqlite_version,
        "libzmq": zmq.zmq_version(),
        "libc": " ".join(platform.libc_ver()),
    }
    for name in _LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def machine_facts() -> dict[str, Any]:
    """Kernel, distribution, CPU, memory and the settings of the kernel that matter to opd."""
    name = os.uname()
    cpu = _pairs(_read("/proc/cpuinfo"), ":")
    memory = _pairs(_read("/proc/meminfo"), ":")
    kernel = Path("/proc/sys/kernel")
    return {
        "host": name.nodename,
        "kernel": name.release,
        "kernel_build": name.version,
        "architecture": name.machine,
        "kernel_command_line": _read("/proc/cmdline"),
        "distribution": _pairs(_read("/etc/os-release"), "=").get("PRETTY_NAME", "").strip('"'),
        "cpu": cpu.get("model name", cpu.get("CPU implementer", "")),
        "microcode": cpu.get("microcode", ""),
        "hypervisor": "hypervisor" in cpu.get("flags", "").split(),
        "cpus_online": _read("/sys/devices/system/cpu/online"),
        "cpus_isolated": _read("/sys/devices/system/cpu/isolated"),
        "memory": memory.get("MemTotal", ""),
        "memory_available": memory.get("MemAvailable", ""),
        "load": _read("/proc/loadavg"),
        "clocksource": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "transparent_hugepages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "lockdown": _read("/sys/kernel/security/lockdown"),
        "event_sources": _entries("/sys/bus/event_source/devices"),
        "cgroup_mounts": [
            line
            for line in _read("/proc/self/mounts").splitlines()
            if line.split()[2:3] in (["cgroup"], ["cgroup2"])
        ],
        "sysctl": {key: _read(kernel / key) for key in _SYSCTLS},
    }


def _read(path: str | Path) -> str:
    """A small file; what keeps it from being read, in brackets."""
    try:
        with Path(path).open("rb") as file:
            return file.read(_FILE_MOST).decode(errors="replace").strip()
    except OSError as error:
        return f"[{error.strerror}]"


def _pairs(text: str, separator: str) -> dict[str, str]:
    """Lines of NAME and value; of several with a name the first."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, there, value = line.partition(separator)
        if there:
            found.setdefault(name.strip(), value.strip())
    return found


def _entries(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))  # noqa: PTH208 - names, not paths
    except OSError:
        return []

"""What there is for a probe: memory, CPUs, threads, locked memory. Asked before it runs."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from opd.errors import ConfigError, OperationFailedError, PermissionDeniedError, UsageError

if TYPE_CHECKING:
    from opd.features.declared import Need, ProbeOptions

# Left to others, and to the probe's own code.
SPARE_BYTES = 64 << 20
# More would measure the scheduler alone; whole machines were brought to a stop by it.
THREADS_A_CPU = 64
_CAP_IPC_LOCK = 14
_CAP_SYS_NICE = 23
_UNLIMITED = 1 << 60
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Room(NamedTuple):
    """Bytes that may be taken, and what bounds them in words."""

    bytes: int
    bound: str


def memory_room(*, proc: Path = Path("/proc"), sys: Path = Path("/sys/fs/cgroup")) -> Room:
    """The least of MemAvailable, what the cgroups leave up the tree, and RLIMIT_AS."""
    rooms = [*_of_machine(proc), *_of_cgroups(proc, sys)]
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft != resource.RLIM_INFINITY:
        # What this process maps, the one that measures will map too.
        pages = _text(proc / "self/statm").split()[:1]
        own = int(pages[0]) * resource.getpagesize() if pages else 0
        rooms.append(Room(max(0, soft - own), "RLIMIT_AS"))
    return min(rooms, default=Room(_UNLIMITED, "nothing"))


def _of_machine(proc: Path) -> list[Room]:
    for line in _text(proc / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return [Room(int(line.split()[1]) << 10, "MemAvailable")]
    return []


def _of_cgroups(proc: Path, sys: Path) -> list[Room]:
    rooms = []
    for line in _text(proc / "self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            names = ("memory.max", "memory.current")
            roots = [sys, sys / "unified"]
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            roots = [sys / "memory"]
        else:
            continue
        for root in roots:
            rooms += _up(root, path, *names)
    return rooms


def _up(root: Path, path: str, limit: str, usage: str) -> list[Room]:
    """What each level from the own one to the root leaves."""
    rooms = []
    level = root / path.lstrip("/")
    while True:
        most, used = _text(level / limit).strip(), _text(level / usage).strip()
        if most.isdigit() and used.isdigit() and int(most) < _UNLIMITED:
            rooms.append(Room(max(0, int(most) - int(used)), f"the limit of cgroup {level}"))
        if level in (root, level.parent):
            return rooms
        level = level.parent


def check_room(need: Need, options: ProbeOptions, room: Room) -> None:
    """Refuse a measurement that cannot be: OperationFailedError says what there is instead."""
    cap = options.memory_cap
    if cap and need.memory_bytes > cap:
        raise UsageError(
            f"it takes {size_text(need.memory_bytes)}, and memory_cap is {size_text(cap)}"
        )
    if need.memory_bytes + SPARE_BYTES > room.bytes:
        there = size_text(max(0, room.bytes - SPARE_BYTES))
        raise OperationFailedError(
            f"it takes {size_text(need.memory_bytes)}, and {room.bound} leaves {there}",
            hint="ask for less memory, or fewer threads",
        )
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if need.locked_bytes > locked != resource.RLIM_INFINITY and not _has(_CAP_IPC_LOCK):
        raise PermissionDeniedError(
            f"it locks {size_text(need.locked_bytes)}, and RLIMIT_MEMLOCK is {size_text(locked)}",
            hint="needs CAP_IPC_LOCK, or LimitMEMLOCK= of the service",
        )


def check_threads(need: Need, cpus: tuple[int, ...]) -> str:
    """Refuse more threads than make sense; a note where they have to take turns."""
    most = THREADS_A_CPU * len(cpus)
    if need.threads > most:
        raise OperationFailedError(
            f"{need.threads} threads on {len(cpus)} CPUs: at most {THREADS_A_CPU} a CPU are run,"
            f" {most} here"
        )
    if need.threads > len(cpus):
        return f"{need.threads} threads take turns on {len(cpus)} CPUs"
    return ""


def check_policy(options: ProbeOptions) -> None:
    """Refuse what the scheduler will not give. Raises PermissionDeniedError."""
    if _has(_CAP_SYS_NICE):
        return
    if options.fifo > resource.getrlimit(resource.RLIMIT_RTPRIO)[0]:
        raise PermissionDeniedError(
            f"fifo={options.fifo} is not permitted",
            hint="needs CAP_SYS_NICE, or LimitRTPRIO= of the service",
        )
    # 0 leaves it as it is.
    least = min(os.nice(0), 20 - resource.getrlimit(resource.RLIMIT_NICE)[0])
    if options.nice and options.nice < least:
        raise PermissionDeniedError(
            f"nice={options.nice} is not permitted",
            hint="needs CAP_SYS_NICE, or LimitNICE= of the service",
        )


def cpus_of(options: ProbeOptions) -> tuple[int, ...]:
    """The CPUs to run on. UsageError names one that is not allowed, and those that are."""
    from opd.events.cpus import format_cpu_list, parse_cpu_list

    allowed = os.sched_getaffinity(0)
    if not options.cpus:
        return tuple(sorted(allowed))
    wanted: set[int] = set()
    try:
        for part in options.cpus:
            wanted.update(parse_cpu_list(part, what="cpus"))
    except ConfigError as error:
        raise UsageError(error.message) from error
    if beyond := sorted(wanted - allowed):
        raise UsageError(
            f"cpus: CPU {beyond[0]} is not there or not allowed",
            hint=f"allowed: {format_cpu_list(tuple(sorted(allowed)))}",
        )
    return tuple(sorted(wanted))


def _has(capability: int) -> bool:
    for line in _text(Path("/proc/self/status")).splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return False


def size_text(size: float) -> str:
    """Bytes for people.

    >>> size_text(100 << 30)
    '100 GiB'
    """
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.1f}".rstrip("0").rstrip(".") + f" {unit}"


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # another kind of cgroups, another kernel

"""Why perf_event_open refuses, in words that say what to change."""

from __future__ import annotations

import errno
import os
import platform
import resource
from pathlib import Path

from opd.errors import EventError, OpdError, OperationFailedError, PermissionDeniedError
from opd.events.catalogue import BY_NAME, PERF_TYPE_SOFTWARE

# Upstream's levels; a CPU-wide event of an unprivileged user needs at most this one.
PARANOID_CPU_WIDE = 0
PARANOID_TRACEPOINTS = -1

PERFMON = 1 << 38
SYS_ADMIN = 1 << 21

_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_ATTR_BYTES = 64
_FLAGS = 0b1 | 1 << 5 | 1 << 6  # disabled, exclude_kernel, exclude_hv
_CLOEXEC = 1 << 3


def explain_open_failure(
    error_number: int,
    event_name: str,
    *,
    cpu: int | None = None,
    paranoid: int | None = None,
    proc: str = "/proc",
) -> OpdError:
    """The error that says why perf_event_open refused ``event_name``; not raised here.

    ``error_number`` is the positive errno. ``paranoid`` None: read from the
    sysctl. EACCES and EPERM give PermissionDeniedError; what the event or the
    machine lacks, EventError; what another user of it or a limit took,
    OperationFailedError.
    """
    where = f"event {event_name!r}" + (f" on CPU {cpu}" if cpu is not None else "")
    word = errno.errorcode.get(error_number, str(error_number))
    if error_number in {errno.EACCES, errno.EPERM}:
        return _denied(error_number, where, event_name, paranoid, proc)
    lacking = {
        errno.ENOENT: ("this machine has no PMU for it", "cpu-clock works on every machine"),
        errno.EOPNOTSUPP: (
            "its PMU cannot do what was asked",
            "leave out the modifiers, or take cpu-clock",
        ),
        errno.EINVAL: (
            "the kernel refuses the parameters",
            "leave out modifiers and count; the kernel may be too old for one of them",
        ),
        errno.E2BIG: ("the kernel is too old for the parameters", "take a newer kernel"),
        errno.ENOSYS: (
            "the kernel has no perf events",
            "take a kernel with CONFIG_PERF_EVENTS; in a container, allow perf_event_open",
        ),
    }
    if error_number in lacking:
        reason, hint = lacking[error_number]
        if "/" in event_name.partition(":")[0] and error_number == errno.EINVAL:
            reason = "the kernel refuses it: its PMU counts but cannot sample, or a term is wrong"
            hint = "compare its terms with format/ of the PMU in /sys/bus/event_source/devices"
        return EventError(f"{where}: {reason} ({word})", hint=hint)
    taken = {
        errno.EMFILE: (
            "this process may open no more files",
            "raise the limit: LimitNOFILE= in opd.service, or ulimit -n",
        ),
        errno.ENFILE: ("the system may open no more files", "raise the sysctl fs.file-max"),
        errno.ENODEV: (
            "that CPU is offline, or its PMU is gone",
            "compare --cpus with /sys/devices/system/cpu/online",
        ),
        errno.EBUSY: (
            "another user holds the PMU",
            "end other profilers; kernel.nmi_watchdog=0 frees a counter",
        ),
        errno.ENOSPC: ("its PMU has no counter left", "ask for fewer events"),
        errno.ENOMEM: ("no memory for it", "sample fewer CPUs, or events"),
    }
    reason, hint = taken.get(error_number, (os.strerror(error_number), "opctl doctor shows limits"))
    return OperationFailedError(f"{where}: {reason} ({word})", hint=hint)


def _denied(
    number: int, where: str, event_name: str, paranoid: int | None, proc: str
) -> PermissionDeniedError:
    level = (
        read_number(Path(proc, "sys/kernel/perf_event_paranoid")) if paranoid is None else paranoid
    )
    if number == errno.EPERM and paranoid is None and _opens_at_all(proc):
        return _no_memory(where, proc)
    wanted = PARANOID_TRACEPOINTS if _is_probe(event_name) else PARANOID_CPU_WIDE
    privileged = effective_capabilities(proc) & (PERFMON | SYS_ADMIN)
    if privileged:
        # paranoid does not concern this user: something in front of the kernel said no.
        return PermissionDeniedError(
            f"{where}: not permitted, although the process has the capability"
            f" ({errno.errorcode[number]})",
            hint="a seccomp filter, a security module or lockdown refuses perf_event_open:"
            " allow it for this container or unit",
        )
    if event_name.startswith(("uprobe:", "uretprobe:")):
        # Whatever kernel.perf_event_paranoid says.
        return PermissionDeniedError(
            f"{where}: user {os.geteuid()} may not set probes ({errno.errorcode[number]})",
            hint="run as root, or give the process CAP_PERFMON (AmbientCapabilities=CAP_PERFMON)",
        )
    now = "unreadable" if level is None else str(level)
    return PermissionDeniedError(
        f"{where}: user {os.geteuid()} may not sample whole CPUs ({errno.errorcode[number]};"
        f" kernel.perf_event_paranoid is {now})",
        hint="run as root, or give the process CAP_PERFMON (AmbientCapabilities=CAP_PERFMON),"
        f" or as root: sysctl kernel.perf_event_paranoid={wanted}",
    )


def _is_probe(event_name: str) -> bool:
    """Whether it is a tracepoint or a probe, which need more than counters do."""
    head, colon, _ = event_name.partition(":")
    return bool(colon) and "/" not in head and head not in BY_NAME and head == head.lower()


def _opens_at_all(proc: str) -> bool:
    """Whether perf_event_open itself is not what was refused."""
    return proc == "/proc" and try_open(PERF_TYPE_SOFTWARE, 0) == 0


def _no_memory(where: str, proc: str) -> PermissionDeniedError:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    free = read_number(Path(proc, "sys/kernel/perf_event_mlock_kb"))
    return PermissionDeniedError(
        f"{where}: no locked memory is left for its rings (EPERM; RLIMIT_MEMLOCK is"
        f" {limit // 1024} KiB, kernel.perf_event_mlock_kb {free} a CPU for all of user"
        f" {os.geteuid()})",
        hint="end this user's other profilers, or raise the limit: LimitMEMLOCK= in opd.service,"
        " ulimit -l; CAP_IPC_LOCK lifts it",
    )


def try_open(event_type: int, config: int) -> int:
    """0 when perf_event_open takes this event for the calling thread, else the errno.

    User level only, so that it works without privileges: it asks for the PMU, not the permission.
    """
    number = _SYSCALL.get(platform.machine())
    if number is None:
        return errno.ENOSYS
    attr = bytearray(_ATTR_BYTES)
    attr[0:4] = event_type.to_bytes(4, "little")
    attr[4:8] = _ATTR_BYTES.to_bytes(4, "little")
    attr[8:16] = config.to_bytes(8, "little")
    attr[40:48] = _FLAGS.to_bytes(8, "little")
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    pointer = (ctypes.c_char * _ATTR_BYTES).from_buffer(attr)
    anywhere, no_group = ctypes.c_long(-1), ctypes.c_long(-1)
    fd = libc.syscall(
        ctypes.c_long(number),
        pointer,
        ctypes.c_long(0),
        anywhere,
        no_group,
        ctypes.c_ulong(_CLOEXEC),
    )
    if fd < 0:
        return ctypes.get_errno()
    os.close(fd)
    return 0


def process_status(proc: str) -> dict[str, str]:
    """The lines of /proc/self/status by name."""
    pairs = (line.partition(":") for line in read_text(Path(proc, "self/status")).splitlines())
    return {name: value.strip() for name, _, value in pairs}


def effective_capabilities(proc: str) -> int:
    """The capability bits in force; 0 when not readable."""
    try:
        return int(process_status(proc).get("CapEff", "0"), 16)
    except ValueError:
        return 0


def read_text(file: Path, *, most: int = 1 << 16) -> str:
    """The beginning of a file, or nothing when it is not readable."""
    try:
        with file.open("rb") as stream:
            return stream.read(most).decode(errors="replace").strip()
    except (OSError, ValueError):
        return ""


def read_number(file: Path) -> int | None:
    """The number a file holds, or None when there is none."""
    try:
        return int(read_text(file, most=32))
    except ValueError:
        return None

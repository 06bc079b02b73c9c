"""What this kernel, this machine and this user allow; why not; what to do about it."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opd.errors import OpdError, PermissionDeniedError
from opd.events.catalogue import PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE
from opd.events.cpus import format_cpu_list, parse_cpu_list
from opd.events.listing import core_pmus
from opd.events.tracepoints import MOUNT_HINT, find_tracefs
from opd.service.refusals import (
    PARANOID_CPU_WIDE,
    PERFMON,
    SYS_ADMIN,
    effective_capabilities,
    explain_open_failure,
    process_status,
    read_number,
    read_text,
    try_open,
)

if TYPE_CHECKING:
    from opd.sampling.live import LiveSampling

__all__ = ["Finding", "examine", "explain_open_failure", "own_processes_finding", "try_open"]

_EVENTS_USUAL = 4
_FILES_SPARE = 64
_DSA_CHECKS_MOST = 64
_RING_KIB_USUAL = 512
# What PROC_PID_INIT_INO makes of the first PID namespace, on every kernel.
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
_BY_UNIT = "systemctl start opd (its unit gives it), or run as root"

# Bit, name, what opd does with it.
_CAPABILITIES = (
    (38, "CAP_PERFMON", "opens events on whole CPUs"),
    (19, "CAP_SYS_PTRACE", "finds the images of others' processes, also in containers"),
    (2, "CAP_DAC_READ_SEARCH", "opens tracefs, and images that only their owner may read"),
    (40, "CAP_CHECKPOINT_RESTORE", "opens images deleted while they run (map_files)"),
    (34, "CAP_SYSLOG", "reads kernel addresses in kallsyms"),
    (14, "CAP_IPC_LOCK", "maps rings beyond the locked-memory limit"),
    (21, "CAP_SYS_ADMIN", "stands for CAP_PERFMON before Linux 5.8"),
)


class Finding(msgspec.Struct, frozen=True):
    """One fact about this machine: ``remedy`` is empty when ``ok``, never otherwise."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def examine(
    *,
    proc: str = "/proc",
    sys: str = "/sys",
    ring_kib: int = _RING_KIB_USUAL,
    events: int = _EVENTS_USUAL,
) -> list[Finding]:
    """Everything that decides what opd can do here, in a stable order.

    For rings of ``ring_kib`` and so many events.
    Reads below ``proc`` and ``sys``; tried for real are only perf_event_open and
    a queue of DSA, and only where both are this machine's own. Never raises.
    """
    real = (proc, sys) == ("/proc", "/sys")
    cpus = _online(sys)
    return [
        _pmu(sys, real=real),
        *([_software()] if real else []),
        _paranoid(proc),
        *_capabilities(proc, fits=_locked_memory(proc, cpus, ring_kib).ok),
        _locked_memory(proc, cpus, ring_kib),
        _files(cpus, events),
        _sample_rate(proc),
        _tracefs(proc, sys),
        _kallsyms(proc),
        _lockdown(sys),
        _seccomp(proc),
        _pid_namespace(proc),
        _cgroup(proc),
        _pressure(proc),
        _hugepages(sys),
        _numa(sys),
        _cpus(sys, cpus),
        *_ibs(proc, sys),
        *_dsa(sys, real=real),
        _virtual(proc),
        _vdso(proc),
    ]


def own_processes_finding(sampling: LiveSampling | None) -> Finding | None:
    """What a daemon that may not sample whole CPUs sees of the machine; None for any other."""
    if sampling is None or sampling.own is None:
        return None
    own = sampling.own.stats()
    detail = f"only the processes of uid {own['uid']}"
    if own["refused"]:
        detail += f", less {own['refused']} that may not be looked at"
    if own["left_out"]:
        detail += f", less {own['left_out']} for which no open files are left"
    return Finding("sampled", ok=False, detail=detail, remedy=f"CAP_PERFMON: {_BY_UNIT}")


def _pmu(sys: str, *, real: bool) -> Finding:
    name = "PMU"
    pmus = core_pmus(sysfs=sys)
    if not pmus:
        return Finding(
            name,
            ok=False,
            detail="no core PMU in sysfs: no cycles, no cache misses",
            remedy="opd samples with cpu-clock; in a virtual machine, have its host pass the PMU",
        )
    failed = try_open(PERF_TYPE_HARDWARE, 0) if real else 0
    if failed:
        return Finding(
            name,
            ok=False,
            detail=f"{', '.join(pmus)} in sysfs, but cycles: {os.strerror(failed)}",
            remedy=str(explain_open_failure(failed, "cycles").hint),
        )
    return Finding(name, ok=True, detail=", ".join(pmus))


def _software() -> Finding:
    failed = try_open(PERF_TYPE_SOFTWARE, 0)
    name = "perf_event_open"
    if not failed:
        return Finding(name, ok=True, detail="opens cpu-clock")
    error = explain_open_failure(failed, "cpu-clock")
    return Finding(name, ok=False, detail=error.message, remedy=str(error.hint))


def _paranoid(proc: str) -> Finding:
    name = "perf_event_paranoid"
    level = read_number(Path(proc, "sys/kernel/perf_event_paranoid"))
    if level is None:
        return Finding(
            name, ok=False, detail="not readable", remedy="a kernel with CONFIG_PERF_EVENTS"
        )
    if effective_capabilities(proc) & (PERFMON | SYS_ADMIN):
        return Finding(name, ok=True, detail=f"{level}; does not concern this user (CAP_PERFMON)")
    ok = level <= PARANOID_CPU_WIDE
    remedy = ""
    if not ok:
        remedy = (
            f"CAP_PERFMON: {_BY_UNIT}; or sysctl kernel.perf_event_paranoid={PARANOID_CPU_WIDE}"
        )
    return Finding(name, ok=ok, detail=f"{level}: {_allows(level)}", remedy=remedy)


_ALLOWS = {
    0: "any user may sample whole CPUs, no tracepoints",
    1: "a user may sample his own processes, in the kernel too",
    2: "a user may sample his own processes, at user level",
}


def _allows(level: int) -> str:
    beyond = "any user may do everything" if level < 0 else "a user may sample nothing"
    return _ALLOWS.get(level, beyond)


def _capabilities(proc: str, *, fits: bool) -> list[Finding]:
    held = effective_capabilities(proc)
    everything = held & SYS_ADMIN
    findings = []
    for bit, name, use in _CAPABILITIES:
        ok = bool(held >> bit & 1)
        # Each was split from CAP_SYS_ADMIN, which the kernel still takes for it.
        stands_in = (
            not ok
            and bool(everything)
            and name in {"CAP_PERFMON", "CAP_SYSLOG", "CAP_CHECKPOINT_RESTORE"}
        )
        # The other way round: not needed where CAP_PERFMON is there.
        spare = name == "CAP_SYS_ADMIN" and not ok and bool(held & PERFMON)
        detail = use if ok else f"missing; {use}"
        if stands_in:
            detail = f"missing, CAP_SYS_ADMIN stands for it; {use}"
        elif spare:
            detail = "missing, not needed beside CAP_PERFMON"
        fits_without = name == "CAP_IPC_LOCK" and not ok and fits
        if fits_without:
            detail = "missing, not needed: the rings fit into the locked memory allowed"
        fine = ok or stands_in or spare or fits_without
        # The wide one is never worth asking for where the narrow one exists.
        wanted = "CAP_PERFMON" if name == "CAP_SYS_ADMIN" else name
        remedy = "" if fine else f"{wanted}: {_BY_UNIT}"
        if not fine and name == "CAP_IPC_LOCK":
            remedy = "LimitMEMLOCK= in opd.service (systemctl edit opd), or run as root"
        findings.append(Finding(name, ok=fine, detail=detail, remedy=remedy))
    return findings


def _locked_memory(proc: str, cpus: tuple[int, ...], ring_kib: int) -> Finding:
    name = "locked memory"
    need = (ring_kib + os.sysconf("SC_PAGE_SIZE") // 1024) * max(1, len(cpus))
    if effective_capabilities(proc) >> 14 & 1:
        return Finding(name, ok=True, detail=f"{need} KiB of rings, no limit (CAP_IPC_LOCK)")
    each = read_number(Path(proc, "sys/kernel/perf_event_mlock_kb")) or 0
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit == resource.RLIM_INFINITY:
        return Finding(name, ok=True, detail=f"{need} KiB of rings, memlock unlimited")
    have = each * max(1, len(cpus)) + limit // 1024
    ok = need <= have
    remedy = ""
    if not ok:
        remedy = f"LimitMEMLOCK={need}K in opd.service, or a smaller sampling.ring_kib"
    detail = (
        f"{need} KiB of rings; allowed {have} KiB (RLIMIT_MEMLOCK {limit // 1024},"
        f" perf_event_mlock_kb {each} a CPU)"
    )
    return Finding(name, ok=ok, detail=detail, remedy=remedy)


def _files(cpus: tuple[int, ...], events: int) -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # One event more for the side-band, which owns the ring.
    need = max(1, len(cpus)) * (events + 1) + _FILES_SPARE
    # The soft limit can be raised by the process itself.
    ok = hard == resource.RLIM_INFINITY or need <= hard
    remedy = "" if ok else f"LimitNOFILE={need} in opd.service"
    return Finding(
        "open files",
        ok=ok,
        detail=f"{need} for {events} events on {len(cpus)} CPUs; limit {soft}, hard {hard}",
        remedy=remedy,
    )


def _sample_rate(proc: str) -> Finding:
    name = "perf_event_max_sample_rate"
    rate = read_number(Path(proc, "sys/kernel/perf_event_max_sample_rate"))
    least = 1000
    if rate is None:
        return Finding(
            name, ok=False, detail="not readable", remedy="a kernel with CONFIG_PERF_EVENTS"
        )
    ok = rate >= least
    remedy = "" if ok else "the kernel lowered it; sysctl kernel.perf_event_max_sample_rate=100000"
    return Finding(name, ok=ok, detail=f"{rate} samples a second", remedy=remedy)


def _tracefs(proc: str, sys: str) -> Finding:
    try:
        place = find_tracefs(sysfs=sys, proc=proc)
    except PermissionDeniedError as error:
        return Finding("tracefs", ok=False, detail=error.message, remedy=str(error.hint))
    if place is None:
        return Finding("tracefs", ok=False, detail="not mounted: no tracepoints", remedy=MOUNT_HINT)
    return Finding("tracefs", ok=True, detail=place)


def _kallsyms(proc: str) -> Finding:
    level = read_number(Path(proc, "sys/kernel/kptr_restrict"))
    shown = f"kptr_restrict {'unreadable' if level is None else level}"
    remedy = "CAP_SYSLOG, and sysctl kernel.kptr_restrict=1 (or 0)"
    try:
        with Path(proc, "kallsyms").open("rb") as stream:
            # Per-CPU symbols at the front can be at 0 even when addresses are shown.
            lines = stream.read(1 << 20).splitlines()
    except OSError as error:
        detail = f"{shown}; kallsyms: {error.strerror}"
        return Finding("kptr_restrict", ok=False, detail=detail, remedy=remedy)
    if any(line.split(b" ")[0].strip(b"0") for line in lines):
        return Finding("kptr_restrict", ok=True, detail=f"{shown}; kallsyms shows addresses")
    detail = f"{shown}; kallsyms shows no addresses: kernel frames stay unnamed"
    return Finding("kptr_restrict", ok=False, detail=detail, remedy=remedy)


def _lockdown(sys: str) -> Finding:
    text = read_text(Path(sys, "kernel/security/lockdown"))
    state = text.partition("[")[2].partition("]")[0] or "none"
    ok = state != "confidentiality"
    remedy = "" if ok else "boot with lockdown=integrity: confidentiality refuses kernel samples"
    return Finding("lockdown", ok=ok, detail=state if text else "not in this kernel", remedy=remedy)


def _seccomp(proc: str) -> Finding:
    mode = process_status(proc).get("Seccomp", "")
    if mode != "2":
        return Finding("seccomp", ok=True, detail="no filter")
    # A filter is no harm by itself; whether it lets the call through is seen by the real try.
    return Finding("seccomp", ok=True, detail="a filter is active; see perf_event_open")


def _pid_namespace(proc: str) -> Finding:
    name = "PID namespace"
    try:
        here = os.readlink(f"{proc}/self/ns/pid")  # noqa: PTH115 - no path is behind it
    except OSError as error:
        remedy = "a kernel with CONFIG_PID_NS, and proc mounted"
        return Finding(name, ok=False, detail=str(error.strerror), remedy=remedy)
    if here == _FIRST_PID_NAMESPACE:
        return Finding(name, ok=True, detail="the machine's own")
    detail = "a container's: processes outside of it have no pid here and count as swapper"
    return Finding(name, ok=False, detail=detail, remedy="run opd on the host, or with --pid=host")


def _cgroup(proc: str) -> Finding:
    text = read_text(Path(proc, "self/cgroup"))
    lines = text.splitlines()
    unified = any(line.startswith("0::") for line in lines)
    legacy = any(not line.startswith("0::") for line in lines)
    version = {(True, False): "v2", (True, True): "hybrid", (False, True): "v1"}.get(
        (unified, legacy), "none"
    )
    ok = unified
    remedy = "" if ok else "boot with systemd.unified_cgroup_hierarchy=1"
    labels = {
        "v2": "units and containers are exact",
        "hybrid": "units and containers are exact where v2 places them, else read from /proc",
        "v1": "units and containers are read from /proc",
    }.get(version, "")
    detail = f"{version}: {labels}" if labels else version
    return Finding("cgroup", ok=ok, detail=detail, remedy=remedy)


def _pressure(proc: str) -> Finding:
    name = "pressure"
    try:
        Path(proc, "pressure/cpu").read_text()
    except OSError as error:
        return Finding(
            name,
            ok=False,
            detail=f"{proc}/pressure/cpu: {error.strerror}: triggers on psi never fire",
            remedy="take a kernel with CONFIG_PSI, booted with psi=1; or triggers on load",
        )
    return Finding(name, ok=True, detail="the kernel tells of it")


def _hugepages(sys: str) -> Finding:
    text = read_text(Path(sys, "kernel/mm/transparent_hugepage/enabled"))
    mode = text.partition("[")[2].partition("]")[0]
    pools = []
    try:
        for entry in sorted(os.scandir(f"{sys}/kernel/mm/hugepages"), key=lambda one: one.name):
            count = read_number(Path(entry.path, "nr_hugepages")) or 0
            pools.append(f"{entry.name.removeprefix('hugepages-')}: {count}")
    except OSError:
        pools = []
    if not mode and not pools:
        return Finding(
            "hugepages",
            ok=False,
            detail="none",
            remedy="a kernel with CONFIG_TRANSPARENT_HUGEPAGE or CONFIG_HUGETLBFS",
        )
    return Finding(
        "hugepages",
        ok=True,
        detail=f"transparent {mode or 'none'}; " + (", ".join(pools) or "none"),
    )


def _numa(sys: str) -> Finding:
    text = read_text(Path(sys, "devices/system/node/online"))
    try:
        nodes = parse_cpu_list(text)
    except OpdError:
        nodes = ()
    if not nodes:
        return Finding("NUMA", ok=False, detail="nodes unknown", remedy="a kernel with CONFIG_NUMA")
    return Finding("NUMA", ok=True, detail=f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}")


def _cpus(sys: str, cpus: tuple[int, ...]) -> Finding:
    if not cpus:
        return Finding(
            "CPUs", ok=False, detail="online CPUs unknown", remedy=f"mount sysfs on {sys}"
        )
    isolated = read_text(Path(sys, "devices/system/cpu/isolated"))
    left = f"; isolated {isolated}" if isolated else ""
    return Finding("CPUs", ok=True, detail=f"online {format_cpu_list(cpus)}{left}")


def _ibs(proc: str, sys: str) -> list[Finding]:
    flags = _cpu_flags(proc)
    findings = []
    for name in ("ibs_op", "ibs_fetch"):
        there = Path(sys, "bus/event_source/devices", name).is_dir()
        if there:
            findings.append(Finding(name, ok=True, detail="PMU in sysfs"))
            continue
        if "ibs" in flags:
            detail, remedy = "the CPU has IBS, the kernel has no PMU for it", "update the kernel"
        elif "hypervisor" in flags:
            detail = "not passed to this virtual machine"
            remedy = "run on the host itself, or have it pass IBS (Linux 6.12 and Zen 4 or later)"
        else:
            detail, remedy = "not in this CPU", "an AMD CPU, family 10h or later"
        findings.append(Finding(name, ok=False, detail=detail, remedy=remedy))
    return findings


def _dsa(sys: str, *, real: bool) -> list[Finding]:
    """The device in a line; where there is one, each check of it and its queues in another."""
    from opd_native.dsa import examine as examine_dsa

    report = examine_dsa(sys=sys, dev=str(Path(sys).parent / "dev"), attempt=real)
    there = any(one.where for one in report.checks)
    first = Finding(
        "DSA",
        ok=bool(report.usable),
        detail=_queues(report.usable) if report.usable else report.reason.removeprefix("bus: "),
        remedy=""
        if report.usable
        else next(one.remedy for one in reversed(report.checks) if not one.ok),
    )
    if not there:
        return [first]
    return [first] + [
        Finding(f"{one.where or 'DSA'} {one.what}", ok=one.ok, detail=one.text, remedy=one.remedy)
        for one in report.checks[:_DSA_CHECKS_MOST]
    ]


def _queues(count: int) -> str:
    return f"{count} queue{'s' if count > 1 else ''} can be used"


def _virtual(proc: str) -> Finding:
    guest = "hypervisor" in _cpu_flags(proc)
    detail = "yes: PMU and timers are the host's to give" if guest else "no"
    return Finding("virtual machine", ok=True, detail=detail)


def _vdso(proc: str) -> Finding:
    if "[vdso]" in read_text(Path(proc, "self/maps"), most=1 << 20):
        return Finding("vdso", ok=True, detail="mapped")
    return Finding("vdso", ok=False, detail="not mapped", remedy="boot without vdso=0")


def _online(sys: str) -> tuple[int, ...]:
    try:
        cpus = parse_cpu_list(read_text(Path(sys, "devices/system/cpu/online")))
    except OpdError:
        return ()
    return cpus


def _cpu_flags(proc: str) -> set[str]:
    for line in read_text(Path(proc, "cpuinfo")).splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.partition(":")[2].split())
    return set()

"""What the machine has for a page-fault test, asked before it runs."""

from __future__ import annotations

import os
import resource
from errno import ENOSYS, EPERM
from pathlib import Path

from opd.errors import OperationFailedError, UsageError
from opd.features.declared import Need
from opd.features.pft.kinds import KINDS, LOCKED, RESOLVED
from opd.features.pft.measure import fault_test, line_bytes
from opd.features.pft.nodes import check_cpu_node, check_nodes
from opd.features.pft.options import PftOptions
from opd.probes.room import cpus_of
from opd_native.errors import NativeError
from opd_native.pft import Backing, Pages, Prepare

_SYS = Path("/sys")
_PROC = Path("/proc")
_HUGE = {Pages.HUGETLB_2M: 2048, Pages.HUGETLB_1G: 1 << 20}
_THP = "kernel/mm/transparent_hugepage"
_TMPFS = ("tmpfs", "ramfs")
# What a filter of system calls answers, and what a kernel without the call does.
REFUSED = (EPERM, ENOSYS)
NUMA_REFUSED = "a container's seccomp filter may forbid mbind(2), or the kernel has no NUMA"


def check_huge(kib: int, memory: int, sys: Path = _SYS) -> None:
    """OperationFailedError: fewer hugetlb pages of ``kib`` KiB than the bytes of memory take."""
    place = sys / f"kernel/mm/hugepages/hugepages-{kib}kB"
    if not place.is_dir():
        raise OperationFailedError(f"this machine has no hugetlb pages of {kib} KiB")
    free = int((place / "free_hugepages").read_text(encoding="ascii"))
    more = int((place / "nr_overcommit_hugepages").read_text(encoding="ascii"))
    want = -(-memory // (kib << 10))
    if want > free + more:
        raise OperationFailedError(
            f"it takes {want} hugetlb pages of {kib} KiB, and {free} are free",
            hint=f"reserve them: echo {want} > {place}/nr_hugepages",
        )


def thp_setting(sys: Path = _SYS, name: str = "enabled") -> str:
    """The system's word for transparent huge pages; none: the kernel has not any."""
    try:
        text = (sys / _THP / name).read_text(encoding="ascii")
    except OSError:
        return "none"
    return text[text.index("[") + 1 : text.index("]")]


def check_thp(sys: Path = _SYS) -> None:
    """OperationFailedError where madvise gets no huge pages; no setting is changed."""
    if (setting := thp_setting(sys)) in ("none", "never"):
        raise OperationFailedError(
            f"transparent huge pages are off here ({setting})",
            hint="echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )


def check_shmem_thp(sys: Path = _SYS) -> None:
    """OperationFailedError where shared memory gets no huge pages; no setting is changed."""
    if (setting := thp_setting(sys, "shmem_enabled")) in ("none", "never", "deny"):
        raise OperationFailedError(
            f"transparent huge pages are off for shared memory here ({setting})",
            hint=f"echo advise > /sys/{_THP}/shmem_enabled",
        )


def check_folio(wanted: int, sys: Path = _SYS) -> int:
    """The bytes of a folio that memory will come in; ``wanted`` 0: the largest enabled.

    The kernel takes the largest that is enabled and fits; no setting is changed.
    Raises UsageError for a size that there is not, OperationFailedError for one
    that is off or that a larger one hides.
    """
    sizes = folio_sizes(sys)
    names = " ".join(f"{kib}k" for kib in sizes) or "none"
    if wanted and (wanted % 1024 or wanted >> 10 not in sizes):
        raise UsageError(f"no folios of {wanted} bytes here; there are: {names}")
    on = [kib for kib, is_on in sizes.items() if is_on]
    kib = wanted >> 10 or (on[-1] if on else 0)
    if not kib or not sizes[kib]:
        what = f"folios of {kib} KiB are" if kib else "all sizes of large folios are"
        one = kib or (64 if 64 in sizes else next(iter(sizes), 64))
        raise OperationFailedError(
            f"{what} off here; enabled: {' '.join(f'{one}k' for one in on) or 'none'}",
            hint=f"echo madvise > /sys/{_THP}/hugepages-{one}kB/enabled",
        )
    if kib != on[-1]:
        raise OperationFailedError(
            f"folios of {on[-1]} KiB are enabled too, and the kernel takes the largest",
            hint=f"echo never > /sys/{_THP}/hugepages-{on[-1]}kB/enabled",
        )
    return kib << 10


def folio_sizes(sys: Path = _SYS) -> dict[int, bool]:
    """KiB of the folios below a huge page that the kernel knows, ascending; is each enabled."""
    place = sys / _THP
    try:
        most = int((place / "hpage_pmd_size").read_text(encoding="ascii")) >> 10
    except (OSError, ValueError):
        return {}
    found = {}
    for folder in place.glob("hugepages-*kB"):
        kib = int(folder.name.removeprefix("hugepages-").removesuffix("kB"))
        word = thp_setting(sys, f"{folder.name}/enabled")
        word = thp_setting(sys) if word == "inherit" else word
        # Without this file it is a size of shared memory alone.
        if kib < most and (folder / "enabled").exists():
            found[kib] = word in ("always", "madvise")
    return dict(sorted(found.items()))


def check_swap(memory: int, proc: Path = _PROC) -> None:
    """OperationFailedError: no swap, or less free than the bytes of memory."""
    if len((proc / "swaps").read_text(encoding="ascii").splitlines()) < 2:
        raise OperationFailedError("kind=swap_in: this machine has no swap", hint="see swapon(8)")
    for line in (proc / "meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("SwapFree:") and (free := int(line.split()[1]) << 10) < memory:
            raise OperationFailedError(
                f"kind=swap_in pages out {memory} bytes, and {free} of swap are free",
                hint="ask for less memory",
            )


def _check_file_size(options: PftOptions, memory: int) -> None:
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if memory > most != resource.RLIM_INFINITY:
        raise OperationFailedError(
            f"kind={options.kind} takes a file of {memory} bytes, and RLIMIT_FSIZE is {most}",
            hint="ask for less memory, or LimitFSIZE= of the service",
        )


def _check_directory(options: PftOptions, memory: int) -> None:
    place = Path(options.directory)
    if not place.is_dir():
        raise UsageError(f"directory={options.directory}: no such directory")
    space = os.statvfs(place)
    if (free := space.f_bavail * space.f_frsize) < memory:
        raise OperationFailedError(
            f"directory={options.directory}: {memory} bytes are needed, {free} are free"
        )
    if options.kind == "file_uncached" and (kind := _filesystem(place)) in _TMPFS:
        raise UsageError(f"directory={options.directory} is {kind}: its pages are on no disk")


def _filesystem(place: Path) -> str:
    path, found = place.resolve(), ("", "")
    for line in (_PROC / "self/mounts").read_text(errors="replace").splitlines():
        _source, mount, kind, *_rest = line.split(" ")
        if path.is_relative_to(mount) and len(mount) >= len(found[0]):
            found = (mount, kind)
    return found[1]


def needs(options: PftOptions) -> Need:
    """What it will take; what is not there is refused, with what is there instead."""
    page = os.sysconf("SC_PAGESIZE")
    kind = KINDS[options.kind]
    memory = options.pages_each(page) * options.workers * page
    line = line_bytes(options)
    if options.cachelines > page // line:
        raise UsageError(
            f"cachelines={options.cachelines}: a page of {page} bytes has {page // line} lines"
            f" of {line}"
        )
    check_nodes(options.wanted_nodes)
    check_cpu_node(options.cpu_node, cpus_of(options))
    if kind.pages in _HUGE:
        each = _HUGE[kind.pages] << 10
        check_huge(
            _HUGE[kind.pages], -(-memory // options.workers // each) * each * options.workers
        )
    if options.kind == "shmem_thp":
        check_shmem_thp()
    elif kind.pages is Pages.THP or options.kind == "collapse":
        check_thp()
    elif kind.pages is Pages.FOLIO:
        check_folio(options.folio)
    if kind.prepare is Prepare.PAGED_OUT:
        check_swap(memory)
    if kind.backing in (Backing.FILE, Backing.MEMFD):
        _check_file_size(options, memory)
    if kind.backing is Backing.FILE:
        _check_directory(options, memory)
    _rehearse_policy(options)
    if options.fifo == 0 and kind.pages not in _HUGE:
        _rehearse(options, page)
    locks = options.mlock or options.shm_lock or options.kind in LOCKED
    return Need(
        memory_bytes=memory * kind.copies,
        locked_bytes=memory if locks else 0,
        threads=options.workers * (2 if kind.prepare in RESOLVED else 1),
    )


def _is_refused(error: NativeError) -> bool:
    # Mapping fails with EIO, whatever its words say.
    return any(error.errno == one or str(error).endswith(os.strerror(one)) for one in REFUSED)


def _rehearse_policy(options: PftOptions) -> None:
    """The policy on one page, if any. OperationFailedError: the kernel does not take it."""
    if options.policy == "none":
        return
    plain = PftOptions(policy=options.policy, node=options.node, nodes=options.nodes)
    try:
        fault_test(plain, (), pages_each=1).repeat()
    except NativeError as error:
        raise OperationFailedError(
            f"policy={options.policy} cannot be had here: {error}",
            hint=f"{NUMA_REFUSED}; policy=none makes no such call" if _is_refused(error) else None,
        ) from error


def _rehearse(options: PftOptions, page: int) -> None:
    """One page, or one huge page, so that what the kernel refuses is said beforehand."""
    large = options.kind in ("thp", "shmem_thp", "mthp", "collapse")
    try:
        fault_test(options, (), pages_each=(2 << 20) // page if large else 1).repeat()
    except NativeError as error:
        raise OperationFailedError(
            f"kind={options.kind} cannot be measured here: {error}",
            hint="a container's seccomp filter may forbid it" if _is_refused(error) else None,
        ) from error

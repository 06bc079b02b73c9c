"""What the machine has for a page-fault test, asked before it runs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from opd.errors import OperationFailedError, UsageError
from opd.features.declared import Need
from opd.features.pft.kinds import KINDS
from opd.features.pft.measure import fault_test, line_bytes
from opd_native.errors import NativeError
from opd_native.pft import Pages, Prepare

if TYPE_CHECKING:
    from opd.features.pft.options import PftOptions

_SYS = Path("/sys")
_PROC = Path("/proc")
_HUGE = {Pages.HUGETLB_2M: 2048, Pages.HUGETLB_1G: 1 << 20}
_TMPFS = ("tmpfs", "ramfs")


def memory_nodes(sys: Path = _SYS) -> list[int]:
    """The NUMA nodes with memory, ascending; without NUMA node 0."""
    nodes = []
    for place in (sys / "devices/system/node").glob("node[0-9]*"):
        found = re.search(r"MemTotal:\s*(\d+)", (place / "meminfo").read_text(encoding="ascii"))
        if found and int(found[1]):
            nodes.append(int(place.name.removeprefix("node")))
    return sorted(nodes) or [0]


def check_nodes(wanted: tuple[int, ...], sys: Path = _SYS) -> None:
    """UsageError names a node that is not there, and those that are."""
    there = memory_nodes(sys)
    for node in wanted:
        if node not in there:
            names = " ".join(map(str, there))
            raise UsageError(f"no node {node} with memory", hint=f"there are: {names}")


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


def thp_setting(sys: Path = _SYS) -> str:
    """The system's word for transparent huge pages; none: the kernel has not any."""
    try:
        text = (sys / "kernel/mm/transparent_hugepage/enabled").read_text(encoding="ascii")
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


def _check_swap() -> None:
    if len((_PROC / "swaps").read_text(encoding="ascii").splitlines()) < 2:
        raise OperationFailedError("kind=swap_in: this machine has no swap", hint="see swapon(8)")


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
    if kind.pages in _HUGE:
        each = _HUGE[kind.pages] << 10
        check_huge(
            _HUGE[kind.pages], -(-memory // options.workers // each) * each * options.workers
        )
    if kind.pages is Pages.THP or options.kind == "collapse":
        check_thp()
    if kind.prepare is Prepare.PAGED_OUT:
        _check_swap()
    if options.kind.startswith("file"):
        _check_directory(options, memory)
    if options.fifo == 0 and kind.pages not in _HUGE:
        _rehearse(options, page)
    locks = options.mlock or options.shm_lock or options.kind == "mlock"
    return Need(
        memory_bytes=memory * kind.copies,
        locked_bytes=memory if locks else 0,
        threads=options.workers * (2 if kind.prepare is Prepare.USERFAULTFD else 1),
    )


def _rehearse(options: PftOptions, page: int) -> None:
    """One page, or one huge page, so that what the kernel refuses is said beforehand."""
    large = options.kind in ("thp", "collapse")
    try:
        fault_test(options, (), pages_each=(2 << 20) // page if large else 1).repeat()
    except NativeError as error:
        raise OperationFailedError(
            f"kind={options.kind} cannot be measured here: {error}",
            hint="a container's seccomp filter may forbid it" if error.errno in (1, 38) else None,
        ) from error

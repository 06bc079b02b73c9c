"""The kinds of page faults: what memory, in which state, touched how."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from opd_native.pft import Backing, Pages, Prepare, Touch

KindName: TypeAlias = Literal[
    "anon",
    "dev_zero",
    "shm",
    "shmem",
    "memfd",
    "memfd_cow",
    "fault_around",
    "file",
    "file_uncached",
    "file_write",
    "file_cow",
    "zero_page",
    "zero_cow",
    "fork_cow",
    "fork_reuse",
    "refault",
    "thp",
    "mthp",
    "shmem_thp",
    "system",
    "hugetlb_2m",
    "hugetlb_1g",
    "userfaultfd",
    "userfaultfd_minor",
    "userfaultfd_wp",
    "mlock_onfault",
    "map_populate",
    "populate_read",
    "populate_write",
    "mlock",
    "collapse",
    "dontneed",
    "swap_in",
]


class Kind(NamedTuple):
    """How a kind is measured. ``copies``: pages of memory that one page of it takes."""

    summary: str
    backing: Backing = Backing.ANON
    pages: Pages = Pages.BASE
    prepare: Prepare = Prepare.NOTHING
    touch: Touch = Touch.WRITE
    shared: bool = False
    copies: int = 1


KINDS: dict[str, Kind] = {
    "anon": Kind("first write to anonymous memory"),
    "dev_zero": Kind("first write to a private mapping of /dev/zero", Backing.DEV_ZERO),
    "shm": Kind("first write to a SysV shared memory segment", Backing.SHM),
    "shmem": Kind("first write to shared anonymous memory", shared=True),
    "memfd": Kind("first write to a memfd", Backing.MEMFD, shared=True),
    "memfd_cow": Kind(
        "first write to a private mapping of a memfd's pages",
        Backing.MEMFD,
        prepare=Prepare.FILLED,
        copies=2,
    ),
    "fault_around": Kind(
        "read of a memfd's pages through a new mapping: the kernel maps neighbours too",
        Backing.MEMFD,
        prepare=Prepare.FILLED,
        touch=Touch.READ,
        shared=True,
    ),
    "file": Kind(
        "read of a file in the page cache",
        Backing.FILE,
        prepare=Prepare.FILLED,
        touch=Touch.READ,
        shared=True,
    ),
    "file_uncached": Kind(
        "read of a file that is on the disk only",
        Backing.FILE,
        prepare=Prepare.UNCACHED,
        touch=Touch.READ,
        shared=True,
    ),
    "file_write": Kind(
        "write to a shared mapping of a file in the page cache",
        Backing.FILE,
        prepare=Prepare.FILLED,
        shared=True,
    ),
    "file_cow": Kind(
        "write to a private mapping of a file in the page cache",
        Backing.FILE,
        prepare=Prepare.FILLED,
        copies=2,
    ),
    "zero_page": Kind("first read of anonymous memory: the zero page", touch=Touch.READ),
    "zero_cow": Kind("write where the zero page stands", prepare=Prepare.READ_FIRST),
    "fork_cow": Kind("write to a page shared with a child", prepare=Prepare.FORKED, copies=2),
    "fork_reuse": Kind("write to a page whose child is gone", prepare=Prepare.FORKED_GONE),
    "refault": Kind("write after MADV_DONTNEED", prepare=Prepare.DROPPED),
    "thp": Kind("first write to anonymous memory in transparent huge pages", pages=Pages.THP),
    "mthp": Kind(
        "first write to anonymous memory in large folios, smaller than a huge page",
        pages=Pages.FOLIO,
    ),
    "shmem_thp": Kind(
        "first write to shared anonymous memory in transparent huge pages",
        pages=Pages.THP,
        shared=True,
    ),
    "system": Kind("first write to anonymous memory as the system sets it", pages=Pages.SYSTEM),
    "hugetlb_2m": Kind("first write to a hugetlb page of 2 MiB", pages=Pages.HUGETLB_2M),
    "hugetlb_1g": Kind("first write to a hugetlb page of 1 GiB", pages=Pages.HUGETLB_1G),
    "userfaultfd": Kind("a fault that another thread resolves", prepare=Prepare.USERFAULTFD),
    "userfaultfd_minor": Kind(
        "a fault on a memfd's page that is there, which another thread maps",
        Backing.MEMFD,
        prepare=Prepare.USERFAULTFD_MINOR,
        shared=True,
    ),
    "userfaultfd_wp": Kind(
        "a write to a protected page, which another thread permits",
        prepare=Prepare.USERFAULTFD_WP,
    ),
    "mlock_onfault": Kind(
        "first write to memory that is locked as it comes (mlock2)",
        prepare=Prepare.LOCK_ON_FAULT,
    ),
    "map_populate": Kind("mmap with MAP_POPULATE", touch=Touch.MAP_POPULATE),
    "populate_read": Kind("MADV_POPULATE_READ", touch=Touch.POPULATE_READ),
    "populate_write": Kind("MADV_POPULATE_WRITE", touch=Touch.POPULATE_WRITE),
    "mlock": Kind("mlock of memory not yet there", touch=Touch.MLOCK),
    "collapse": Kind(
        "MADV_COLLAPSE of written 4 KiB pages",
        pages=Pages.SYSTEM,
        prepare=Prepare.WRITE_FIRST,
        touch=Touch.COLLAPSE,
        copies=2,
    ),
    "dontneed": Kind(
        "MADV_DONTNEED of written pages: no fault, but what a refault begins with",
        prepare=Prepare.WRITE_FIRST,
        touch=Touch.DONTNEED,
    ),
    "swap_in": Kind("write to a page that was paged out", prepare=Prepare.PAGED_OUT),
}

# One fault a page, by definition; of the others the kernel may map more at once.
ONE_EACH = frozenset(
    (
        "anon",
        "dev_zero",
        "shm",
        "shmem",
        "memfd",
        "memfd_cow",
        "zero_page",
        "zero_cow",
        "fork_cow",
        "fork_reuse",
        "refault",
        "userfaultfd",
        "userfaultfd_minor",
        "userfaultfd_wp",
        "mlock_onfault",
    )
)
# Faults taken inside one system call are not the event's.
IN_KERNEL = frozenset(
    ["map_populate", "populate_read", "populate_write", "mlock", "collapse", "dontneed"]
)
# Beside each worker a thread resolves its faults.
RESOLVED = frozenset((Prepare.USERFAULTFD, Prepare.USERFAULTFD_MINOR, Prepare.USERFAULTFD_WP))
# What locks its memory.
LOCKED = frozenset(["mlock", "mlock_onfault"])
HUGETLB = frozenset((Pages.HUGETLB_2M, Pages.HUGETLB_1G))

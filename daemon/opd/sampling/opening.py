"""Opens the native sampler as widely, and with rings as large, as this user may."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from opd_native.errors import NativeError
from opd_native.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.events import EventRequest

# Whole CPUs; processes that somebody adds; all of this user's processes.
Scope = Literal["machine", "given", "own"]
# Below this a ring holds hardly one wake-up's worth of call chains.
RING_BYTES_LEAST = 16 << 10
_CAP_PERFMON, _CAP_SYS_ADMIN = 1 << 38, 1 << 21


class Opened(msgspec.Struct):
    """A sampler and what it may see. ``refused``: the errno that whole CPUs gave, or 0."""

    sampler: Sampler
    scope: Scope
    ring_bytes: int
    refused: int = 0


def open_sampler(
    cpus: Sequence[int], *, ring_bytes: int, targeted: bool = False, **options: Any
) -> Opened:
    """Open whole CPUs, else, where that is not permitted, be ready for this user's processes.

    ``targeted``: be ready for those that will be added.

    Rings are locked memory: where the limit forbids them they are halved
    until they fit. Raises NativeError of the first refusal.
    """
    if targeted:
        return _open("given", cpus, ring_bytes, options)
    try:
        return _open("machine", cpus, ring_bytes, options)
    except NativeError as error:
        if error.errno not in (errno.EACCES, errno.EPERM):
            raise
        refused = error
    try:
        opened = _open("own", cpus, ring_bytes, options)
        # Events are opened on threads: with none, no refusal would be seen.
        opened.sampler.add_process(os.getpid())
    except NativeError:
        raise refused from None
    opened.refused = refused.errno or 0
    return opened


def _open(scope: Scope, cpus: Sequence[int], ring_bytes: int, options: dict[str, Any]) -> Opened:
    while True:
        try:
            sampler = Sampler(cpus, ring_bytes=ring_bytes, targeted=scope != "machine", **options)
        except NativeError as error:
            # perf_event_open refuses with EACCES, mmap of too large a ring with EPERM.
            if error.errno != errno.EPERM or ring_bytes <= RING_BYTES_LEAST:
                raise
            ring_bytes //= 2
        else:
            return Opened(sampler, scope, ring_bytes)


def rungs_of(request: EventRequest, scope: Scope) -> list[EventRequest]:
    """Give what to try for an event, in order.

    A user's own processes may be open to him at user level alone
    (perf_event_paranoid 2): then each rung is tried without the kernel too.
    """
    rungs = [request, *request.fallbacks]
    if scope == "machine":
        return rungs
    if scope == "given":
        # Opened when there is a process; a refusal could not be answered any more.
        closed = _kernel_is_closed()
        return [_user(rung) if closed and not rung.exclude_kernel else rung for rung in rungs]
    return [
        each
        for rung in rungs
        for each in ([rung] if rung.exclude_user or rung.exclude_kernel else [rung, _user(rung)])
    ]


def _kernel_is_closed() -> bool:
    """Whether this process may sample its own user's processes at user level only."""
    try:
        level = Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii")
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    held = int(status.partition("CapEff:")[2].split(maxsplit=1)[0], 16)
    return int(level) > 1 and not held & (_CAP_PERFMON | _CAP_SYS_ADMIN)


def _user(request: EventRequest) -> EventRequest:
    name = request.name + ("u" if ":" in request.name else ":u")
    return msgspec.structs.replace(request, name=name, exclude_kernel=True, exclude_hv=True)

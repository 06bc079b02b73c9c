"""Live sampling: opens events by the ladder, cuts windows, follows CPU hotplug."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opd.sampling.ibs import ibs_quality
from opd.sampling.kernel import idle_ranges, module_ranges
from opd.sampling.opening import open_sampler, rungs_of
from opd.sampling.own import OwnProcesses
from opd.sampling.payload import Payload
from opd.sampling.window import GOVERNED, LABELS, CgroupInfo, EventInfo, ImageInfo, Window
from opd_native.errors import NativeError
from opd_native.sampler import EventAttr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from opd.errors import OpdError
    from opd.events import EventRequest
    from opd_native.pipeline import NativeCgroup, NativeImage, NativeWindow
    from opd_native.sampler import Sampler

# More between two looks is a clock that was set, not one that is disciplined.
_CLOCK_STEP_NS = 500_000_000
STACK_DEPTH_DEFAULT = 127


class LadderStep(msgspec.Struct, frozen=True):
    """One event that the kernel refused, and what was tried next."""

    asked: str
    refused: str
    errno: int
    instead: str


class Counted(msgspec.Struct, frozen=True):
    """Running totals of the sampler at the last window, for differences."""

    lost_samples: int = 0
    lost_sideband: int = 0
    throttled_ns: int = 0
    late: int = 0
    bad_records: int = 0


class LiveSampling:
    """One stretch of sampling with fixed events: a run of the store.

    ``targeted``: only processes that are added, with all they make, are
    sampled, and only they pay. ``comms``: globs of names of threads or
    processes; samples of others are only counted, as ``filtered``.
    ``explain`` turns an errno of perf_event_open into the error to raise.
    """

    def __init__(
        self,
        requests: Sequence[EventRequest],
        cpus: Sequence[int],
        *,
        callchain: bool,
        separate_thread: bool,
        separate_cpu: bool,
        ring_bytes: int,
        explain: Callable[[int, str], OpdError],
        proc: str = "/proc",
        targeted: bool = False,
        comms: Sequence[str] = (),
    ) -> None:
        self.ladder: list[LadderStep] = []
        self.events: list[EventInfo] = []
        self.paused = False
        self._cut_lock = threading.Lock()
        self._sequence = 0
        self._counted = Counted()
        self._lost: list[int] = [0] * len(requests)
        self._samples = self._idle = 0
        self.share = 1.0  # of the rate asked; see set_share
        self._given_up_ns = 0.0  # of this window, so far
        self._share_since = time.monotonic_ns()
        try:
            opened = open_sampler(
                cpus,
                ring_bytes=ring_bytes,
                callchain=callchain,
                separate_thread=separate_thread,
                separate_cpu=separate_cpu,
                stack_depth=_stack_depth(proc),
                proc_root=proc,
                targeted=targeted,
            )
        except NativeError as error:
            raise explain(error.errno or 0, requests[0].name) from error
        self._sampler = opened.sampler
        self.scope = opened.scope
        self.ring_bytes = opened.ring_bytes
        self.refused = opened.refused
        self.own: OwnProcesses | None = None
        if self.scope == "own":
            instead = f"the processes of uid {os.geteuid()}"
            self.ladder.append(LadderStep(requests[0].name, "whole CPUs", self.refused, instead))
        try:
            for comm in comms:
                self._sampler.add_filter(comm)
            rungs = [self._open(request, explain) for request in requests]
            for name, start, end in module_ranges(proc):
                self._sampler.add_module(name, start, end)
            # Counted events do not happen because a CPU is idle; timed ones do.
            if any(request.hz is not None and not request.exclude_idle for request in rungs):
                self._sampler.set_idle(idle_ranges(proc))
        except BaseException:
            self._sampler.close()
            raise
        if self.scope == "own":
            files = len(cpus) * (1 + len(requests))
            self.own = OwnProcesses(self._sampler, files_a_thread=files, proc=proc)
        self._window_start = time.time_ns()
        self._window_start_monotonic = time.monotonic_ns()

    def _open(self, request: EventRequest, explain: Callable[[int, str], OpdError]) -> EventRequest:
        """What of it was opened. Raises what ``explain`` makes of the last refusal."""
        try:
            return self._open_any(request)
        except NativeError as error:
            last = rungs_of(request, self.scope)[-1]
            raise explain(error.errno or 0, last.name) from error

    def add_event(self, request: EventRequest, *, feature: str) -> int:
        """Open an event for a feature, before ``start``; its index.

        Raises NativeError of the last of its fallbacks.
        """
        self._open_any(request, feature)
        self._lost.append(0)
        return len(self.events) - 1

    def _open_any(self, request: EventRequest, feature: str = "") -> EventRequest:
        """The first of the request and its fallbacks that the kernel takes."""
        rungs = rungs_of(request, self.scope)
        for rung, following in zip(rungs, [*rungs[1:], None], strict=True):
            try:
                self._sampler.add_event(_attr(rung))
            except NativeError as error:
                if following is None:
                    raise
                step = LadderStep(request.name, rung.name, error.errno or 0, following.name)
                self.ladder.append(step)
                continue
            self.events.append(
                EventInfo(
                    name=request.name,
                    source=rung.name + self._limits(),
                    unit=rung.unit,
                    hz=rung.hz,
                    period=rung.period,
                    feature=feature,
                )
            )
            return rung
        raise AssertionError("a request has at least itself to try")

    @property
    def sampler(self) -> Sampler:
        """The native sampler, for decoders."""
        return self._sampler

    def add_process(self, pid: int) -> int:
        """Sample a process, and all that it makes, when ``targeted``; how many threads it has.

        Raises NativeError: ESRCH when there is none, EACCES, EPERM, EMFILE.
        """
        return self._sampler.add_process(pid)

    def sweep_targets(self) -> int:
        """Give up what has ended of the processes added; how many threads are left."""
        return self._sampler.sweep_targets()

    def _limits(self) -> str:
        """What a source does not see, in the words of every answer."""
        return f" of uid {os.geteuid()}" if self.scope == "own" else ""

    def start(self) -> None:
        """Begin to sample."""
        self._sampler.start()
        self.follow_processes()

    def follow_processes(self) -> None:
        """Take up the user's new processes, where only they may be sampled."""
        if self.own is not None:
            self.own.follow()

    def pause(self, *, paused: bool) -> None:
        """Switch sampling off or on; the side-band is followed all the while."""
        self._sampler.pause(paused=paused)
        self.paused = paused

    def set_share(self, share: float) -> None:
        """Sample at a share (0 to 1] of what was asked, from now on; weights stay right.

        Rates go down to a whole Hz at least, fixed periods up.
        """
        with self._cut_lock:
            self._account_share()
            for number, event in enumerate(self.events):
                if event.hz is not None:
                    self._sampler.set_rate(number, max(1, round(event.hz * share)))
                else:
                    self._sampler.set_rate(number, round((event.period or 1) / share))
            self.share = share

    def budget_hz(self) -> float:
        """Samples a second that were asked for and can be foreseen, on all CPUs."""
        cpus = int(self._sampler.stats()["cpus"])
        return float(cpus * sum(event.hz or 0 for event in self.events))

    def limit_stacks(self, divisor: int) -> int:
        """Keep a part of the distinct stacks a window; how many. Others lose their callers."""
        return self._sampler.limit_stacks(divisor)

    def _account_share(self) -> None:
        """Add up how much of the time went unsampled because the rate was lowered."""
        now = time.monotonic_ns()
        self._given_up_ns += (now - self._share_since) * (1.0 - self.share)
        self._share_since = now

    def set_cpus(self, cpus: Sequence[int]) -> int:
        """Follow the list of online CPUs; how many have a ring."""
        return self._sampler.set_cpus(cpus)

    def has_news(self) -> bool:
        """Whether there are images or cgroups to take; costs next to nothing."""
        return self._sampler.has_news()

    def take_images(self) -> list[tuple[ImageInfo, int | None]]:
        """Take images first seen since the last call, each with its open file or None."""
        return list(_image_infos(self._sampler.take_images()))

    def take_cgroups(self) -> list[CgroupInfo]:
        """Take all cgroups first seen, or mentioned for the last time, since the last call."""
        infos: list[CgroupInfo] = []
        while some := self._sampler.take_cgroups():
            infos += cgroup_infos(some)
        return infos

    def cut(self, *, flush: bool = False) -> Window | None:
        """End the window now. None when the drain thread did not answer in time.

        With ``flush`` every sample taken before the call is in the window.
        """
        with self._cut_lock:
            if flush:
                self._sampler.flush(time.monotonic_ns())
            native = self._sampler.take()
            if native is None:
                return None
            end, end_monotonic = time.time_ns(), time.monotonic_ns()
            stats = self._sampler.stats()
            quality = self._quality(native, stats, end_monotonic - self._window_start_monotonic)
            elapsed = end_monotonic - self._window_start_monotonic
            window = make_window(
                native,
                self._sequence,
                self._window_start,
                end_of_window(self._window_start, end, elapsed),
                quality,
            )
            window.event_quality = self._event_quality(native)
            self._sequence += 1
            self._window_start, self._window_start_monotonic = end, end_monotonic
            return window

    def finish(self) -> Window | None:
        """Stop sampling and cut the last window, with all that the rings held."""
        self._sampler.stop()
        return self.cut()

    def close(self) -> None:
        """Free the sampler."""
        self._sampler.close()

    def stats(self) -> dict[str, Any]:
        """Give the native statistics, and samples and idle samples in finished windows."""
        return {**self._sampler.stats(), "samples": self._samples, "idle": self._idle}

    def progress(self) -> int:
        """Give CLOCK_MONOTONIC of the last finished drain, in ns; at once, whatever hangs."""
        return self._sampler.progress()

    def _event_quality(self, native: NativeWindow) -> list[dict[str, int]]:
        lost = [self._sampler.lost(event) for event in range(len(self.events))]
        before, self._lost = self._lost, lost
        quality = [
            {**counts, "ring_full": now - then}
            for counts, now, then in zip(native.event_counts, lost, before, strict=False)
        ]
        # Those that are derived of an event's records lose with it.
        derived = native.event_counts[len(lost) :]
        return quality + [{**counts, "ring_full": 0} for counts in derived]

    def _quality(
        self, native: NativeWindow, stats: dict[str, Any], elapsed_ns: int
    ) -> dict[str, int]:
        now = Counted(**{name: int(stats[name]) for name in Counted.__struct_fields__})
        before, self._counted = self._counted, now
        counts = native.counts
        self._samples += counts["samples"]
        self._idle += counts["idle"]
        self._account_share()
        given_up, self._given_up_ns = int(self._given_up_ns), 0.0
        cpus = int(stats["cpus"])
        quality = {
            "samples": counts["samples"],
            "idle": counts["idle"],
            "filtered": counts["filtered"],
            "ring_full": now.lost_samples - before.lost_samples,
            "hash_full": counts["hash_full"],
            "no_mapping": counts["no_mapping"],
            "stack_truncated": counts["stack_truncated"],
            "unwind_failed": counts["unwind_failed"],
            "inexact_ip": counts["inexact_ip"],
            **{name: counts[name] for name in LABELS},
            "sideband_lost": now.lost_sideband - before.lost_sideband,
            # Both are time in which nothing was sampled; ours is told apart too.
            "throttled_ns": max(now.throttled_ns - before.throttled_ns, 0) + given_up * cpus,
            "late": now.late - before.late,
            "bad_records": now.bad_records - before.bad_records,
            "elapsed_ns": elapsed_ns * cpus,
        }
        quality |= ibs_quality(native.ibs_counts, self._sampler.ibs_pmus)
        return quality | {GOVERNED: given_up * cpus} if given_up else quality


def end_of_window(start_ns: int, now_ns: int, elapsed_ns: int) -> int:
    """When a window ends by the wall clock, after so long by the clock that nobody sets.

    When the wall clock was set meanwhile, or the machine slept, it ends where
    it would have: no window lasts for hours or ends before it starts, and the
    next one begins at the new time.

    >>> end_of_window(0, 10_000_000_001, 10_000_000_000)
    10000000001
    >>> end_of_window(0, -3_590_000_000_000, 10_000_000_000)
    10000000000
    """
    if abs(now_ns - start_ns - elapsed_ns) > _CLOCK_STEP_NS:
        return start_ns + elapsed_ns
    return max(now_ns, start_ns)


def make_window(
    native: NativeWindow, sequence: int, start_ns: int, end_ns: int, quality: dict[str, int]
) -> Window:
    """Give a native window its place in time."""
    return Window(
        sequence=sequence,
        start_ns=start_ns,
        end_ns=end_ns,
        rows=native.rows,
        sfiles=native.sfiles,
        stacks=native.stacks,
        quality=quality,
        event_quality=native.event_counts,
        payloads=[Payload(*payload) for payload in native.payloads],
        **native.columns,
    )


def image_info(image: NativeImage) -> ImageInfo:
    """Give a native image without its open file."""
    names = ImageInfo.__struct_fields__
    return ImageInfo(**{name: getattr(image, name) for name in names})


def cgroup_infos(cgroups: Iterable[NativeCgroup]) -> list[CgroupInfo]:
    """Give native cgroups as they are handed on."""
    return [
        CgroupInfo(uid=cgroup.uid, path=cgroup.path or "", gone=cgroup.path is None)
        for cgroup in cgroups
    ]


def _image_infos(images: Iterable[NativeImage]) -> Iterable[tuple[ImageInfo, int | None]]:
    return ((image_info(image), image.fd if image.fd >= 0 else None) for image in images)


def _attr(request: EventRequest) -> EventAttr:
    return EventAttr(
        type=request.type,
        config=request.config,
        config1=request.config1,
        config2=request.config2,
        path=request.path,
        rate=request.hz if request.hz is not None else request.period or 1,
        frequency=request.hz is not None,
        exclude_user=request.exclude_user,
        exclude_kernel=request.exclude_kernel,
        exclude_hv=request.exclude_hv,
        exclude_idle=request.exclude_idle,
        precise_ip=request.precise_ip,
        raw=request.raw,
    )


def _stack_depth(proc: str) -> int:
    """Give the kernel's limit on frames of a call chain."""
    try:
        return int((Path(proc) / "sys/kernel/perf_event_max_stack").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return STACK_DEPTH_DEFAULT


def this_host() -> tuple[str, str]:
    """Give the host's name and the kernel's release."""
    name = os.uname()
    return name.nodename, name.release

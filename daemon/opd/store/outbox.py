"""What waits for the worker: bounded, in order, kept until acknowledged.

No threads and no sockets here: :mod:`opd.store.handover` calls it under its
lock.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import os
from typing import TYPE_CHECKING

import msgspec

from opd.store import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.sampling.window import CgroupInfo, ImageInfo, RunInfo, Window

# Open files that wait; the files of older images are opened by path later.
_FILES_WAITING = 256
# A window that was in the worker's hands at so many crashes is given up.
_CRASHES_A_WINDOW = 3
_SETTLED_REMEMBERED = 1024


class Fate(enum.Enum):
    """What became of a window."""

    WAITING = "waiting"
    STORED = "stored"
    LOST = "lost"


class Parcel(msgspec.Struct, eq=False):
    """One message and the open files that go with it.

    ``size`` is in bytes of columns, 0 unless it is a window; ``told`` are
    lost samples of others that this window tells of. Only a request may be of
    no run.
    """

    run: RunInfo | None
    message: messages.ToWorker
    files: list[int] = []
    sequence: int = -1
    size: int = 0
    samples: int = 0
    told: int = 0
    crashes: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """The window it is."""
        return (self.run.run if self.run else "", self.sequence)


class Outbox:
    """Parcels to send, windows sent and not acknowledged, and counters."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._queue: collections.deque[Parcel] = collections.deque()
        self._sent: collections.deque[Parcel] = collections.deque()
        # Images that a worker was told, by run, for the next worker.
        self._announced: dict[str, dict[int, ImageInfo]] = {}
        self._cgroups: dict[str, dict[int, messages.WireCgroup]] = {}
        # Cgroups to forget once their last window (None: it was settled then) is.
        self._gone: list[tuple[str, int, Parcel | None]] = []
        self._told: RunInfo | None = None
        self._lost_samples = 0
        self._files_waiting = 0
        self._fates: dict[tuple[str, int], Fate] = {}
        self.run: RunInfo | None = None
        self.waiting_windows = 0
        self.waiting_bytes = 0
        self.counters: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()
        # Requests that somebody waits for; None until there is a reply.
        self._replies: dict[str, messages.Reply | None] = {}

    # ---- in

    def open_run(self, run: RunInfo) -> None:
        """Windows and images from now on are of this run."""
        self.run = messages.wire_run(run)
        self._queue.append(Parcel(self.run, messages.Run(self.run)))

    def add_images(self, run: RunInfo, images: Sequence[tuple[ImageInfo, int | None]]) -> None:
        """Images; the outbox closes their files."""
        for at in range(0, len(images), messages.FILES_A_MESSAGE):
            some = images[at : at + messages.FILES_A_MESSAGE]
            wires = [messages.wire_image(info, file=fd is not None) for info, fd in some]
            files = [fd for _info, fd in some if fd is not None]
            self._files_waiting += len(files)
            self._queue.append(Parcel(run, messages.Images(wires), files))
        self._shed_files()

    def add_cgroups(self, run: RunInfo, cgroups: Sequence[CgroupInfo]) -> None:
        """Cgroups that the windows after this mention, or mention no more."""
        wires = [messages.wire_cgroup(info) for info in cgroups]
        self._queue.append(Parcel(run, messages.Cgroups(wires)))

    def add_window(self, run: RunInfo, window: Window) -> list[Parcel]:
        """A window; returns those that had to be dropped for it, oldest first."""
        samples = int(window.quality.get("samples", 0))
        parcel = Parcel(run, messages.Append(window), [], window.sequence, _size(window), samples)
        self._queue.append(parcel)
        self._fates[parcel.key] = Fate.WAITING
        self.counters["windows"] += 1
        self.waiting_windows += 1
        self.waiting_bytes += parcel.size
        dropped = []
        while self.waiting_bytes > self._limit_bytes:
            oldest = next((parcel for parcel in self._queue if parcel.size), None)
            if oldest is None:
                break
            self._queue.remove(oldest)
            self.counters["windows_dropped"] += 1
            self._lose(oldest)
            dropped.append(oldest)
        return dropped

    def add_word(self, word: messages.Shed | messages.Tell) -> None:
        """Something for the worker to do; at most one of a kind waits."""
        if self.run is not None and not any(
            type(parcel.message) is type(word) for parcel in self._queue
        ):
            self._queue.append(Parcel(self.run, word))

    def add_request(self, request: messages.Request, *, awaited: bool) -> None:
        """Something to do after the windows that wait; ``take_reply`` when ``has_reply``."""
        if awaited:
            self._replies[request.id] = None
        self._queue.append(Parcel(self.run, request))

    # ---- out

    def take(self) -> list[Parcel]:
        """The next parcels to send, in order; none when there is nothing to send.

        When they are of another run than the worker knows, that run and its
        images go first. Their files are the caller's to close.
        """
        if not self._queue:
            return []
        parcel = self._queue.popleft()
        self._files_waiting -= len(parcel.files)
        run = parcel.run
        if run is None or isinstance(parcel.message, messages.Request):
            self._sent.append(parcel)
            return [parcel]
        return [*self._make_known(run, parcel), *self._pass_on(run, parcel)]

    def _make_known(self, run: RunInfo, parcel: Parcel) -> list[Parcel]:
        """What tells the worker of the parcel's run and images, when it knows another."""
        parcels: list[Parcel] = []
        if self._told is not run and not isinstance(parcel.message, messages.Run):
            parcels.append(Parcel(run, messages.Run(run)))
        if self._told is None or self._told.run != run.run:
            if isinstance(parcel.message, messages.Run):
                parcels.append(parcel)
            parcels.extend(self._again(run))
            self._forget_runs(run)
        elif isinstance(parcel.message, messages.Run):
            parcels.append(parcel)
        self._told = run
        return parcels

    def _pass_on(self, run: RunInfo, parcel: Parcel) -> list[Parcel]:
        """The parcel itself, unless _make_known has it already."""
        if isinstance(parcel.message, messages.Run):
            return []
        self._note(run.run, parcel)
        return [parcel]

    def _note(self, run: str, parcel: Parcel) -> None:
        """Remember of what is sent now what another worker may have to be told."""
        if isinstance(parcel.message, messages.Images):
            known = self._announced.setdefault(run, {})
            for wire in parcel.message.images:
                known[wire.info.uid] = messages.image_of(wire)
        elif isinstance(parcel.message, messages.Cgroups):
            self._note_cgroups(run, parcel.message.cgroups)
        elif isinstance(parcel.message, messages.Append):
            self._tell_losses(parcel)
            self._sent.append(parcel)

    def _note_cgroups(self, run: str, wires: Sequence[messages.WireCgroup]) -> None:
        """Keep what the next worker must be told, as long as a window may mention it."""
        known = self._cgroups.setdefault(run, {})
        for wire in wires:
            if wire.gone:
                self._gone.append((run, wire.uid, self._sent[-1] if self._sent else None))
            else:
                known[wire.uid] = wire
        self._forget_gone()

    def _forget_gone(self) -> None:
        """Drop cgroups whose last window is settled."""
        if not self._gone:
            return
        waiting = {id(parcel) for parcel in (*self._queue, *self._sent)}
        kept = [entry for entry in self._gone if id(entry[2]) in waiting]
        for run, uid, parcel in self._gone:
            if id(parcel) not in waiting:
                self._cgroups.get(run, {}).pop(uid, None)
        self._gone = kept

    def _again(self, run: RunInfo) -> list[Parcel]:
        """The images (without files) and cgroups that an earlier worker was told of the run."""
        images = list(self._announced.get(run.run, {}).values())
        size = messages.FILES_A_MESSAGE
        parcels = [
            Parcel(
                run,
                messages.Images(
                    [messages.wire_image(info, file=False) for info in images[at : at + size]]
                ),
            )
            for at in range(0, len(images), size)
        ]
        if cgroups := self._cgroups.get(run.run):
            parcels.append(Parcel(run, messages.Cgroups(list(cgroups.values()))))
        return parcels

    def _forget_runs(self, now: RunInfo) -> None:
        """Drop the images and cgroups of runs that nothing waits for."""
        alive = {parcel.run.run for parcel in (*self._queue, *self._sent) if parcel.run}
        alive.add(now.run)
        if self.run is not None:
            alive.add(self.run.run)
        for told in (self._announced, self._cgroups):
            for run in set(told) - alive:
                del told[run]

    def _tell_losses(self, parcel: Parcel) -> None:
        """Let the window carry the samples of those lost since the last one."""
        if self._lost_samples and isinstance(parcel.message, messages.Append):
            window = parcel.message.window
            dropped = window.quality.get("window_dropped", 0) + self._lost_samples
            quality = {**window.quality, "window_dropped": dropped}
            parcel.message = messages.Append(msgspec.structs.replace(window, quality=quality))
            parcel.told += self._lost_samples
            self._lost_samples = 0

    # ---- answers

    def stored(self, run: str, sequence: int, *, new: bool, samples: int, size: int) -> None:
        """The worker has it."""
        parcel = self._settle(run, sequence)
        if parcel is None:
            return
        self.waiting_bytes -= parcel.size
        self.waiting_windows -= 1
        self._decide(parcel, Fate.STORED)
        self.counters["windows_stored"] += 1
        self.counters["windows_again"] += not new
        self.counters["samples_stored"] += samples
        self.counters["bytes_stored"] += size

    def refuse(self, run: str, sequence: int, reason: str) -> int:
        """The worker will not have it; returns the samples lost."""
        parcel = self._settle(run, sequence)
        if parcel is None:
            return 0
        self.refused[reason] += 1
        self._lose(parcel)
        return parcel.samples

    def reply(self, reply: messages.Reply) -> None:
        """The worker has done a request, or will not."""
        for parcel in self._sent:
            if isinstance(parcel.message, messages.Request) and parcel.message.id == reply.id:
                self._sent.remove(parcel)
                break
        if reply.id in self._replies:
            self._replies[reply.id] = reply

    def has_reply(self, request: str) -> bool:
        """Whether there is a reply."""
        return self._replies.get(request) is not None

    def take_reply(self, request: str) -> tuple[messages.Reply | None, bool]:
        """The reply, or None and whether the request was given up in time: never sent."""
        reply = self._replies.pop(request, None)
        if reply is None:
            for parcel in self._queue:
                if isinstance(parcel.message, messages.Request) and parcel.message.id == request:
                    self._queue.remove(parcel)
                    return None, True
        return reply, False

    def worker_died(self, *, crashed: bool) -> Parcel | None:
        """What was not acknowledged goes first to the next worker.

        A window that crashed too many workers is returned, and lost.
        """
        self._told = None
        given_up = None
        if crashed and self._sent:
            self._sent[0].crashes += 1
            if self._sent[0].crashes >= _CRASHES_A_WINDOW:
                given_up = self._give_up(self._sent.popleft())
        self._queue.extendleft(reversed(self._sent))
        self._sent.clear()
        return given_up

    def _give_up(self, parcel: Parcel) -> Parcel | None:
        """What crashes every worker is not sent again; returns a window that is lost."""
        if isinstance(parcel.message, messages.Request):
            words = "failed", "the store's worker crashed over it"
            self.reply(messages.Reply(parcel.message.id, {}, *words))
            return None
        self.refused["worker_died"] += 1
        self._lose(parcel)
        return parcel

    def abandon(self) -> None:
        """Nothing will be sent any more: count the windows, close the files."""
        for parcel in (*self._sent, *self._queue):
            close_all(parcel.files)
            if isinstance(parcel.message, messages.Request):
                words = "failed", "opd is ending"
                self.reply(messages.Reply(parcel.message.id, {}, *words))
            if parcel.size:
                self.counters["windows_dropped"] += 1
                self._lose(parcel)
        self._sent.clear()
        self._queue.clear()

    def fate(self, sequence: int) -> Fate | None:
        """What became of a window of the current run, if it is remembered."""
        return self._fates.get((self.run.run, sequence)) if self.run else None

    def _settle(self, run: str, sequence: int) -> Parcel | None:
        for parcel in self._sent:
            if parcel.key == (run, sequence):
                self._sent.remove(parcel)
                self._forget_gone()
                return parcel
        return None

    def _lose(self, parcel: Parcel) -> None:
        self.waiting_bytes -= parcel.size
        self.waiting_windows -= 1
        self._lost_samples += parcel.samples + parcel.told
        self.counters["samples_dropped"] += parcel.samples
        self._decide(parcel, Fate.LOST)

    def _decide(self, parcel: Parcel, fate: Fate) -> None:
        """Remember the fate; forget the oldest decided ones."""
        self._fates.pop(parcel.key, None)
        self._fates[parcel.key] = fate
        if len(self._fates) > _SETTLED_REMEMBERED + self.waiting_windows:
            for key, known in self._fates.items():
                if known is not Fate.WAITING:
                    del self._fates[key]
                    break

    def _shed_files(self) -> None:
        """Close the files of the oldest images while too many wait."""
        for parcel in self._queue:
            if self._files_waiting <= _FILES_WAITING:
                return
            if parcel.files and isinstance(parcel.message, messages.Images):
                self.counters["image_files_shed"] += len(parcel.files)
                self._files_waiting -= len(parcel.files)
                close_all(parcel.files)
                for wire in parcel.message.images:
                    wire.file = False


def _size(window: Window) -> int:
    """Bytes of the window's columns, at least 1."""
    size = sum(len(value) for value in msgspec.structs.astuple(window) if isinstance(value, bytes))
    for payload in window.payloads:
        size += sum(map(len, payload.columns.values()))
    return 1 + size


def close_all(files: list[int]) -> None:
    """Close open files; the list is empty afterwards."""
    for fd in files:
        with contextlib.suppress(OSError):
            os.close(fd)
    files.clear()

"""A day of history as this machine would have written it, without waiting for the day.

What is drawn is how often and who: sixty programs, most of the time taken by a
few, in thirty units and some containers, pids that come and go, stacks that
are seen again and again and now and then a new one. What is written goes
through the store's own writer, roll-ups and all.
"""

from __future__ import annotations

import random
from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from opd.sampling.window import CgroupInfo, EventInfo, ImageInfo, RunInfo, Window
from opd.store.writer import StoreWriter
from opd_native.identity import identity_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WINDOW_S = 10
HZ = 99
CPUS = 2
PERIOD_NS = 1_000_000_000 // HZ
ROWS = 400  # (sample file, stack) with hits, a window
PROGRAMS = 60
STACKS = 200  # a program
LIBRARIES = 60
KERNEL = 1
_S = 1_000_000_000
_MODULES = ("net", "json", "alloc", "regex", "render", "storage", "crypto", "sched", "parse")


class _Name(NamedTuple):
    text: str
    raw: str
    kind: str


class _Names:
    """Functions of 256 bytes with names of usual length."""

    def __init__(self, run: RunInfo) -> None:
        del run
        self._images: dict[int, ImageInfo] = {}

    def add_image(self, info: ImageInfo, fd: int | None) -> None:
        """Keep it; there are no files."""
        del fd
        self._images[info.uid] = info

    def image_identity(self, uid: int) -> bytes:
        """By path."""
        return identity_of(f"build-id:{self._images[uid].path}".encode())

    def elf_addresses(self, uid: int, offsets: array[int]) -> array[int]:
        """As they are."""
        del uid
        return offsets

    def name_runs(
        self, uid: int, elf_addresses: array[int], *, caller: bool
    ) -> tuple[list[_Name], range]:
        """One name a function."""
        del caller
        base = self._images[uid].path.rpartition("/")[2].strip("[]").partition(".")[0]
        names = []
        for address in elf_addresses:
            slot = address >> 8
            text = f"{base}_{_MODULES[slot % len(_MODULES)]}_handle_request_{slot:x}"
            names.append(_Name(text, text, "symbol"))
        return names, range(len(names))


class _Stack(NamedTuple):
    frames: tuple[tuple[int, int], ...]  # (image uid, address), leaf first
    kernel: bool


class _Program:
    """A comm with its image, its unit, its processes and its stacks."""

    def __init__(self, rng: random.Random, number: int) -> None:
        self.comm = (
            f"{rng.choice(('web', 'db', 'cron', 'log', 'node', 'java'))}-{number:02}".encode()
        )
        self.image = 2 + LIBRARIES + number
        self.libraries = rng.sample(range(2, 2 + LIBRARIES), 4)
        self.cgroup = 1 + number % 40
        self.short_lived = number % 10 == 7
        self.pids = [1000 + number * 10 + i for i in range(rng.randrange(1, 5))]
        self.stacks = [self._stack(rng) for _ in range(STACKS)]
        self.weights = list(accumulate(1 / (1 + at) for at in range(STACKS)))

    def _stack(self, rng: random.Random) -> _Stack:
        kernel = rng.random() < 0.3
        frames = [(KERNEL, self._address(rng, 3000)) for _ in range(rng.randrange(2, 8) * kernel)]
        frames += [
            (rng.choice((self.image, self.image, *self.libraries)), self._address(rng, 400))
            for _ in range(rng.randrange(4, 20))
        ]
        return _Stack(tuple(frames), kernel)

    @staticmethod
    def _address(rng: random.Random, functions: int) -> int:
        # A few functions are hot, and in each some instructions.
        slot = min(int(rng.expovariate(8 / functions)), functions)
        return (slot << 8) + 4 * min(int(rng.expovariate(0.2)), 60)

    def draw(self, rng: random.Random) -> _Stack:
        """One that was seen before, now and then a new one."""
        if rng.random() < 0.02:
            self.stacks[rng.randrange(STACKS)] = self._stack(rng)
        return rng.choices(self.stacks, cum_weights=self.weights)[0]


class Day:
    """Draws windows; the same seed draws the same."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        self._programs = [_Program(self._rng, number) for number in range(PROGRAMS)]
        self._weights = list(accumulate(1 / (1 + at) for at in range(PROGRAMS)))
        self._pid = 100_000
        paths = [f"/usr/lib/x86_64-linux-gnu/lib{at:02}.so.{at % 7}" for at in range(LIBRARIES)]
        paths += [f"/usr/lib/programs/program-{at:02}" for at in range(PROGRAMS)]
        self.images = [ImageInfo(uid=KERNEL, kind="kernel", path="[kernel]")]
        self.images += [
            ImageInfo(uid=uid, kind="file", path=path) for uid, path in enumerate(paths, 2)
        ]
        self.cgroups = [
            CgroupInfo(
                1 + at,
                f"/system.slice/service-{at:02}.service"
                if at < 30
                else f"/system.slice/docker-{at:02}{'ab' * 31}.scope",
            )
            for at in range(40)
        ]

    def window(self, sequence: int, start_ns: int) -> Window:
        """The window of that number."""
        rng = self._rng
        sfiles: dict[tuple[bytes, int, int, int, int], int] = {}
        stacks: dict[_Stack, int] = {}
        rows: dict[tuple[int, int], int] = {}
        programs = rng.choices(self._programs, cum_weights=self._weights, k=ROWS)
        left = WINDOW_S * HZ * CPUS
        for at, program in enumerate(programs):
            stack = program.draw(rng)
            if program.short_lived:
                self._pid += 1
            pid = self._pid if program.short_lived else rng.choice(program.pids)
            about = (program.comm, pid, int(stack.kernel), stack.frames[0][0], program.cgroup)
            key = (sfiles.setdefault(about, len(sfiles)), stacks.setdefault(stack, len(stacks)))
            hits = left if at == ROWS - 1 else min(1 + int(rng.expovariate(0.25)), left)
            left -= hits
            rows[key] = rows.get(key, 0) + hits
            if left == 0:
                break
        return _packed(sequence, start_ns, sfiles=list(sfiles), stacks=list(stacks), rows=rows)


def _packed(
    sequence: int,
    start_ns: int,
    *,
    sfiles: list[tuple[bytes, int, int, int, int]],
    stacks: list[_Stack],
    rows: dict[tuple[int, int], int],
) -> Window:
    frames = [frame for stack in stacks for frame in stack.frames]
    starts = [0, *accumulate(len(stack.frames) for stack in stacks)]

    def column(code: str, values: object) -> bytes:
        return array(code, values).tobytes()  # type: ignore[call-overload,no-any-return]

    return Window(
        sequence=sequence,
        start_ns=start_ns,
        end_ns=start_ns + WINDOW_S * _S,
        rows=len(rows),
        row_sfile=column("I", [sfile for sfile, _stack in rows]),
        row_stack=column("I", [stack for _sfile, stack in rows]),
        row_hits=column("Q", rows.values()),
        row_weight=column("Q", [hits * PERIOD_NS for hits in rows.values()]),
        sfiles=len(sfiles),
        sfile_event=bytes(2 * len(sfiles)),
        sfile_mode=bytes(sfile[2] for sfile in sfiles),
        sfile_tgid=column("i", [sfile[1] for sfile in sfiles]),
        sfile_tid=column("i", [-1] * len(sfiles)),
        sfile_cpu=column("i", [-1] * len(sfiles)),
        sfile_image=column("I", [sfile[3] for sfile in sfiles]),
        sfile_comm=b"".join(sfile[0].ljust(16, b"\0") for sfile in sfiles),
        sfile_cgroup=column("I", [sfile[4] for sfile in sfiles]),
        stacks=len(stacks),
        stack_start=column("I", starts),
        stack_flags=bytes(4 + 2 * stack.kernel for stack in stacks),
        frame_image=column("I", [image for image, _address in frames]),
        frame_address=column("Q", [address for _image, address in frames]),
        quality={
            "samples": sum(rows.values()),
            "elapsed_ns": CPUS * WINDOW_S * _S,
        },
    )


def write_day(
    directory: Path,
    until_ns: int,
    *,
    hours: float = 24,
    progress: Callable[[str], None] | None = None,
) -> int:
    """Write a store whose last window ends then; the number of windows."""
    windows = int(hours * 3600) // WINDOW_S
    start_ns = until_ns - windows * WINDOW_S * _S
    day = Day()
    writer = StoreWriter(directory, _Names)
    writer.open_run(
        RunInfo(
            run="d" * 32,
            boot="b",
            kind="live",
            session="live",
            origin="",
            kernel_release="6.1.0",
            kernel_build_id="",
            host="day",
            cpus=CPUS,
            started_ns=start_ns,
            events=[EventInfo("cpu-clock", "cpu-clock", "ns", hz=HZ)],
        )
    )
    writer.add_images([(info, None) for info in day.images])
    writer.add_cgroups(day.cgroups)
    for sequence in range(windows):
        writer.append(day.window(sequence, start_ns + sequence * WINDOW_S * _S))
        if progress is not None and sequence % 100 == 0:
            progress(f"a day of history: {100 * sequence // windows} %")
    writer.close()
    return windows

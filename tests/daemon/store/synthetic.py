"""Windows made from a plain list of hits, so that a test knows the answer."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from typing import NamedTuple

from plain_names import PlainNames

from opd.sampling.window import EventInfo, ImageInfo, RunInfo, Window

START_NS = 1_700_000_000_000_000_000 // 60_000_000_000 * 60_000_000_000
WINDOW_NS = 10_000_000_000


class Hit(NamedTuple):
    """One row: who, where, how often. ``frames``: (image uid, address), leaf first."""

    event: int
    comm: str
    tgid: int
    mode: int
    frames: tuple[tuple[int, int], ...]
    hits: int
    weight: int
    tid: int = -1
    cpu: int = -1
    flags: int = 4
    cgroup: int = 0


IMAGES = [
    ImageInfo(uid=1, kind="kernel", path="[kernel]", build_id="aa" * 20),
    ImageInfo(uid=2, kind="file", path="/usr/lib/libc.so.6", build_id="bb" * 20),
    ImageInfo(uid=3, kind="file", path="/usr/bin/cat", deleted=True, build_id="cc" * 20),
    ImageInfo(uid=4, kind="anon", path="[anon]"),
]


def make_run(run="f" * 32, session="default", events=None, **more):
    """A run of one event at 99 Hz."""
    if events is None:
        events = [EventInfo("cpu-clock", "cpu-clock", "ns", hz=99)]
    fields = {
        "boot": "b", "kind": "live", "origin": "", "kernel_release": "6.1.0",
        "kernel_build_id": "", "host": "host", "cpus": 2, "started_ns": START_NS,
    }  # fmt: skip
    return RunInfo(run=run, session=session, events=events, **{**fields, **more})


def make_window(sequence, hits, start_ns=None, end_ns=None, **quality):
    """The window of these hits; samples and elapsed time are filled in."""
    sfiles, stacks = {}, {}
    rows = []
    for hit in hits:
        sfile = (hit.event, hit.mode, hit.tgid, hit.tid, hit.cpu, hit.frames[0][0], hit.comm)
        sfile = (*sfile, hit.cgroup)
        stack = (hit.flags, hit.frames)
        rows.append(
            (
                *(sfiles.setdefault(sfile, len(sfiles)), stacks.setdefault(stack, len(stacks))),
                *(hit.hits, hit.weight),
            )
        )
    starts = [0]
    for _flags, frames in stacks:
        starts.append(starts[-1] + len(frames))
    frames = [frame for _flags, frames in stacks for frame in frames]

    def column(code, values):
        return array(code, values).tobytes()

    start = START_NS + sequence * WINDOW_NS if start_ns is None else start_ns
    return Window(
        sequence=sequence,
        start_ns=start,
        end_ns=start + WINDOW_NS if end_ns is None else end_ns,
        rows=len(rows),
        row_sfile=column("I", [row[0] for row in rows]),
        row_stack=column("I", [row[1] for row in rows]),
        row_hits=column("Q", [row[2] for row in rows]),
        row_weight=column("Q", [row[3] for row in rows]),
        sfiles=len(sfiles),
        sfile_event=column("H", [sfile[0] for sfile in sfiles]),
        sfile_mode=bytes(sfile[1] for sfile in sfiles),
        sfile_tgid=column("i", [sfile[2] for sfile in sfiles]),
        sfile_tid=column("i", [sfile[3] for sfile in sfiles]),
        sfile_cpu=column("i", [sfile[4] for sfile in sfiles]),
        sfile_image=column("I", [sfile[5] for sfile in sfiles]),
        sfile_comm=b"".join(
            sfile[6].encode("utf-8", "surrogateescape").ljust(16, b"\0") for sfile in sfiles
        ),
        sfile_cgroup=column("I", [sfile[7] for sfile in sfiles]),
        stacks=len(stacks),
        stack_start=column("I", starts),
        stack_flags=bytes(flags for flags, _frames in stacks),
        frame_image=column("I", [frame[0] for frame in frames]),
        frame_address=column("Q", [frame[1] for frame in frames]),
        quality={"samples": sum(hit.hits for hit in hits), "elapsed_ns": 2 * WINDOW_NS, **quality},
    )


def random_hits(seed, rows=50, events=1, period=10_101_010):
    """Hits like those of a mixed load."""
    rng = random.Random(seed)
    made = []
    for _ in range(rows):
        tgid = rng.randrange(100, 110)
        mode = int(rng.random() < 0.3)
        leaf = (1, 0xFFFFFFFF81000000 + rng.randrange(4096)) if mode else _user_frame(rng)
        depth = rng.randrange(1, 12)
        callers = [(2, 0x20000 + 64 * min(int(rng.expovariate(0.3)), 40)) for _ in range(depth)]
        hits = 1 + int(rng.expovariate(1))
        made.append(
            Hit(
                *(rng.randrange(events), f"worker{tgid % 3}", tgid, mode, (leaf, *callers)),
                *(hits, hits * period + (rng.randrange(1000) if rng.random() < 0.1 else 0)),
            )
        )
    return made


def _user_frame(rng):
    uid = rng.choice((2, 3, 3, 4))
    return uid, 64 * min(int(rng.expovariate(0.05)), 400) + rng.randrange(64)


def expected(windows_hits, keys):
    """Samples and weight by keys, straight from the hits."""
    names = PlainNames(None)
    for info in IMAGES:
        names.add_image(info, None)
    paths = {info.uid: info.path for info in IMAGES}
    samples, weights = Counter(), Counter()
    for hit in windows_hits:
        uid, offset = hit.frames[0]
        address = names.elf_addresses(uid, [offset])
        cells = {
            "comm": hit.comm,
            "pid": hit.tgid,
            "image": paths[uid],
            "symbol": names.name_runs(uid, address, caller=False)[0][0].text,
            "mode": ("user", "kernel")[hit.mode],
            "thread": hit.tid,
            "cpu": hit.cpu,
        }
        key = tuple(cells[key] for key in keys)
        samples[key] += hit.hits
        weights[key] += hit.weight
    return {key: (samples[key], weights[key]) for key in samples}

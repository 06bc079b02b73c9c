"""Windows with payloads made of single samples, so that a test can count for itself."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from typing import NamedTuple

from plain_names import PlainNames
from synthetic import IMAGES, WINDOW_NS, Hit, make_run, make_window

from opd.sampling.payload import (
    HAS_ADDRESS,
    HAS_LATENCY,
    HAS_PHYSICAL,
    LOAD,
    SOURCES,
    STORE,
    TLBS,
    Payload,
)
from opd.sampling.window import EventInfo
from opd.store.writer import StoreWriter
from opd_native.payload import latency_bucket

EVENTS = (
    "ibs_op",
    "IBS_OP_ALL_LOAD_STORE",
    "IBS_OP_DATA_CACHE_MISS",
    "IBS_OP_DC_LOAD_LAT",
    "IBS_OP_BRANCH_RETIRED",
    "IBS_OP_MISPREDICTED_BRANCH",
)
PERIOD = 250_000


class Op(NamedTuple):
    """One sampled op."""

    comm: str
    tgid: int
    tid: int
    cpu: int
    frame: tuple[int, int]
    load: bool = False
    store: bool = False
    missed: bool = False
    latency: int = 0
    source: str = "unknown"
    tlb: str = "unknown"
    address: int = 0
    physical: int = 0
    width: int = 8
    target: tuple[int, int] | None = None
    taken: bool = False
    mispredicted: bool = False

    def events(self):
        """The weight of the op by the events it satisfies."""
        yield "ibs_op", PERIOD
        if self.load or self.store:
            yield "IBS_OP_ALL_LOAD_STORE", PERIOD
            if self.missed:
                yield "IBS_OP_DATA_CACHE_MISS", PERIOD
        if self.load and self.missed:
            yield "IBS_OP_DC_LOAD_LAT", self.latency
        if self.target:
            yield "IBS_OP_BRANCH_RETIRED", PERIOD
            if self.mispredicted:
                yield "IBS_OP_MISPREDICTED_BRANCH", PERIOD


def symbol(op, frame=None):
    """The name of the op's place."""
    uid, offset = frame or op.frame
    names = PlainNames(None)
    for info in IMAGES:
        names.add_image(info, None)
    address = names.elf_addresses(uid, [offset])
    return names.name_runs(uid, address, caller=False)[0][0].text


def random_ops(seed, count):
    """Ops of a few processes, with skewed latencies and shared lines."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        tgid = rng.randrange(100, 104)
        op = Op(
            *(f"worker{tgid % 3}", tgid, tgid * 10 + rng.randrange(3), rng.randrange(4)),
            (rng.choice((2, 3)), 64 * rng.randrange(12)),
        )
        kind = rng.random()
        if kind < 0.6:
            missed = rng.random() < 0.3
            load = rng.random() < 0.7
            address = 0x7F0000000000 + 64 * rng.randrange(40) + 8 * rng.randrange(8)
            op = op._replace(
                load=load,
                store=not load,
                missed=missed,
                latency=min(65535, int(rng.lognormvariate(5, 1))) if load and missed else 0,
                source=rng.choice(("l3", "dram", "remote-dram")) if load and missed else "l1",
                tlb=rng.choice(TLBS[1:]),
                address=address,
                physical=(tgid << 30) + address % (1 << 30),
            )
        elif kind < 0.85:
            op = op._replace(
                target=(2, 64 * rng.randrange(5)),
                taken=rng.random() < 0.8,
                mispredicted=rng.random() < 0.1,
            )
        made.append(op)
    return made


def column(code, values):
    """A packed column."""
    return array(code, values).tobytes()


def _hits(ops):
    """The rows of the ops' events."""
    counts, weights = Counter(), Counter()
    for op in ops:
        for event, weight in op.events():
            key = (EVENTS.index(event), op.comm, op.tgid, op.frame)
            counts[key] += 1
            weights[key] += weight
    return [Hit(*key[:3], 0, (key[3],), counts[key], weights[key]) for key in counts]


def precise_window(sequence, ops, *, draw=None):
    """The window of these ops; ``draw``: how many of the accesses are kept."""
    hits = _hits(ops)
    # Targets of branches are stacks that no row has.
    targets = {op.target for op in ops if op.target} - {hit.frames[0] for hit in hits}
    window = make_window(sequence, hits)
    stacks = dict.fromkeys(hit.frames for hit in hits)
    for frame in sorted(targets):
        stacks[frame,] = None
        window.stack_start += column("I", [len(window.frame_image) // 4 + 1])
        window.stack_flags += bytes([4])
        window.frame_image += column("I", [frame[0]])
        window.frame_address += column("Q", [frame[1]])
        window.stacks += 1
    stack = {frames[0]: at for at, frames in enumerate(stacks)}
    sfile = {}
    for hit in hits:
        sfile.setdefault((hit.event, hit.comm, hit.tgid, hit.frames[0][0]), len(sfile))

    def place(op, event):
        return sfile[EVENTS.index(event), op.comm, op.tgid, op.frame[0]], stack[op.frame]

    cells = Counter()
    for op in ops:
        if op.load and op.missed:
            cells[*place(op, "IBS_OP_DC_LOAD_LAT"), latency_bucket(op.latency)] += 1
    accesses = [op for op in ops if op.load or op.store]
    totals = {}
    for op in accesses:
        total = totals.setdefault(_what(op) & 0x3FF03 & ~0xFC, [0, 0, 0])
        total[0] += 1
        total[1] += op.latency > 0
        total[2] += op.latency
    kept = accesses if draw is None else random.Random(sequence).sample(accesses, draw)
    branches = {}
    for op in ops:
        if op.target:
            branch = branches.setdefault((*place(op, "ibs_op"), stack[op.target]), [0, 0, 0, 0])
            branch[0] += 1
            branch[1] += op.taken
            branch[2] += op.mispredicted
    window.payloads = [
        _payload("latency", "IIIQ", ("sfile", "stack", "bucket", "count"), sum(cells.values()),
                 [(*key, count) for key, count in cells.items()]),
        _payload("access", "IIQQIIII",
                 ("sfile", "stack", "address", "physical", "tid", "cpu", "latency", "what"),
                 len(accesses),
                 [(*place(op, "ibs_op"), op.address, op.physical, op.tid, op.cpu, op.latency,
                   _what(op)) for op in kept]),
        _payload("total", "IQQQ", ("what", "count", "timed", "latency"), len(accesses),
                 [(what, *numbers) for what, numbers in totals.items()]),
        _payload("branch", "IIIQQQQ",
                 ("sfile", "from", "to", "count", "taken", "mispredicted", "return"),
                 sum(branch[0] for branch in branches.values()),
                 [(*key, *branch) for key, branch in branches.items()]),
    ]  # fmt: skip
    return window


def _what(op):
    flags = (op.load and LOAD) | (op.store and STORE) | (op.latency and HAS_LATENCY)
    flags |= HAS_ADDRESS | HAS_PHYSICAL
    return flags | SOURCES.index(op.source) << 8 | TLBS.index(op.tlb) << 16 | op.width << 24


def _payload(kind, codes, names, offered, rows):
    cells = list(zip(*rows, strict=True)) or [()] * len(names)
    columns = {
        name: column(code, values) for name, code, values in zip(names, codes, cells, strict=True)
    }
    return Payload(kind, len(rows), offered, 0, columns)


def store_ops(directory, windows, *, draw=None):
    """A store of windows of ops."""
    writer = StoreWriter(directory, PlainNames)
    events = [
        EventInfo(name, name, "cycles" if name.endswith("LAT") else "count", period=PERIOD)
        for name in EVENTS
    ]
    writer.open_run(make_run(events=events, kind="import"))
    writer.add_images([(info, None) for info in IMAGES])
    for sequence, ops in enumerate(windows):
        writer.append(precise_window(sequence, ops, draw=draw))
    writer.close()


__all__ = ["EVENTS", "WINDOW_NS", "Op", "random_ops", "store_ops", "symbol"]

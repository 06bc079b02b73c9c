"""Recordings of IBS samples made of plain facts, so that a test can count for itself.

Facts are drawn first and become register words by AMD's bit numbers, here
written down apart from opd's decoder.
"""

from __future__ import annotations

import random
import struct
from typing import NamedTuple

from perfdata_writer import (
    ADDR,
    CPU,
    DATA_SRC,
    IDENTIFIER,
    IP,
    PHYS_ADDR,
    RAW,
    TID,
    TIME,
    WEIGHT,
    Attr,
    PerfData,
)

CAPS = 0xBFF  # Zen4
PERIOD = 250_000
OP_TYPE, FETCH_TYPE = 11, 10
SAMPLE_TYPE = IDENTIFIER | IP | TID | TIME | CPU | RAW
IMAGE, BASE = "/usr/bin/demo", 0x400000
KERNEL_ADDRESS = 0xFFFFFFFF81000000

# The five bits of DataSrc from Zen4 on, by opd's words.
ZEN4_SOURCES = {
    "l3": 1,
    "near-cache": 2,
    "dram": 3,
    "far-cache": 5,
    "slow-memory": 6,
    "io": 7,
    "cxl": 8,
    "peer-memory": 12,
}


# And the three bits before.
OLDER_SOURCES = {"l3": 2, "dram": 3, "far-cache": 4, "io": 7}


class OpFacts(NamedTuple):
    """What one sampled op did."""

    pid: int
    tid: int
    cpu: int
    time: int
    rip: int
    load: bool = False
    store: bool = False
    dc_miss: bool = False
    l2_miss: bool = False
    source: str = ""
    remote: bool = False
    latency: int = 0
    l1_tlb_miss: bool = False
    l2_tlb_miss: bool = False
    linear: int = 0
    physical: int = 0
    width: int = 0
    branch: bool = False
    taken: bool = False
    mispredicted: bool = False
    is_return: bool = False
    target: int = 0
    tag_to_retire: int = 0
    kernel: bool = False

    @property
    def served(self):
        """The source by opd's word."""
        if not self.dc_miss:
            return "l1"
        if not self.l2_miss:
            return "l2"
        if self.source == "dram" and self.remote:
            return "remote-dram"
        return self.source or "unknown"

    @property
    def tlb(self):
        """The level of the TLB that knew the page."""
        if not self.l1_tlb_miss:
            return "l1"
        return "miss" if self.l2_tlb_miss else "l2"

    def raw(self, caps=CAPS):
        """The record's bytes."""
        ctl = 1 << 17 | 1 << 18 | 1 << 19 | PERIOD >> 4
        data = self.tag_to_retire << 16
        data |= self.branch << 37 | self.taken << 35 | self.mispredicted << 36
        data |= self.is_return << 34
        source = (ZEN4_SOURCES if caps & 1 << 11 else OLDER_SOURCES).get(self.source, 0)
        data2 = source & 7 | self.remote << 4 | source >> 3 << 6
        width = self.width.bit_length() if self.width else 0
        valid = self.load or self.store
        data3 = self.load | self.store << 1 | self.l1_tlb_miss << 2 | self.l2_tlb_miss << 3
        data3 |= self.dc_miss << 7 | valid << 17 | valid << 18 | self.l2_miss << 20
        data3 |= width << 22 | self.latency << 32
        registers = (ctl, self.rip, data, data2, data3, self.linear, self.physical, self.target)
        return struct.pack("<I8Q", caps, *registers)


def draw_ops(seed, count, *, start=10**9, step=3_000_000, sources=tuple(ZEN4_SOURCES)):
    """Facts of ``count`` ops of four processes, skewed as real ones are."""
    rng = random.Random(seed)
    facts = []
    for at in range(count):
        pid = rng.randrange(1000, 1004)
        where = {
            "pid": pid,
            "tid": pid + 10 * rng.randrange(3),
            "cpu": rng.randrange(4),
            "time": start + step * at,
            "kernel": rng.random() < 0.1,
            "tag_to_retire": rng.randrange(1, 300),
        }
        base = KERNEL_ADDRESS if where["kernel"] else BASE
        where["rip"] = base + 16 * min(int(rng.expovariate(0.1)), 200)
        kind = rng.random()
        if kind < 0.6:
            facts.append(OpFacts(**where, **_access(rng, sources)))
        elif kind < 0.85:
            facts.append(OpFacts(**where, **_branch(rng)))
        else:
            facts.append(OpFacts(**where))
    return facts


def _access(rng, sources):
    load = rng.random() < 0.7
    missed = rng.random() < 0.3
    beyond = missed and rng.random() < 0.6
    l1_tlb_miss = rng.random() < 0.2
    offset = 64 * rng.randrange(50) + 8 * rng.randrange(8)
    return {
        "load": load,
        "store": not load,
        "dc_miss": missed,
        "l2_miss": beyond,
        "source": rng.choice(sources) if load and beyond else "",
        "remote": rng.random() < 0.3,
        "latency": min(65535, int(rng.lognormvariate(5, 1))) if load and missed else 0,
        "l1_tlb_miss": l1_tlb_miss,
        "l2_tlb_miss": l1_tlb_miss and rng.random() < 0.4,
        "linear": 0x7F0000000000 + offset,
        "physical": 0x240000000 + offset,
        "width": rng.choice((1, 4, 8)),
    }


def _branch(rng):
    return {
        "branch": True,
        "taken": rng.random() < 0.8,
        "mispredicted": rng.random() < 0.1,
        "is_return": rng.random() < 0.2,
        "target": BASE + 16 * rng.randrange(20),
    }


def fetch_raw(*, latency=0, complete=True, ic_miss=False, caps=CAPS, address=BASE):
    """The bytes of a fetch record."""
    ctl = 1 << 48 | 1 << 49 | complete << 50 | ic_miss << 51 | 1 << 52 | latency << 32
    return struct.pack("<I4Q", caps, ctl, address, 0x240000000, 0)


def record_ops(facts, *, fetches=0, cpuid="AuthenticAMD,25,17,1", release="6.8.0", caps=CAPS):
    """The recording of these ops, and of some fetches beside them."""
    full = SAMPLE_TYPE | ADDR | PHYS_ADDR | WEIGHT | DATA_SRC
    attrs = [
        Attr("ibs_op//", type=OP_TYPE, config=1 << 19, sample_period=PERIOD, sample_type=full,
             ids=(1,)),
        Attr("ibs_fetch//", type=FETCH_TYPE, sample_period=PERIOD, sample_type=SAMPLE_TYPE,
             ids=(2,)),
    ]  # fmt: skip
    data = PerfData(attrs)
    data.features |= {
        "cpuid": cpuid,
        "os_release": release,
        "arch": "x86_64",
        "nr_cpus": (4, 4),
        "pmus": {1: "software", OP_TYPE: "ibs_op", FETCH_TYPE: "ibs_fetch"},
    }
    for pid in sorted({fact.pid for fact in facts}):
        data.comm(pid=pid, comm=f"work{pid % 3}", time=1, execs=True)
        data.mmap2(pid=pid, start=BASE, length=0x10000, path=IMAGE, time=2)
        for tid in sorted({fact.tid for fact in facts if fact.pid == pid} - {pid}):
            data.fork(pid=pid, tid=tid, parent=pid, parent_tid=pid, time=3)
    for fact in facts:
        data.sample(
            event=0,
            pid=fact.pid,
            tid=fact.tid,
            cpu=fact.cpu,
            time=fact.time,
            ip=fact.rip,
            misc=1 if fact.kernel else 2,
            raw=fact.raw(caps),
            addr=fact.linear,
            phys_addr=fact.physical,
            weight=fact.latency,
            data_src=0,
        )
    rng = random.Random(fetches)
    for at in range(fetches):
        data.sample(
            event=1, pid=1000, time=10**9 + 1000 * at, ip=BASE,
            raw=fetch_raw(latency=rng.randrange(1, 500), ic_miss=rng.random() < 0.2),
        )  # fmt: skip
    return data

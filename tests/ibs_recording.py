"""Writes recordings of IBS samples, and counts beside them what each derived event must give."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from ibs_records import FETCH_VALID, OP_VALID, payload
from ibs_reference import Cpu, expected_fetch, expected_op
from perfdata_writer import (
    ADDR,
    CALLCHAIN,
    CPU,
    DATA_SRC,
    IDENTIFIER,
    IP,
    KERNEL,
    MISC_KERNEL,
    MISC_USER,
    PERIOD,
    PHYS_ADDR,
    RAW,
    TID,
    TIME,
    USER,
    WEIGHT_STRUCT,
    Attr,
    PerfData,
)

SAMPLE_TYPE = IDENTIFIER | IP | TID | TIME | ADDR | CPU | PERIOD | CALLCHAIN | RAW
SAMPLE_TYPE |= WEIGHT_STRUCT | DATA_SRC | PHYS_ADDR
FETCH_TYPE, OP_TYPE = 10, 11
FETCH_NAME, OP_NAME = "ibs_fetch/rand_en=1/", "ibs_op/cnt_ctl=1/"
FETCH_PERIOD, OP_PERIOD = 65536, 100000
KERNEL_TEXT = 0xFFFFFFFF81000000
EXACT = 1 << 14
PIDS = (100, 200, 300, 400)
TEXT, LIBRARY = 0x400000, 0x7F0000000000
EXACT_RIP_INVALID = 1 << 38


@dataclass
class Truth:
    """What was written, counted sample by sample."""

    hits: Counter[str] = field(default_factory=Counter)
    weight: Counter[str] = field(default_factory=Counter)
    by_image: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # event, comm, image
    quality: Counter[str] = field(default_factory=Counter)
    samples: int = 0


@dataclass
class Writer:
    """One recording in the making: ``truth`` goes with ``data``."""

    cpu: Cpu
    release: str = "6.8.0"
    seed: int = 1
    types: tuple[int, int] = (FETCH_TYPE, OP_TYPE)

    def __post_init__(self) -> None:
        """Begin with processes, their images and the kernel."""
        self.words = random.Random(self.seed)
        self.truth = Truth()
        fetch = Attr(FETCH_NAME, self.types[0], 1 << 57, FETCH_PERIOD, ids=(11, 12))
        op = Attr(OP_NAME, self.types[1], 1 << 19, OP_PERIOD, ids=(21, 22))
        fetch.sample_type = op.sample_type = SAMPLE_TYPE
        self.data = PerfData(
            [fetch, op],
            {
                "hostname": "written",
                "os_release": self.release,
                "arch": "x86_64",
                "nr_cpus": (8, 8),
                "cpuid": f"AuthenticAMD,{self.cpu.family},{self.cpu.model},1",
                "pmus": {
                    4: "cpu",
                    1: "software",
                    self.types[0]: "ibs_fetch",
                    self.types[1]: "ibs_op",
                },
            },
        )
        self.data.mmap(
            pid=2**32 - 1, start=KERNEL_TEXT, length=1 << 24, path="[kernel.kallsyms]_text",
            offset=KERNEL_TEXT, misc=MISC_KERNEL,
        )  # fmt: skip
        for number, pid in enumerate(PIDS):
            self.data.comm(pid=pid, comm=f"demo{number}", execs=True)
            self.data.comm(pid=pid, tid=pid + 1, comm=f"demo{number}")
            self.data.mmap2(pid=pid, start=TEXT, length=1 << 20, path=f"/opt/demo{number}")
            self.data.mmap2(pid=pid, start=LIBRARY, length=1 << 20, path="/opt/libdemo.so")

    def _place(self) -> tuple[int, str]:
        """An address and its image."""
        where = self.words.randrange(3)
        at = self.words.randrange(64) * 16 + 0x1000
        return (
            (TEXT + at, ""),
            (LIBRARY + at, "/opt/libdemo.so"),
            (KERNEL_TEXT + at, "[kernel]"),
        )[where]

    def _registers(self, ip: int, *, op: bool) -> list[int]:
        words, caps = self.words, self.cpu.caps
        count = 7 + (caps >> 5 & 1) + (caps >> 10 & 1) if op else 3 + (caps >> 9 & 1)
        registers = [words.getrandbits(64) & words.getrandbits(64) for _ in range(count)]
        registers[0] |= OP_VALID if op else FETCH_VALID
        registers[1] = ip
        if op and words.random() < 0.6:  # loads from far away are rare in random bits
            registers[3] = words.getrandbits(10)
            registers[4] |= 1 | 1 << 7 | 1 << 20
        if not op and words.random() < 0.03:
            registers[0] = FETCH_VALID
        if op:
            registers[2] &= ~EXACT_RIP_INVALID
            if words.random() < 0.05:
                registers[2] |= EXACT_RIP_INVALID
        return registers

    def sample(self, time: int) -> None:
        """Write one random sample and count it."""
        words, truth, cpu = self.words, self.truth, self.cpu
        op = words.random() < 0.6
        pid = words.choice(PIDS)
        ip, image = self._place()
        registers = self._registers(ip, op=op)
        caps, raw_caps, extra = cpu.caps, cpu.caps, b""
        kind = words.random()
        if kind < 0.01:
            registers = registers[: words.randrange(len(registers))]
        elif kind < 0.02:
            extra = bytes(8)
        elif kind < 0.03:
            raw_caps |= 1 << 24
        if kind < 0.03:
            truth.quality["incomplete"] += 1
        told = (expected_op if op else expected_fetch)(cpu, registers)
        valid = bool(told)
        checked = caps >> 7 & 1 and cpu.family != 0x10
        exact = valid and len(registers) > 1
        if op and checked:
            exact = exact and len(registers) > 2 and not registers[2] & EXACT_RIP_INVALID
        # The kernel gives the record's address, or the interrupt's.
        interrupt, other = self._place()
        seen, of = (ip, image) if exact else (interrupt, other)
        if not exact:
            truth.quality["inexact"] += 1
        comm = f"demo{PIDS.index(pid)}"
        chain = (KERNEL, interrupt) if interrupt >> 63 else (USER, interrupt)
        period = words.randrange(1, 1 << 20)
        self.data.sample(
            event=int(op),
            event_id=(11, 12, 21, 22)[2 * op + words.randrange(2)],
            ip=seen,
            pid=pid,
            tid=pid + words.randrange(2),
            time=time,
            cpu=words.randrange(8),
            period=period,
            chain=chain,
            raw=payload(raw_caps, *registers) + extra,
            misc=(MISC_KERNEL if interrupt >> 63 else MISC_USER) | (EXACT if exact else 0),
            data_src=self._data_src(registers, op=op),
        )
        truth.samples += 1
        for name, value in {**told, (OP_NAME if op else FETCH_NAME): None}.items():
            truth.hits[name] += 1
            truth.weight[name] += period if value is None else value
            truth.by_image[name, comm, of or f"/opt/{comm}"] += 1

    def _data_src(self, registers: list[int], *, op: bool) -> int:
        """What the kernel would say, of ops that neither load nor store; else what is wrong."""
        whole = len(registers) == 7 + (self.cpu.caps >> 5 & 1) + (self.cpu.caps >> 10 & 1)
        if op and whole:
            self.truth.quality["compared"] += 1
            if registers[4] & 3:
                self.truth.quality["mismatched"] += 1
        return 0x1E05080021

    def write(self, count: int, *, rounds: int = 500) -> Truth:
        """Write ``count`` samples a microsecond apart."""
        for number in range(count):
            self.sample(10_000 + number * 1000)
            if number % rounds == rounds - 1:
                self.data.finished_round()
        return self.truth

"""Writes perf.data files for tests: what `perf record` would have written, from plain values.

Build a recording by calling its record methods in the file's order, then take the bytes::

    data = PerfData([Attr("cpu-clock", ids=(11, 12)), Attr("page-faults", config=2, ids=(21,))])
    data.comm(pid=7, comm="demo", time=1000, execs=True)
    data.mmap2(pid=7, start=0x400000, length=0x1000, path="/usr/bin/demo", time=1001)
    data.sample(event=0, pid=7, ip=0x400123, time=1002, chain=[USER, 0x400123, 0x400456])
    data.finished_round()
    blob = data.to_bytes()        # v2 file; to_pipe_bytes() for the pipe layout
    data.write(tmp_path / "perf.data")

`records` is the list of packed records: tests may shuffle, cut or replace them. Every method
returns the packed record that it appended. A record's event is given by the index of its attr; its
id is the first of that attr's ids unless `event_id` says otherwise. Times are ns of the events'
clock. Everything is little-endian, like the machines opd runs on.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

# sample_type
IP, TID, TIME, ADDR, READ, CALLCHAIN, ID, CPU, PERIOD, STREAM_ID, RAW = (1 << i for i in range(11))
BRANCH_STACK, REGS_USER, STACK_USER, WEIGHT, DATA_SRC, IDENTIFIER = (1 << i for i in range(11, 17))
TRANSACTION, REGS_INTR, PHYS_ADDR, AUX, CGROUP, DATA_PAGE_SIZE, CODE_PAGE_SIZE, WEIGHT_STRUCT = (
    1 << i for i in range(17, 25)
)
DEFAULT_SAMPLE_TYPE = IDENTIFIER | IP | TID | TIME | CPU | PERIOD | CALLCHAIN

# Call-chain markers
KERNEL = 2**64 - 128
USER = 2**64 - 512

# header.misc
MISC_KERNEL = 1
MISC_USER = 2
MISC_COMM_EXEC = 1 << 13
MISC_MMAP_BUILD_ID = 1 << 14

HEADER = struct.Struct("<IHH")
ATTR_SIZE = 128
FEATURES = {
    "build_ids": 2,
    "hostname": 3,
    "os_release": 4,
    "version": 5,
    "arch": 6,
    "nr_cpus": 7,
    "cpu_description": 8,
    "cpuid": 9,
    "total_memory_kib": 10,
    "command_line": 11,
    "event_desc": 12,
    "pmus": 16,
    "sample_time": 21,
    "clock_resolution_ns": 23,
    "compressed": 27,
    "clock_data": 29,
    "pmu_caps": 31,
}


@dataclass
class Attr:
    """One event; `name` goes to EVENT_DESC, None leaves it out there."""

    name: str | None = "cpu-clock"
    type: int = 1
    config: int = 0
    sample_period: int = 1_000_000
    frequency: bool = False
    sample_type: int = DEFAULT_SAMPLE_TYPE
    read_format: int = 0
    sample_id_all: bool = True
    ids: Sequence[int] = (1,)
    branch_sample_type: int = 0
    sample_regs_user: int = 0
    sample_stack_user: int = 0
    clockid: int | None = None
    flags: int = 0

    def pack(self) -> bytes:
        """The 128 bytes of struct perf_event_attr."""
        flags = self.flags | self.frequency << 10 | self.sample_id_all << 18
        flags |= (self.clockid is not None) << 25
        return struct.pack(
            "<IIQQQQQIIQQQQIiQIHHIIQ",
            self.type, ATTR_SIZE, self.config, self.sample_period, self.sample_type,
            self.read_format, flags, 0, 0, 0, 0, self.branch_sample_type, self.sample_regs_user,
            self.sample_stack_user, self.clockid or 0, 0, 0, 0, 0, 0, 0, 0,
        )  # fmt: skip


def record(kind: int, misc: int, body: bytes) -> bytes:
    """A record with its header; the body must make it a multiple of 8 where the kernel's is."""
    return HEADER.pack(kind, misc, HEADER.size + len(body)) + body


def padded(text: str | bytes, multiple: int = 8) -> bytes:
    """Text with at least one NUL, padded with NULs."""
    raw = (text if isinstance(text, bytes) else text.encode(errors="surrogateescape")) + b"\0"
    return raw + bytes(-len(raw) % multiple)


def text_field(text: str) -> bytes:
    """A string of a feature section: u32 length, then the text padded to 64."""
    raw = padded(text, 64)
    return struct.pack("<I", len(raw)) + raw


@dataclass
class PerfData:
    """A recording in the making. `features` maps names of FEATURES to values (see `feature`)."""

    attrs: Sequence[Attr] = field(default_factory=lambda: [Attr()])
    features: dict[str, object] = field(default_factory=dict)
    records: list[bytes] = field(default_factory=list)

    def append(self, packed: bytes) -> bytes:
        """Append any bytes as a record."""
        self.records.append(packed)
        return packed

    def _id(self, event: int, given: int | None) -> int:
        if given is not None:
            return given
        ids = self.attrs[event].ids
        return ids[0] if ids else 0

    def trailer(
        self, event: int, *, pid: int, tid: int, time: int, cpu: int, event_id: int | None = None
    ) -> bytes:
        """The sample_id at the end of a record that is no sample."""
        attr = self.attrs[event]
        if not attr.sample_id_all:
            return b""
        kind, number = attr.sample_type, self._id(event, event_id)
        out = b""
        if kind & TID:
            out += struct.pack("<II", pid, tid)
        if kind & TIME:
            out += struct.pack("<Q", time)
        if kind & ID:
            out += struct.pack("<Q", number)
        if kind & STREAM_ID:
            out += struct.pack("<Q", number)
        if kind & CPU:
            out += struct.pack("<II", cpu, 0)
        if kind & IDENTIFIER:
            out += struct.pack("<Q", number)
        return out

    def sideband(
        self,
        kind: int,
        body: bytes,
        *,
        misc: int = 0,
        event: int = 0,
        pid: int = 0,
        tid: int | None = None,
        time: int = 0,
        cpu: int = 0,
        event_id: int | None = None,
    ) -> bytes:
        """Append a record of the kernel's that is no sample, with its trailer."""
        tail = self.trailer(
            event, pid=pid, tid=pid if tid is None else tid, time=time, cpu=cpu, event_id=event_id
        )
        return self.append(record(kind, misc, body + tail))

    def sample(
        self,
        *,
        event: int = 0,
        ip: int = 0,
        pid: int = 1,
        tid: int | None = None,
        time: int = 0,
        cpu: int = 0,
        period: int = 1,
        chain: Iterable[int] = (),
        raw: bytes = b"",
        misc: int = MISC_USER,
        event_id: int | None = None,
        addr: int = 0,
        weight: int = 0,
        data_src: int = 0,
        phys_addr: int = 0,
        cgroup: int = 0,
        regs_user: Sequence[int] | None = None,
        stack_user: bytes = b"",
        read: bytes = b"",
    ) -> bytes:
        """Append a SAMPLE with the fields that the event's sample_type asks for.

        `regs_user` None writes abi 0. `raw` is padded as the kernel does. `read` is the packed
        READ field, needed when the sample_type has it. BRANCH_STACK is written empty.
        """
        attr = self.attrs[event]
        kind, number = attr.sample_type, self._id(event, event_id)
        ips = list(chain)
        words: list[tuple[int, bytes]] = [
            (IDENTIFIER, struct.pack("<Q", number)),
            (IP, struct.pack("<Q", ip)),
            (TID, struct.pack("<II", pid, pid if tid is None else tid)),
            (TIME, struct.pack("<Q", time)),
            (ADDR, struct.pack("<Q", addr)),
            (ID, struct.pack("<Q", number)),
            (STREAM_ID, struct.pack("<Q", number)),
            (CPU, struct.pack("<II", cpu, 0)),
            (PERIOD, struct.pack("<Q", period)),
            (READ, read),
            (CALLCHAIN, struct.pack(f"<Q{len(ips)}Q", len(ips), *ips)),
            (RAW, _raw(raw)),
            (BRANCH_STACK, bytes(8)),
            (REGS_USER, _registers(regs_user)),
            (STACK_USER, _stack(stack_user)),
            (WEIGHT | WEIGHT_STRUCT, struct.pack("<Q", weight)),
            (DATA_SRC, struct.pack("<Q", data_src)),
            (TRANSACTION, bytes(8)),
            (REGS_INTR, bytes(8)),
            (PHYS_ADDR, struct.pack("<Q", phys_addr)),
            (CGROUP, struct.pack("<Q", cgroup)),
            (DATA_PAGE_SIZE, struct.pack("<Q", 4096)),
            (CODE_PAGE_SIZE, struct.pack("<Q", 4096)),
            (AUX, bytes(8)),
        ]
        return self.append(record(9, misc, b"".join(data for bit, data in words if kind & bit)))

    def mmap2(
        self,
        *,
        pid: int,
        start: int,
        length: int,
        path: str | bytes,
        tid: int | None = None,
        offset: int = 0,
        build_id: bytes | None = None,
        device: tuple[int, int] = (8, 1),
        inode: int = 0,
        generation: int = 0,
        protection: int = 5,
        flags: int = 2,
        misc: int = MISC_USER,
        **common: int,
    ) -> bytes:
        """Append an MMAP2, with a build-id instead of the inode when one is given."""
        if build_id is None:
            union = struct.pack("<IIQQ", *device, inode, generation)
        else:
            union = struct.pack("<BBH20s", len(build_id), 0, 0, build_id)
            misc |= MISC_MMAP_BUILD_ID
        body = struct.pack("<IIQQQ", pid, pid if tid is None else tid, start, length, offset)
        body += union + struct.pack("<II", protection, flags) + padded(path)
        return self.sideband(10, body, misc=misc, pid=pid, tid=tid, **common)

    def mmap(
        self,
        *,
        pid: int,
        start: int,
        length: int,
        path: str | bytes,
        tid: int | None = None,
        offset: int = 0,
        misc: int = MISC_USER,
        **common: int,
    ) -> bytes:
        """Append an MMAP, e.g. pid 2**32 - 1 with MISC_KERNEL for the kernel's text."""
        body = struct.pack("<IIQQQ", pid, pid if tid is None else tid, start, length, offset)
        return self.sideband(1, body + padded(path), misc=misc, pid=pid, tid=tid, **common)

    def comm(
        self,
        *,
        pid: int,
        comm: str | bytes,
        tid: int | None = None,
        execs: bool = False,
        **common: int,
    ) -> bytes:
        """Append a COMM; `execs` marks one that an exec caused."""
        body = struct.pack("<II", pid, pid if tid is None else tid) + padded(comm)
        misc = MISC_COMM_EXEC if execs else 0
        return self.sideband(3, body, misc=misc, pid=pid, tid=tid, **common)

    def fork(
        self,
        *,
        pid: int,
        parent: int,
        tid: int | None = None,
        parent_tid: int | None = None,
        time: int = 0,
        **common: int,
    ) -> bytes:
        """Append a FORK of `parent` into `pid` (a new thread when they are equal)."""
        body = _task(pid, parent, tid, parent_tid, time)
        return self.sideband(7, body, pid=parent, tid=parent_tid, time=time, **common)

    def exit(
        self,
        *,
        pid: int,
        parent: int,
        tid: int | None = None,
        parent_tid: int | None = None,
        time: int = 0,
        **common: int,
    ) -> bytes:
        """Append an EXIT of thread `tid` of `pid`."""
        body = _task(pid, parent, tid, parent_tid, time)
        return self.sideband(4, body, pid=pid, tid=tid, time=time, **common)

    def lost(self, count: int, *, event: int = 0, **common: int) -> bytes:
        """Append a LOST of `count` records."""
        body = struct.pack("<QQ", self._id(event, None), count)
        return self.sideband(2, body, event=event, **common)

    def lost_samples(self, count: int, **common: int) -> bytes:
        """Append a LOST_SAMPLES of `count`."""
        return self.sideband(13, struct.pack("<Q", count), **common)

    def throttle(self, *, time: int, event: int = 0, on: bool = True, **common: int) -> bytes:
        """Append a THROTTLE, or UNTHROTTLE when `on` is false."""
        number = self._id(event, None)
        body = struct.pack("<QQQ", time, number, number)
        return self.sideband(5 if on else 6, body, event=event, time=time, **common)

    def ksymbol(
        self,
        *,
        address: int,
        length: int,
        name: str,
        kind: int = 1,
        unregister: bool = False,
        **common: int,
    ) -> bytes:
        """Append a KSYMBOL (kind 1 BPF, 2 out of line)."""
        body = struct.pack("<QIHH", address, length, kind, int(unregister)) + padded(name)
        return self.sideband(17, body, **common)

    def cgroup(self, *, id_: int, path: str, **common: int) -> bytes:
        """Append a CGROUP."""
        return self.sideband(19, struct.pack("<Q", id_) + padded(path), **common)

    def finished_round(self) -> bytes:
        """Append perf's mark that all records of a pass over the rings are written."""
        return self.append(record(68, 0, b""))

    def feature(self, name: str, value: object) -> bytes:  # noqa: C901, PLR0911 - one return a shape
        """Pack one feature section.

        Strings for the textual ones; nr_cpus (available, online); command_line [words];
        build_ids [(pid, misc, bytes, path)]; pmus {type: name}; sample_time (first, last);
        clock_data (clock id, wall ns, clock ns); pmu_caps {pmu: {name: value}}; event_desc is
        made from the attrs.
        """
        match name, value:
            case "nr_cpus", (available, online):
                return struct.pack("<II", available, online)
            case "command_line", [*words]:
                return struct.pack("<I", len(words)) + b"".join(map(text_field, words))
            case "build_ids", [*items]:
                return b"".join(build_id_record(*item) for item in items)
            case "pmus", dict() as pmus:
                named = b"".join(struct.pack("<I", k) + text_field(v) for k, v in pmus.items())
                return struct.pack("<I", len(pmus)) + named
            case "pmu_caps", dict() as pmus:
                return struct.pack("<I", len(pmus)) + b"".join(
                    struct.pack("<I", len(caps))
                    + b"".join(text_field(k) + text_field(v) for k, v in caps.items())
                    + text_field(pmu)
                    for pmu, caps in pmus.items()
                )
            case "sample_time", (first, last):
                return struct.pack("<QQ", first, last)
            case "clock_data", (clock, wall, ticks):
                return struct.pack("<IIQQ", 1, clock, wall, ticks)
            case _, bytes():
                return value
            case _, str():
                return text_field(value)
            case _, int():
                return struct.pack("<Q", value)
        raise ValueError(f"feature {name}: {value!r}")

    def _event_desc(self) -> bytes:
        named = [attr for attr in self.attrs if attr.name is not None]
        out = struct.pack("<II", len(named), ATTR_SIZE)
        for attr in named:
            out += attr.pack() + struct.pack("<I", len(attr.ids)) + text_field(attr.name or "")
            out += struct.pack(f"<{len(attr.ids)}Q", *attr.ids)
        return out

    def _sections(self) -> list[tuple[int, bytes]]:
        sections = [(FEATURES[k], self.feature(k, v)) for k, v in self.features.items()]
        if any(attr.name is not None for attr in self.attrs):
            sections.append((FEATURES["event_desc"], self._event_desc()))
        return sorted(sections)

    def to_bytes(self, *, interrupted: bool = False) -> bytes:
        """The v2 file; `interrupted` leaves it as a killed perf record does (data size 0)."""
        ids = b""
        attrs = b""
        for attr in self.attrs:
            packed = struct.pack(f"<{len(attr.ids)}Q", *attr.ids)
            attrs += attr.pack() + struct.pack("<QQ", 104 + len(ids), len(packed))
            ids += packed
        attrs_at = 104 + len(ids)
        data_at = attrs_at + len(attrs)
        body = b"".join(self.records)
        sections = self._sections()
        bits = sum(1 << number for number, _ in sections)
        head = b"PERFILE2" + struct.pack(
            "<QQQQQQQQ",
            104,
            ATTR_SIZE + 16,
            attrs_at,
            len(attrs),
            data_at,
            0 if interrupted else len(body),
            0,
            0,
        )
        head += struct.pack("<4Q", bits, 0, 0, 0)
        if interrupted:
            return head + ids + attrs + body
        at = data_at + len(body) + 16 * len(sections)
        table = b""
        for _, section in sections:
            table += struct.pack("<QQ", at, len(section))
            at += len(section)
        return head + ids + attrs + body + table + b"".join(section for _, section in sections)

    def to_pipe_bytes(self) -> bytes:
        """The pipe layout, as `perf record -o -` writes it."""
        out = b"PERFILE2" + struct.pack("<Q", 16)
        for attr in self.attrs:
            out += record(64, 0, attr.pack() + struct.pack(f"<{len(attr.ids)}Q", *attr.ids))
        for number, section in self._sections():
            out += record(80, 0, struct.pack("<Q", number) + section)
        return out + b"".join(self.records)

    def write(self, path: Path, *, pipe: bool = False) -> Path:
        """Write the recording to `path` and return it."""
        path.write_bytes(self.to_pipe_bytes() if pipe else self.to_bytes())
        return path


def build_id_record(pid: int, misc: int, build_id: bytes, path: str) -> bytes:
    """An entry of the build-id table, with the size given as newer perf does."""
    body = struct.pack("<i20sBBH", pid, build_id, len(build_id), 0, 0) + padded(path, 64)
    return record(67, misc | 1 << 15, body)


def _task(pid: int, parent: int, tid: int | None, parent_tid: int | None, time: int) -> bytes:
    tid = pid if tid is None else tid
    parent_tid = parent if parent_tid is None else parent_tid
    return struct.pack("<IIIIQ", pid, parent, tid, parent_tid, time)


def _raw(data: bytes) -> bytes:
    size = len(data) + (-(len(data) + 4)) % 8
    return struct.pack("<I", size) + data.ljust(size, b"\0")


def _registers(values: Sequence[int] | None) -> bytes:
    if values is None:
        return bytes(8)
    return struct.pack(f"<Q{len(values)}Q", 2, *values)


def _stack(data: bytes) -> bytes:
    if not data:
        return bytes(8)
    size = len(data) + -len(data) % 8
    return struct.pack("<Q", size) + data.ljust(size, b"\0") + struct.pack("<Q", len(data))

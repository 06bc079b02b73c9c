"""The IBS decoder against what perf and the kernel said of the same registers."""

from __future__ import annotations

import csv
import json
import random
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ibs_records import (
    DC_MISS,
    EARLY_ZEN3,
    L2_MISS,
    LINEAR,
    LOAD,
    NEW_KERNEL,
    OLD_KERNEL,
    PHYSICAL,
    STORE,
    ZEN2,
    ZEN3_DESKTOP,
    machine,
    payload,
)
from opd_native import ibs
from opd_native.ibs import Flavour, Flaw, Machine, Record
from perfdata_writer import RAW, Attr, PerfData

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).parent.parent / "data" / "ibs"
PAGES = {"4KB": 1, "16KB": 2, "2MB": 3, "1GB": 4, "RESERVED": 0}


# ---- what perf report -D printed ---------------------------------------------

Lines = dict[str, dict[str, int]]


def parse(lines: list[str]) -> Lines:
    """Give the numbers of printed lines: register -> field -> value, "" the register itself."""
    out: Lines = {}
    for line in lines:
        register, _, rest = line.partition(":\t")
        word, _, fields = rest.partition(" ")
        values = out[register] = {"": int(word, 16)}
        fields = re.sub(r"(DataSrc \d+)=.*|=\S+| bytes", r"\1", fields)
        for name, value in re.findall(r"(\w+) +(\w+)", fields):
            values[name] = PAGES[value] if name == "L1TlbPgSz" else int(value)
    return out


def pick(fields: dict[str, int], **names: str) -> dict[str, int]:
    """Give fields by the names that perf prints."""
    return {printed: fields[field] for printed, field in names.items()}


def printed_data3(f: dict[str, int], *, erratum: bool, newer: bool) -> dict[str, int]:
    """Say what perf prints of IbsOpData3."""
    data3 = pick(f, LdOp="load", StOp="store", DcL1TlbMiss="l1_tlb_miss") | {"": f["data3"]}
    data3 |= pick(f, DcL2TlbMiss="l2_tlb_miss", DcL1TlbHit2M="l1_tlb_hit_2m")
    data3 |= pick(f, DcL1TlbHit1G="l1_tlb_hit_1g", DcL2TlbHit2M="l2_tlb_hit_2m", DcMiss="dc_miss")
    data3 |= pick(f, DcMisAcc="misaligned", DcWcMemAcc="wc_access", DcUcMemAcc="uc_access")
    data3 |= pick(f, DcLockedOp="locked", DcMissNoMabAlloc="no_mab_alloc", SwPf="software_prefetch")
    data3 |= pick(f, DcLinAddrValid="linear_valid", DcPhyAddrValid="physical_valid")
    data3 |= pick(f, DcL2TlbHit1G="l2_tlb_hit_1g", DcMissLat="dc_miss_latency")
    if not newer or not f["caps"] >> 11 & 1 or f["physical_valid"]:
        data3 |= pick(f, TlbRefillLat="tlb_refill_latency")
    if not erratum:
        data3 |= pick(f, L2Miss="l2_miss", OpDcMissOpenMemReqs="open_mem_reqs")
    if f["width"]:
        data3 |= pick(f, OpMemWidth="width")
    return data3


def printed_op(record: Record, where: Machine, *, newer: bool) -> Lines:
    """Say what perf prints of an op; ``newer`` as of 2026."""
    f = dict(record.fields)
    zen4 = bool(f["caps"] >> 11 & 1)
    erratum = (where.family, where.model >> 4) == (0x19, 0) and (
        f["no_mab_alloc"] or f["software_prefetch"]
    )
    ctl = pick(f, MaxCnt="max_count", En="enabled", Val="valid", CntCtl="count_ops")
    ctl |= pick(f, CurCnt="current_count") | {"": f["ctl"]}
    if zen4:
        ctl |= pick(f, L3MissOnly="l3_miss_only")
    data = pick(f, CompToRetCtr="completion_to_retire", TagToRetCtr="tag_to_retire")
    data |= pick(f, BrnRet="branch_retired", RipInvalid="rip_invalid", BrnFuse="branch_fused")
    data |= pick(f, Microcode="microcode") | {"": f["data"]}
    if f["branch_retired"]:
        data |= pick(f, OpReturn="op_return", OpBrnTaken="branch_taken")
        data |= pick(f, OpBrnMisp="branch_mispredicted")
    data2 = pick(f, RmtNode="remote_node") | {"": f["data2"]}
    source = f["data_source"]
    if 0 < source <= 12:
        data2["DataSrc"] = source
    if source in ((1, 2, 5) if zen4 else (2,)):
        data2["CacheHitSt"] = f["cache_hit_owned"]
    data3 = printed_data3(f, erratum=bool(erratum), newer=newer)
    lines = {"ibs_op_ctl": ctl, "ibs_op_data": data, "ibs_op_data3": data3}
    if not f["rip_invalid"]:
        lines["IbsOpRip"] = {"": f["rip"]}
    if not erratum:
        lines["ibs_op_data2"] = data2
    if f["linear_valid"]:
        lines["IbsDCLinAd"] = {"": f["linear"]}
    if f["physical_valid"]:
        lines["IbsDCPhysAd"] = {"": f["physical"]}
    if f["branch_retired"] and f["target"]:
        lines["IbsBrTarget"] = {"": f["target"]}
    return lines


def printed_fetch(record: Record, where: Machine) -> Lines:
    """Say what perf prints of a fetch."""
    f = dict(record.fields)
    ctl = pick(f, MaxCnt="max_count", Cnt="count", Lat="latency", En="enabled", Val="valid")
    ctl |= pick(f, Comp="complete", PhyAddrValid="physical_valid", RandEn="random")
    ctl |= pick(f, L1TlbMiss="l1_tlb_miss", L2TlbMiss="l2_tlb_miss") | {"": f["ctl"]}
    if (where.family, where.model >> 4) != (0x19, 0):
        ctl |= pick(f, IcMiss="ic_miss")
    if f["physical_valid"]:
        ctl |= pick(f, L1TlbPgSz="page")
    if f["complete"]:
        ctl |= pick(f, L2Miss="l2_miss")
    if f["caps"] >> 11 & 1:
        ctl |= pick(f, L3MissOnly="l3_miss_only", FetchOcMiss="op_cache_miss")
        ctl |= pick(f, FetchL3Miss="l3_miss")
    lines = {"ibs_fetch_ctl": ctl, "IbsFetchLinAd": {"": f["linear"]}}
    if f["physical_valid"]:
        lines["IbsFetchPhysAd"] = {"": f["physical"]}
    lines["ic_ibs_ext_ctl"] = {"": f["extended"], "IbsItlbRefillLat": f["itlb_refill_latency"]}
    return lines


def oracles() -> Iterator[dict[str, object]]:
    """Give the cases that perf printed."""
    for path in sorted(DATA.glob("oracle_*.jsonl")):
        for line in path.read_text().splitlines():
            yield json.loads(line)


def test_every_record_is_decoded_as_perf_prints_it() -> None:
    """All fields of all registers, and which of them are shown."""
    seen = 0
    for case in oracles():
        assert isinstance(case["cpu"], dict)
        where = machine(case["cpu"]["family"], case["cpu"]["model"])
        registers = [int(text, 16) for text in case["regs"]]  # type: ignore[attr-defined]
        raw = payload(int(str(case["caps"]), 16), *registers)
        flavour = Flavour.OP if case["pmu"] == "ibs_op" else Flavour.FETCH
        record = ibs.decode(flavour, raw, where)
        assert not record.flaws, case
        ours = (
            printed_op(record, where, newer=False)
            if flavour is Flavour.OP
            else printed_fetch(record, where)
        )
        assert ours == parse(case["perf_D"]), case  # type: ignore[arg-type]
        seen += 1
    assert seen == 270


def public_samples() -> Iterator[tuple[str, list[str]]]:
    """Give the published dumps: file and lines of one sample."""
    for path in sorted(DATA.glob("public_0[123]*.txt")):
        lines: list[str] = []
        for line in [*path.read_text().splitlines(), ""]:
            if re.match(r"\w+:\t[0-9a-f]{16}", line):
                lines.append(line)
            elif lines:
                yield path.name, lines
                lines = []


def test_records_of_real_machines_are_decoded_as_they_were_published() -> None:
    """Registers of real machines, as published with their fields."""
    slots = {
        "ibs_op_ctl": 0,
        "IbsOpRip": 1,
        "ibs_op_data": 2,
        "ibs_op_data2": 3,
        "ibs_op_data3": 4,
        "IbsDCLinAd": 5,
        "IbsDCPhysAd": 6,
        "ibs_fetch_ctl": 0,
        "IbsFetchLinAd": 1,
        "IbsFetchPhysAd": 2,
        "ic_ibs_ext_ctl": 3,
    }
    seen = 0
    for name, lines in public_samples():
        expected = parse(lines)
        op = "ibs_op_ctl" in expected
        registers = [0] * (8 if op else 4)
        for register, values in expected.items():
            registers[slots[register]] = values[""]
        zen4 = "02_" not in name
        where = machine(25, 17) if zen4 else machine(23, 49)
        raw = payload(0xBFF if zen4 else 0x3FF, *registers)
        record = ibs.decode(Flavour.OP if op else Flavour.FETCH, raw, where)
        ours = printed_op(record, where, newer=True) if op else printed_fetch(record, where)
        for register, values in expected.items():
            assert ours[register] == values, (name, register)
        seen += 1
    assert seen == 5


# ---- data sources and periods --------------------------------------------------


def test_data_sources_are_the_kernels() -> None:
    """Every row of the reference table."""
    seen = 0
    with (DATA / "data_src_reference.tsv").open() as file:
        for name, caps, family, model, data2, data3, expected, _ in csv.reader(
            file, delimiter="\t"
        ):
            if name.startswith("#"):
                continue
            registers = (1 << 18, 0, 0, int(data2, 16), int(data3, 16), 0, 0, 0)
            where = machine(int(family, 16), int(model, 16))
            record = ibs.decode(Flavour.OP, payload(int(caps, 16), *registers), where)
            assert record.data_src == int(expected, 16), name
            seen += 1
    assert seen == 20


@pytest.mark.parametrize(
    ("cpu", "caps", "data2", "data3", "expected"),
    [
        # Words that perf showed of real machines.
        ((0x19, 0x61), 0xBFF, 0, LOAD | LINEAR, 0x229080142),
        ((0x19, 0x61), 0xBFF, 0, STORE | LINEAR, 0x229080144),
        ((0x19, 0x61), 0xBFF, 0x21, LOAD | DC_MISS | L2_MISS | LINEAR, 0x629080842),
        ((0x19, 0x61), 0xBFF, 0x01, LOAD | DC_MISS | L2_MISS | LINEAR, 0x629800842),
        ((0x19, 0x61), 0xBFF, 0x03, LOAD | DC_MISS | L2_MISS | LINEAR, 0x1A29081042),
        ((0x19, 0x61), 0xBFF, 0x03, LOAD | DC_MISS | L2_MISS | LINEAR | 4, 0x1A49081042),
        ((0x19, 0x61), 0xBFF, 0x03, STORE | DC_MISS | L2_MISS | LINEAR, 0x1E29080024),
        ((0x19, 0x61), 0xBFF, 0x03, 0, 0x1E05080021),
        # A cache's state is not told on these.
        (EARLY_ZEN3, 0x3FF, 0x02, LOAD | DC_MISS | L2_MISS | LINEAR, 0x81629088842),
        (ZEN3_DESKTOP, 0x3FF, 0x02, LOAD | DC_MISS | L2_MISS | LINEAR, 0x81629088842),
        (ZEN2, 0x3FF, 0x02, LOAD | DC_MISS | L2_MISS | LINEAR, 0x81629808842),
        # 1293: neither the source nor L2Miss counts; no MAB is the line buffer.
        (EARLY_ZEN3, 0x3FF, 0x13, LOAD | DC_MISS | LINEAR | 1 << 16, 0x1829080242),
        (EARLY_ZEN3, 0x3FF, 0x13, LOAD | DC_MISS | LINEAR | 1 << 21, 0x1E29080022),
        (ZEN2, 0x3FF, 0x13, LOAD | DC_MISS | LINEAR | 1 << 16, 0x429080442),
        # Legacy 4, remote memory, the line buffer, uncached, locked.
        (ZEN2, 0x3FF, 0x24, LOAD | DC_MISS | L2_MISS | LINEAR, 0x103629090042),
        (ZEN2, 0x3FF, 0x13, LOAD | DC_MISS | L2_MISS | LINEAR, 0x103A29082042),
        (ZEN2, 0x3FF, 0x00, LOAD | DC_MISS | L2_MISS | LINEAR | 1 << 16, 0x1829080242),
        (ZEN2, 0x3FF, 0x00, LOAD | LINEAR | 1 << 14, 0x10290C0042),
        (ZEN2, 0x3FF, 0x00, LOAD | LINEAR | 1 << 15, 0x22A080142),
        # With page sizes in the TLB bits (Zen5) it is told only with a physical address.
        ((0x1A, 2), 0x81BFF, 0, LOAD | LINEAR, 0x205080142),
        ((0x1A, 2), 0x81BFF, 0, LOAD | LINEAR | PHYSICAL, 0x229080142),
    ],
)
def test_data_source(
    cpu: tuple[int, int], caps: int, data2: int, data3: int, expected: int
) -> None:
    """Words of real machines, errata and every way through the levels."""
    raw = payload(caps, 1 << 18, 0, 0, data2, data3, 0, 0, 0)
    found = ibs.decode(Flavour.OP, raw, machine(*cpu)).data_src
    assert found is not None
    assert f"{found:#x}" == f"{expected:#x}"


def test_periods_are_accepted_as_by_the_kernel() -> None:
    """The rows of the kernel's own test."""
    seen = 0
    for line in (DATA / "period_cases_from_kernel_test.tsv").read_text().splitlines():
        if not line.startswith("ibs_"):
            continue
        pmu, what, expected = line.split("\t")
        flavour = Flavour.OP if pmu == "ibs_op" else Flavour.FETCH
        sampled = what.startswith("period=")
        for text in what.removeprefix("period=").split("|"):
            value = int(text, 0)
            found = ibs.period(flavour, 0, value) if sampled else ibs.period(flavour, value, 0)
            assert found == (None if expected == "EINVAL" else int(expected, 0)), line
            seen += 1
    assert seen == 39


def test_periods_need_a_config_that_the_kernel_knows() -> None:
    """Other bits of config, and the limits."""
    assert ibs.period(Flavour.FETCH, 1 << 57, 100000) == 100000  # rand_en
    assert ibs.period(Flavour.OP, 1 << 19 | 1 << 16, 100000) == 100000  # cnt_ctl, l3missonly
    assert ibs.period(Flavour.OP, 1 << 57, 100000) is None
    assert ibs.period(Flavour.OP, 0x10, 100000) is None  # two periods
    assert ibs.period_limits(Flavour.FETCH, 0x3FF) == (0x10, 0xFFFF0)
    assert ibs.period_limits(Flavour.OP, 0x3FF) == (0x90, 0x7FFFFF0)
    assert ibs.period_limits(Flavour.OP, 0x3F) == (0x90, 0xFFFF0)


# ---- records that are not as they should be -------------------------------------

OP_REGISTERS = (
    1 << 18 | 0x6187,
    0x401000,
    1 << 37 | 7 << 16,
    3,
    LOAD | DC_MISS | L2_MISS | LINEAR,
    8,
    9,
)


@pytest.mark.parametrize("caps", [0x3FF, 0x3DF, 0x7FF, 0x7DF, 0xBFF, 0x81BFF])
def test_slots_are_those_that_caps_promise(caps: int) -> None:
    """What follows the promised registers is counted and not read."""
    extra = [name for bit, name in ((5, "target"), (10, "data4")) if caps >> bit & 1]
    registers = [*OP_REGISTERS, *(0xA000 + i for i, _ in enumerate(extra))]
    whole = payload(caps, *registers)
    record = ibs.decode(Flavour.OP, whole, machine(0x17, 1))
    assert record.flaws == 0
    for i, name in enumerate(extra):
        assert record.fields[name] == 0xA000 + i
    for name in {"target", "data4"} - set(extra):
        assert record.fields[name] == 0
    longer = ibs.decode(Flavour.OP, whole + bytes([0xFF] * 8), machine(0x17, 1))
    assert longer.flaws == Flaw.LONG
    assert longer.flaws.incomplete
    assert {**longer.fields, "flaws": 0} == record.fields
    assert longer.events == record.events


@pytest.mark.parametrize("size", range(4 + 8 * 8 + 1))
def test_a_short_op_is_decoded_as_far_as_it_goes(size: int) -> None:
    """At every length."""
    raw = payload(0x3FF, *OP_REGISTERS, 0xB000)[:size]
    record = ibs.decode(Flavour.OP, raw, machine(0x17, 1))
    there = max(size - 4, 0) // 8
    names = ("ctl", "rip", "data", "data2", "data3", "linear", "physical", "target")
    values = (*OP_REGISTERS, 0xB000)
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        assert record.fields[name] == (value if i < there else 0)
        assert bool(record.fields["has"] >> i & 1) == (i < there)
    assert bool(record.flaws & Flaw.SHORT) == (size < 68)
    assert bool(record.flaws & Flaw.NOT_VALID) == (there < 1)
    assert ("IBS_OP_ALL" in record.events) == (there >= 1)
    assert ("IBS_OP_BRANCH_RETIRED" in record.events) == (there >= 3)
    assert ("IBS_OP_DATA_CACHE_MISS" in record.events) == (there >= 5)
    assert ("IBS_OP_NB_LOCAL_DRAM" in record.events) == (there >= 5)


def test_caps_that_nobody_knows_are_told() -> None:
    """The record is decoded all the same."""
    for caps in (0x3FF | 1 << 17, 0x3FF | 1 << 20, 1 << 31 | 0x3FF, 0, 0x3FE):
        registers = OP_REGISTERS if caps in (0, 0x3FE) else (*OP_REGISTERS, 0)
        record = ibs.decode(Flavour.OP, payload(caps, *registers), machine(0x17, 1))
        assert record.flaws == Flaw.UNKNOWN_CAPS, hex(caps)
        assert "IBS_OP_DATA_CACHE_MISS" in record.events


def test_a_record_without_val_is_no_sample() -> None:
    """It is incomplete, and no event comes of it."""
    for flavour in Flavour:
        record = ibs.decode(flavour, payload(0x3FF, *[0] * (8 if flavour else 4)), machine(23, 1))
        assert record.flaws == Flaw.NOT_VALID
        assert not record.events


@pytest.mark.parametrize(
    ("caps", "release", "slots", "extended", "flaws"),
    [
        (0x3FF, NEW_KERNEL, 4, True, 0),
        (0x3FF, "5.10.0", 4, True, 0),
        (0x3FF, OLD_KERNEL, 4, False, 0),  # IbsBrTarget or IcIbsExtdCtl: nobody knows
        (0x3FF, "", 4, True, 0),
        (0x7FF, OLD_KERNEL, 5, False, 0),
        (0x7FF, NEW_KERNEL, 5, True, Flaw.LONG),
        (0x7FF, OLD_KERNEL, 4, True, 0),  # the layout of 5.10, backported
        (0x1FF, OLD_KERNEL, 4, False, 0),
        (0x1FF, NEW_KERNEL, 4, False, Flaw.LONG),
        (0x1FF, NEW_KERNEL, 3, False, 0),
        (0x3FF, NEW_KERNEL, 3, False, Flaw.SHORT),
    ],
)
def test_a_fetchs_fourth_register_is_read_where_it_is_known(
    caps: int, release: str, slots: int, extended: int, flaws: int
) -> None:
    """Kernels before 5.10 had another there."""
    registers = [1 << 49 | 1 << 50, 0x401000, 0x1000, 0x77, 0x88][:slots]
    where = machine(0x17, 1, release) if release else Machine(0x17, 1, 0)
    record = ibs.decode(Flavour.FETCH, payload(caps, *registers), where)
    assert record.flaws == flaws
    assert record.fields["itlb_refill_latency"] == (0x77 if extended else 0)
    assert ("IBS_FETCH_ITLB_REFILL_LATENCY" in record.events) == bool(extended)


def test_machines_are_told_by_their_texts() -> None:
    """CPUID and OSRELEASE as perf.data has them."""
    assert Machine.of("AuthenticAMD,25,17,1", "6.8.0-45-generic") == (25, 17, 6 << 16 | 8)
    assert Machine.of("AuthenticAMD,25,97", "5.15.153.1") == (25, 97, 5 << 16 | 15)
    assert Machine.of("AuthenticAMD,25,17,1", "unknown") == (25, 17, 0)
    assert Machine.of("GenuineIntel,6,85,7", "6.8.0") is None
    for text in ("AuthenticAMD", "AuthenticAMD,", "AuthenticAMD,25", "AuthenticAMD,a,b", ""):
        assert Machine.of(text, "6.8.0") is None


REGISTER_LINE = re.compile(r"(?:ibs_\w+|ic_ibs_ext_ctl|Ibs\w+):\t[0-9a-f]{16}")


def dumped(perf: str, path: Path) -> list[list[str]]:
    """Give what perf report -D prints of the registers of each sample."""
    done = subprocess.run(
        [perf, "report", "-D", "-i", path], capture_output=True, text=True, check=True
    )
    samples: list[list[str]] = [[]]
    for line in done.stdout.splitlines():
        if "PERF_RECORD_SAMPLE" in line:  # behind what is its own
            samples.append([])
        elif REGISTER_LINE.match(line):
            samples[-1].append(line)
    return samples[:-1]


@pytest.mark.parametrize(
    ("family", "model", "caps"),
    [
        (0x17, 1, 0x3FF), (0x17, 0x31, 0x3FF), (0x17, 0x71, 0x3FF), (0x19, 0, 0x3FF),
        (0x19, 0xF, 0x3FF), (0x19, 0x21, 0x3FF), (0x19, 0x44, 0x3FF), (0x19, 0x50, 0x3FF),
        (0x19, 0x11, 0xBFF), (0x19, 0x61, 0xBFF), (0x1A, 2, 0xBFF), (0x1A, 0x44, 0xBFF),
    ],
)  # fmt: skip
def test_the_perf_that_is_here_prints_the_same(
    family: int, model: int, caps: int, perf: str, tmp_path: Path
) -> None:
    """Random registers of every kind of processor that perf 6.1 knows, dumped and decoded."""
    words, where = random.Random(family << 8 | model), machine(family, model)
    attrs = [Attr("ibs_fetch//", 10, ids=(1,)), Attr("ibs_op//", 11, ids=(2,))]
    for attr in attrs:
        attr.sample_type |= RAW
    zen4 = {"zen4_ibs_extensions": "1"} if caps >> 11 & 1 else {"none": "1"}
    features = {
        "os_release": NEW_KERNEL,
        "cpuid": f"AuthenticAMD,{family},{model},1",
        "pmus": {4: "cpu", 10: "ibs_fetch", 11: "ibs_op"},
        "pmu_caps": {"ibs_fetch": zen4, "ibs_op": zen4},
    }
    data = PerfData(attrs, dict(features))
    records = []
    for time in range(100):
        flavour = Flavour(time % 2)
        count = 4 if flavour is Flavour.FETCH else 8
        registers = [words.getrandbits(64) for _ in range(count)]
        registers[0] |= 3 << 48 if flavour is Flavour.FETCH else 3 << 17
        if flavour is Flavour.OP:  # reserved, or of older families
            registers[2] &= ~(3 << 32)
            registers[3] &= 0xFF
        raw = payload(caps, *registers)
        data.sample(event=int(flavour), ip=registers[1], time=1000 + time, raw=raw)
        records.append(ibs.decode(flavour, raw, where))
    dumps = dumped(perf, data.write(tmp_path / "perf.data"))
    assert len(dumps) == len(records)
    for record, lines in zip(records, dumps, strict=True):
        ours = (
            printed_op(record, where, newer=False)
            if record.flavour is Flavour.OP
            else printed_fetch(record, where)
        )
        assert ours == parse(lines)

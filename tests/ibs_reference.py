"""The derived events of IBS counted from registers bit by bit, as their table words them.

Written from the documents and not from the decoder: each event says its bits
in place. ``expected`` is what one record adds to each event; ``bit 0`` is the
lowest. Registers that a record does not have are None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ONE = None  # adds one sample, weighed by its period


class Cpu(NamedTuple):
    """Where a record comes from."""

    family: int
    model: int
    caps: int

    @property
    def zen(self) -> bool:
        """Family 17h or later."""
        return self.family >= 0x17

    @property
    def zen4(self) -> bool:
        """With Zen4's extensions of IBS."""
        return bool(self.caps >> 11 & 1)

    @property
    def early_zen3(self) -> bool:
        """Errata 1197, 1238, 1293, 1347."""
        return self.family == 0x19 and self.model <= 0xF

    @property
    def zen6(self) -> bool:
        """Status of a fetch only with a physical address."""
        if self.family == 0x1A:
            return self.model // 16 in (0x5, 0x8, 0x9, 0xA, 0xC)
        return self.family > 0x1A

    @property
    def cache_state(self) -> bool:
        """CacheHitSt means something."""
        return self.family != 0x19 or not (self.model <= 0xF or 0x20 <= self.model <= 0x5F)


def bits(word: int, high: int, low: int) -> int:
    """A field of a word."""
    return word >> low & (1 << (high - low + 1)) - 1


def _fetch(cpu: Cpu, ctl: int, extended: int | None) -> dict[str, object]:
    complete, ic_miss, physical, l1_miss, l2_miss = (ctl >> i & 1 for i in (50, 51, 52, 55, 56))
    told = physical or not cpu.zen6
    ic_told = told and not cpu.early_zen3
    page = bits(ctl, 54, 53)
    size = ("4K 16K 2M 1G" if cpu.early_zen3 else "4K 2M 1G -").split()[page]
    killed = not cpu.zen6 and not (
        complete or physical or l1_miss or l2_miss or (ic_miss and not cpu.early_zen3)
    )
    latency = bits(ctl, 47, 32)
    return {
        "IBS_FETCH_ALL": True,
        "IBS_FETCH_KILLED": killed,
        "IBS_FETCH_ATTEMPTED": not killed,
        "IBS_FETCH_COMPLETED": told and complete,
        "IBS_FETCH_ABORTED": told and not complete,
        "IBS_FETCH_ITLB_HITS": told and not l1_miss and physical,
        "IBS_FETCH_L1_ITLB_MISSES_L2_ITLB_HITS": told and l1_miss and not l2_miss,
        "IBS_FETCH_L1_ITLB_MISSES_L2_ITLB_MISSES": told and l1_miss and l2_miss,
        "IBS_FETCH_ICACHE_MISSES": ic_told and ic_miss,
        "IBS_FETCH_ICACHE_HITS": ic_told and complete and not ic_miss,
        "IBS_FETCH_4K_PAGE": physical and size == "4K",
        "IBS_FETCH_16K_PAGE": physical and size == "16K",
        "IBS_FETCH_2M_PAGE": physical and size == "2M",
        "IBS_FETCH_1G_PAGE": physical and size == "1G",
        "IBS_FETCH_LATENCY": (told and latency > 0, latency),
        "IBS_FETCH_L2_MISS": told and cpu.zen and complete and ctl >> 58 & 1,
        "IBS_FETCH_L3_MISS": told and cpu.zen4 and ctl >> 61 & 1,
        "IBS_FETCH_OP_CACHE_MISS": told and cpu.zen4 and ctl >> 60 & 1,
        "IBS_FETCH_ITLB_REFILL_LATENCY": (
            told and cpu.caps >> 9 & 1 and extended is not None and bits(extended, 15, 0) > 0,
            bits(extended or 0, 15, 0),
        ),
    }


def _retired(cpu: Cpu, data: int) -> dict[str, object]:
    branch, taken, missed, returns = (data >> i & 1 for i in (37, 35, 36, 34))
    tag, completion = bits(data, 31, 16), bits(data, 15, 0)
    return {
        "IBS_OP_TAG_TO_RETIRE": (tag > 0, tag),
        "IBS_OP_COMP_TO_RET": (completion > 0, completion),
        "IBS_OP_BRANCH_RETIRED": branch,
        "IBS_OP_MISPREDICTED_BRANCH": branch and missed,
        "IBS_OP_TAKEN_BRANCH": branch and taken,
        "IBS_OP_MISPREDICTED_BRANCH_TAKEN": branch and taken and missed,
        "IBS_OP_RETURNS": branch and returns,
        "IBS_OP_MISPREDICTED_RETURNS": branch and returns and missed,
        "IBS_OP_RESYNC": not cpu.zen and data >> 32 & 1,
        "IBS_OP_BRANCH_FUSED": cpu.caps >> 8 & 1 and data >> 39 & 1,
        "IBS_OP_MICROCODE": cpu.zen and data >> 40 & 1,
    }


def _page(cpu: Cpu, data3: int) -> str:
    """The size of the data's page by the TLB that hit."""
    if cpu.caps >> 19 & 1:
        return ["4K", "2M", "1G", "-"][bits(data3, 5, 4)] if data3 >> 18 & 1 else "-"
    if not data3 >> 2 & 1:
        if data3 >> 4 & 1:
            return "2M"
        return "1G" if data3 >> 5 & 1 else "4K"
    return ["4K", "2M", "1G", "-"][(data3 >> 19 & 1) << 1 | data3 >> 6 & 1]


def _access(cpu: Cpu, data2: int | None, data3: int) -> dict[str, object]:
    load, store, l1_miss, l2_tlb_miss, dc_miss = (data3 >> i & 1 for i in (0, 1, 2, 3, 7))
    linear, physical, l2_miss, prefetch = (data3 >> i & 1 for i in (17, 18, 20, 21))
    access = load or store
    lost = cpu.early_zen3 and (data3 >> 16 & 1 or prefetch)  # erratum 1293
    old = not cpu.zen and access
    l1_hit = access and linear and not l1_miss
    l2_hit = access and linear and l1_miss and not l2_tlb_miss
    latency, refill, open_requests = bits(data3, 47, 32), bits(data3, 63, 48), bits(data3, 31, 26)
    page = _page(cpu, data3)
    mab = data3 >> 16 & 1 and (cpu.family != 0x15 or dc_miss)
    return {
        "IBS_OP_ALL_LOAD_STORE": access,
        "IBS_OP_LOAD": load,
        "IBS_OP_STORE": store,
        "IBS_OP_L1_DTLB_HITS": l1_hit,
        "IBS_OP_L1_DTLB_MISS_L2_DTLB_HIT": l2_hit,
        "IBS_OP_L1_L2_DTLB_MISS": access and linear and l1_miss and l2_tlb_miss,
        "IBS_OP_DATA_CACHE_MISS": access and dc_miss,
        "IBS_OP_DATA_HITS": access and not dc_miss,
        "IBS_OP_MISALIGNED_DATA_ACC": access and data3 >> 8 & 1,
        "IBS_OP_BANK_CONF_LOAD": old and cpu.family != 0x14 and data3 >> 9 & 1,
        "IBS_OP_BANK_CONF_STORE": old and cpu.family != 0x14 and data3 >> 10 & 1,
        "IBS_OP_FORWARD": not cpu.zen and load and data3 >> 11 & 1,
        "IBS_OP_CANCELLED": not cpu.zen and cpu.family != 0x14 and load and data3 >> 12 & 1,
        "IBS_OP_DCUC_MEM_ACC": access and data3 >> 14 & 1,
        "IBS_OP_DCWC_MEM_ACC": access and data3 >> 13 & 1,
        "IBS_OP_LOCKED": access and data3 >> 15 & 1,
        "IBS_OP_MAB_HIT": access and mab,
        "IBS_OP_L1_DTLB_4K": l1_hit and page == "4K",
        "IBS_OP_L1_DTLB_2M": l1_hit and page == "2M",
        "IBS_OP_L1_DTLB_1G": l1_hit and page == "1G",
        "IBS_OP_L2_DTLB_4K": l2_hit and page == "4K",
        "IBS_OP_L2_DTLB_2M": l2_hit and page == "2M",
        "IBS_OP_L2_DTLB_1G": l2_hit and page == "1G",
        "IBS_OP_DC_LOAD_LAT": (load and dc_miss, latency),
        "IBS_OP_L2_MISS": cpu.zen and not lost and access and dc_miss and l2_miss,
        "IBS_OP_SOFTWARE_PREFETCH": cpu.zen and prefetch,
        "IBS_OP_TLB_REFILL_LATENCY": (
            cpu.zen and access and l1_miss and refill > 0 and (physical or not cpu.zen4),
            refill,
        ),
        "IBS_OP_LOAD_LATENCY": (cpu.zen and load and dc_miss and not prefetch, latency),
        "IBS_OP_OPEN_MEM_REQS": (cpu.zen and not lost and access and dc_miss, open_requests),
        "IBS_OP_STREAMING_STORE": cpu.caps >> 16 & 1
        and store
        and data2 is not None
        and data2 >> 8 & 1,
        **({} if data2 is None or lost else _source(cpu, data2, data3)),
    }


def _source(cpu: Cpu, data2: int, data3: int) -> dict[str, object]:
    source = bits(data2, 2, 0) | (bits(data2, 7, 6) << 3 if cpu.zen4 else 0)
    remote, owned = data2 >> 4 & 1, data2 >> 5 & 1
    if cpu.family in (0x12, 0x14):
        remote = owned = 0
    north = data3 & 1 and data3 >> 7 & 1 and source != 0
    latency = bits(data3, 47, 32)
    state = cpu.cache_state and north and source == 2
    far = north and cpu.zen and data3 >> 20 & 1  # past L2
    zen4, before = far and cpu.zen4, far and not cpu.zen4
    return {
        "IBS_OP_NB_LOCAL_ONLY": north and not remote,
        "IBS_OP_NB_REMOTE_ONLY": north and remote,
        "IBS_OP_NB_LOCAL_L3": north and not remote and source == 1,
        "IBS_OP_NB_LOCAL_CACHE": north and not remote and source == 2,
        "IBS_OP_NB_REMOTE_CACHE": north and remote and source == 2,
        "IBS_OP_NB_LOCAL_DRAM": north and not remote and source == 3,
        "IBS_OP_NB_REMOTE_DRAM": north and remote and source == 3,
        "IBS_OP_NB_LOCAL_OTHER": north and not remote and source == 7,
        "IBS_OP_NB_REMOTE_OTHER": north and remote and source == 7,
        "IBS_OP_NB_CACHE_MODIFIED": state and not owned,
        "IBS_OP_NB_CACHE_OWNED": state and owned,
        "IBS_OP_NB_LOCAL_CACHE_LAT": (north and not remote, latency),
        "IBS_OP_NB_REMOTE_CACHE_LAT": (north and remote, latency),
        "IBS_OP_L3_MISS": zen4 and source in (2, 3, 5, 6, 8, 12),
        "IBS_OP_SRC_LOCAL_L3": zen4 and source == 1,
        "IBS_OP_SRC_NEAR_CCX": zen4 and source == 2,
        "IBS_OP_SRC_FAR_CCX": zen4 and source == 5,
        "IBS_OP_SRC_LOCAL_DRAM": far and source == 3 and not remote,
        "IBS_OP_SRC_REMOTE_DRAM": far and source == 3 and remote,
        "IBS_OP_SRC_LONG_LATENCY_DIMM": zen4 and source == 6,
        "IBS_OP_SRC_MMIO": far and source == 7,
        "IBS_OP_SRC_EXTENSION_MEMORY": zen4 and source == 8,
        "IBS_OP_SRC_PEER_MEMORY": zen4 and source == 12,
        "IBS_OP_SRC_LOCAL_NODE_CACHE": before and source == 2,
        "IBS_OP_SRC_REMOTE_NODE_CACHE": before and source == 4,
        "IBS_OP_SRC_REMOTE_SOCKET": far and cpu.caps >> 16 & 1 and data2 >> 9 & 1,
        "IBS_OP_SRC_CACHE_MODIFIED": (
            zen4 and cpu.cache_state and source in (1, 2, 5) and not owned
        ),
    }


def _satisfied(events: dict[str, object]) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for name, told in events.items():
        if isinstance(told, tuple):
            if told[0]:
                found[name] = told[1]
        elif told:
            found[name] = ONE
    return found


def _masked(cpu: Cpu, data3: int) -> int:
    """What family 14h has reserved."""
    return data3 & ~(1 << 5 | 1 << 9 | 1 << 10 | 1 << 12 | 1 << 19) if cpu.family == 0x14 else data3


def expected_fetch(cpu: Cpu, registers: Sequence[int]) -> dict[str, int | None]:
    """What a fetch adds to each event: ONE, or the value.

    ``registers``: IbsFetchCtl, LinAd, PhysAd and IcIbsExtdCtl, as many as
    there are and are known.
    """
    if not registers or not registers[0] >> 49 & 1:
        return {}
    if cpu.early_zen3 and len(registers) > 1 and registers[1] == 0:
        return {}
    extended = registers[3] if len(registers) > 3 else None
    return _satisfied(_fetch(cpu, registers[0], extended))


def expected_op(cpu: Cpu, registers: Sequence[int]) -> dict[str, int | None]:
    """What an op adds to each event: ONE, or the value.

    ``registers``: IbsOpCtl, Rip, Data, Data2, Data3, ... in order, as many as
    there are; the last is IbsOpData4 where caps say so.
    """
    if not registers or not registers[0] >> 18 & 1:
        return {}
    events: dict[str, object] = {"IBS_OP_ALL": True}
    if len(registers) > 2:
        events |= _retired(cpu, registers[2])
    if len(registers) > 4:
        events |= _access(cpu, registers[3], _masked(cpu, registers[4]))
    data4 = 7 + (cpu.caps >> 5 & 1)
    events["IBS_OP_LOAD_RESYNC"] = (
        cpu.family == 0x15
        and cpu.caps >> 10 & 1
        and len(registers) > data4
        and registers[data4] & 1
    )
    return _satisfied(events)

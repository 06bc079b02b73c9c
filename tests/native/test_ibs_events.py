"""The derived events of IBS: errata, where they are valid, and their table."""

from __future__ import annotations

import random
import re

import pytest

from ibs_records import (
    DC_MISS,
    EARLY_ZEN3,
    FETCH_VALID,
    L2_MISS,
    LINEAR,
    LOAD,
    OP_VALID,
    ZEN2,
    ZEN3_DESKTOP,
    machine,
    payload,
)
from ibs_reference import Cpu, expected_fetch, expected_op
from opd_native import ibs
from opd_native.ibs import Flavour, Flaw

# ---- errata ------------------------------------------------------------------------


def events_of(flavour: Flavour, where: tuple[int, int], caps: int, *registers: int) -> set[str]:
    """Give the events that a record satisfies."""
    return set(ibs.decode(flavour, payload(caps, *registers), machine(*where)).events)


def test_erratum_1197_zero_rip() -> None:
    """Such a fetch is no sample."""
    zero = ibs.decode(Flavour.FETCH, payload(0x3FF, FETCH_VALID, 0, 0, 0), machine(*EARLY_ZEN3))
    assert zero.flaws == Flaw.IGNORED
    assert not zero.flaws.incomplete
    assert not zero.events
    assert "IBS_FETCH_ALL" in events_of(Flavour.FETCH, ZEN3_DESKTOP, 0x3FF, FETCH_VALID, 0, 0, 0)


def test_erratum_1238_ic_miss() -> None:
    """Neither hits nor misses are told."""
    missed = FETCH_VALID | 1 << 50 | 1 << 51
    assert "IBS_FETCH_ICACHE_MISSES" in events_of(Flavour.FETCH, ZEN2, 0x3FF, missed, 1, 0, 0)
    for bits in (missed, FETCH_VALID | 1 << 50):
        told = events_of(Flavour.FETCH, EARLY_ZEN3, 0x3FF, bits, 1, 0, 0)
        assert not told & {"IBS_FETCH_ICACHE_MISSES", "IBS_FETCH_ICACHE_HITS"}


def test_erratum_1347_page_sizes() -> None:
    """The same codes for other sizes."""

    def pages(where: tuple[int, int], code: int) -> set[str]:
        ctl = FETCH_VALID | 1 << 52 | code << 53
        told = events_of(Flavour.FETCH, where, 0x3FF, ctl, 1, 0, 0)
        return {name for name in told if name.endswith("_PAGE")}

    assert [pages(ZEN2, i) for i in range(4)] == [
        {"IBS_FETCH_4K_PAGE"},
        {"IBS_FETCH_2M_PAGE"},
        {"IBS_FETCH_1G_PAGE"},
        set(),
    ]
    assert [pages(EARLY_ZEN3, i) for i in range(4)] == [
        {"IBS_FETCH_4K_PAGE"},
        {"IBS_FETCH_16K_PAGE"},
        {"IBS_FETCH_2M_PAGE"},
        {"IBS_FETCH_1G_PAGE"},
    ]


def test_erratum_1293_of_prefetches_and_no_mab() -> None:
    """Neither the source nor L2Miss means anything."""
    lost = {
        "IBS_OP_L2_MISS",
        "IBS_OP_OPEN_MEM_REQS",
        "IBS_OP_NB_LOCAL_DRAM",
        "IBS_OP_SRC_LOCAL_DRAM",
    }
    for bit in (16, 21):
        op = (1 << 18, 1, 0, 3, LOAD | DC_MISS | L2_MISS | LINEAR | 1 << bit, 0, 0, 0)
        assert lost <= events_of(Flavour.OP, ZEN2, 0x3FF, *op)
        assert not lost & events_of(Flavour.OP, EARLY_ZEN3, 0x3FF, *op)
    op = (1 << 18, 1, 0, 3, LOAD | DC_MISS | L2_MISS | LINEAR, 0, 0, 0)
    assert lost <= events_of(Flavour.OP, EARLY_ZEN3, 0x3FF, *op)


def test_erratum_717_mab_without_miss() -> None:
    """Family 15h alone."""
    op = (1 << 18, 1, 0, 0, LOAD | 1 << 16, 0, 0)
    assert "IBS_OP_MAB_HIT" not in events_of(Flavour.OP, (0x15, 2), 0xDF, *op)
    assert "IBS_OP_MAB_HIT" in events_of(Flavour.OP, (0x10, 2), 0xDF, *op)


def test_zen6_tells_nothing_of_a_fetch_without_a_physical_address() -> None:
    """The status bits mean nothing then."""
    status = FETCH_VALID | 1 << 50 | 1 << 51 | 1 << 55 | 1 << 61 | 7 << 32
    for where in ((0x1A, 0x50), (0x1A, 0x8F), (0x1A, 0xC0), (0x1B, 0)):
        told = events_of(Flavour.FETCH, where, 0x1BFF, status, 1, 0, 9)
        assert told == {"IBS_FETCH_ALL", "IBS_FETCH_ATTEMPTED"}
        told = events_of(Flavour.FETCH, where, 0x1BFF, status | 1 << 52, 1, 0, 9)
        assert {"IBS_FETCH_COMPLETED", "IBS_FETCH_LATENCY"} <= told
    assert "IBS_FETCH_COMPLETED" in events_of(Flavour.FETCH, (0x1A, 2), 0xBFF, status, 1, 0, 9)


def test_an_op_whose_rip_is_invalid_has_none() -> None:
    """Where caps tell the bit."""

    def valid(where: tuple[int, int], caps: int) -> bool:
        raw = payload(caps, 1 << 18, 0x401000, 1 << 38, 0, 0, 0, 0, 0)
        return bool(ibs.decode(Flavour.OP, raw, machine(*where)).fields["has"] >> 14 & 1)

    assert not valid(ZEN2, 0x3FF)
    assert valid(ZEN2, 0x37F)  # caps tell no such bit
    assert valid((0x10, 2), 0xFF)  # reserved there


# ---- the table ------------------------------------------------------------------------


def test_the_table_is_in_order_and_complete() -> None:
    """All of oprofile's 60 are there."""
    events = ibs.derived_events()
    numbers = [event.number for event in events]
    assert numbers == sorted(set(numbers))
    assert len({event.name for event in events}) == len(events)
    assert [event.bit for event in events] == list(range(len(events)))
    for event in events:
        assert re.fullmatch(r"IBS_(FETCH|OP)_[A-Z0-9_]+", event.name)
        assert event.name.startswith("IBS_FETCH") == (event.flavour is Flavour.FETCH)
        assert event.unit == "count" or event.sums
        assert event.condition
        assert event.valid
        assert event.description.endswith(".")
    of_oprofile = [n for n in numbers if n <= 0xF24C and not 0xF010 <= n <= 0xF0FF]
    of_oprofile = [n for n in of_oprofile if n != 0xF00C and not 0xF10A <= n <= 0xF1FF]
    assert len([n for n in of_oprofile if not 0xF220 <= n <= 0xF23F]) == 60


def test_no_event_fires_where_it_is_not_valid() -> None:
    """Random registers on every kind of machine."""
    random_words = random.Random(4)
    machines = [(0x10, 2), (0x12, 1), (0x14, 1), (0x15, 0x60), (0x17, 1), (0x17, 0x31)]
    machines += [(0x19, 1), (0x19, 0x21), (0x19, 0x44), (0x19, 0x11), (0x1A, 2), (0x1A, 0x50)]
    caps_of = [0xFF, 0x3FF, 0x7FF, 0xBFF, 0x81BFF, 0xDFBFF]
    for _ in range(3000):
        where = machine(*random_words.choice(machines))
        caps = random_words.choice(caps_of)
        flavour = random_words.choice(list(Flavour))
        registers = [random_words.getrandbits(64) | 1 << 18 | 1 << 49 for _ in range(9)]
        record = ibs.decode(flavour, payload(caps, *registers), where)
        for name in record.events:
            event = ibs.derived_event(name)
            assert event is not None
            assert event.flavour is flavour
            assert event.is_valid_on(where, caps)


MACHINES = [
    (0x10, 2, 0x1F), (0x12, 1, 0xFF), (0x14, 1, 0xFF), (0x15, 2, 0xFF), (0x15, 0x60, 0x7FF),
    (0x17, 1, 0x3FF), (0x17, 0x31, 0x3FF), (0x19, 1, 0x3FF), (0x19, 0x21, 0x3FF),
    (0x19, 0x44, 0x3FF), (0x19, 0x11, 0xBFF), (0x19, 0x61, 0xBFF), (0x1A, 2, 0x81BFF),
    (0x1A, 0x50, 0xDFBFF), (0x1B, 1, 0xDFBFF),
]  # fmt: skip


@pytest.mark.parametrize(("family", "model", "caps"), MACHINES)
def test_every_event_is_what_its_bits_say(family: int, model: int, caps: int) -> None:
    """Random registers against the count of tests/ibs_reference.py, and every event fires."""
    words = random.Random(family << 8 | model)
    where, cpu = machine(family, model), Cpu(family, model, caps)
    seen: set[str] = set()
    for _ in range(3000):
        for flavour, count, expected in (
            (Flavour.FETCH, 3 + (caps >> 9 & 1), expected_fetch),
            (Flavour.OP, 7 + (caps >> 5 & 1) + (caps >> 10 & 1), expected_op),
        ):
            valid = FETCH_VALID if flavour is Flavour.FETCH else OP_VALID
            registers = [words.getrandbits(64) & words.getrandbits(64) for _ in range(count)]
            registers[0] |= valid
            if flavour is Flavour.FETCH and words.random() < 0.05:
                registers[0] = valid
            elif flavour is Flavour.OP and words.random() < 0.5:  # a load from far away
                registers[3] = words.getrandbits(10)
                registers[4] |= LOAD | DC_MISS | L2_MISS
            there = registers[: words.choice((count, count, count, words.randint(0, count)))]
            record = ibs.decode(flavour, payload(caps, *there), where)
            told = expected(cpu, there)
            assert record.events == {k: 1 if v is None else v for k, v in told.items()}, registers
            seen |= told.keys()
    possible = {e.name for e in ibs.derived_events() if e.is_valid_on(where, caps)}
    one_node = {e.name for e in ibs.derived_events() if "REMOTE" in e.name or "OWNED" in e.name}
    reserved = {"IBS_OP_BANK_CONF_LOAD", "IBS_OP_BANK_CONF_STORE", "IBS_OP_CANCELLED"}
    reserved |= {"IBS_OP_L1_DTLB_1G", "IBS_OP_L2_DTLB_1G"}
    if family in (0x12, 0x14):
        possible -= one_node
    if family == 0x14:
        possible -= reserved
    assert possible <= seen
    assert seen <= possible

"""IBS records decoded, and the table of the events derived from them.

For tables, tests and answers about single records; samples are decoded and
counted in C (``opd_native.importer``, ``opd_native.sampler``).
"""

from __future__ import annotations

import enum
import functools
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from opd_native._core import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MINIMUM_COUNT = 50000  # of every derived event, as in oprofile's files


class Flavour(enum.IntEnum):
    """Which of the two PMUs; the numbers are those of opd/ibs.h."""

    FETCH = 0
    OP = 1

    @property
    def pmu(self) -> str:
        """The PMU's name, which is the ext word of an events file too."""
        return "ibs_op" if self is Flavour.OP else "ibs_fetch"


class Flaw(enum.IntFlag):
    """What is wrong with a record; the numbers are those of opd/ibs.h."""

    SHORT = 1
    LONG = 2
    UNKNOWN_CAPS = 4
    NOT_VALID = 8  # Val is clear, or no register at all
    IGNORED = 16  # erratum 1197

    @property
    def incomplete(self) -> bool:
        """Whether the record counts as incomplete."""
        return bool(self & ~Flaw.IGNORED)


class Machine(NamedTuple):
    """The machine that records come from; ``kernel`` is major << 16 | minor, 0 not known."""

    family: int = 0
    model: int = 0
    kernel: int = 0

    @classmethod
    def of(cls, cpuid: str, release: str) -> Self | None:
        """Give it by perf.data's CPUID and OSRELEASE texts; None unless it is AMD's."""
        struct = ffi.new("struct opd_ibs_machine *")
        if not lib.opd_ibs_cpuid(cpuid.encode(errors="replace"), struct):
            return None
        kernel = lib.opd_ibs_kernel(release.encode(errors="replace"))
        return cls(int(struct.family), int(struct.model), int(kernel))


class DerivedEvent(NamedTuple):
    """One row of the table in ibs_events.c."""

    bit: int  # its bit in masks, its place in the table
    number: int
    name: str
    flavour: Flavour
    unit: str  # of its weight: "count", "cycles", "requests"
    sums: bool  # adds a field of the record; else one sample, weighed by its period
    description: str
    condition: str  # the exact bits
    valid: str  # where it is told
    errata: str  # "" for none

    def is_valid_on(self, machine: Machine, caps: int) -> bool:
        """Whether a machine with these IBS caps tells it."""
        count = ffi.new("unsigned *")
        return bool(
            lib.opd_ibs_event_is_valid(
                lib.opd_ibs_events(count) + self.bit, _machine(machine), caps
            )
        )


class Record(NamedTuple):
    """One decoded record."""

    flavour: Flavour
    flaws: Flaw
    fields: Mapping[str, int]  # by their names in struct opd_ibs_fetch or opd_ibs_op
    events: Mapping[str, int]  # satisfied derived events; what each adds, 1 without a field
    data_src: int | None  # PERF_SAMPLE_DATA_SRC of an op
    weight: int | None  # PERF_SAMPLE_WEIGHT of an op, cycles


def _text(pointer: Any) -> str:
    return str(ffi.string(pointer).decode())


@functools.cache
def derived_events() -> tuple[DerivedEvent, ...]:
    """Give all derived events, in order of number."""
    count = ffi.new("unsigned *")
    table = lib.opd_ibs_events(count)
    return tuple(
        DerivedEvent(
            bit=i,
            number=table[i].number,
            name=_text(table[i].name),
            flavour=Flavour(table[i].flavour),
            unit=_text(table[i].unit),
            sums=table[i].value != 0,
            description=_text(table[i].description),
            condition=_text(table[i].condition),
            valid=_text(table[i].valid),
            errata=_text(table[i].errata),
        )
        for i in range(count[0])
    )


@functools.cache
def derived_event(name: str) -> DerivedEvent | None:
    """Give the derived event of exactly this name."""
    return next((event for event in derived_events() if event.name == name), None)


def _machine(machine: Machine) -> Any:
    return ffi.new("struct opd_ibs_machine *", machine)


def decode(flavour: Flavour, raw: bytes, machine: Machine) -> Record:
    """Decode a PERF_SAMPLE_RAW payload (``u32 caps; u64 register[]``), however long it is."""
    where = _machine(machine)
    hits = ffi.new("struct opd_ibs_hits *")
    among = ffi.new("struct opd_ibs_mask *")
    lib.opd_ibs_mask_of(flavour, ffi.NULL, 0, among)
    data_src = weight = None
    if flavour is Flavour.OP:
        struct = ffi.new("struct opd_ibs_op *")
        flaws = lib.opd_ibs_decode_op(where, raw, len(raw), struct)
        lib.opd_ibs_op_hits(where, struct, among, hits)
        data_src = int(lib.opd_ibs_data_src(where, struct))
        weight = int(lib.opd_ibs_weight(struct))
    else:
        struct = ffi.new("struct opd_ibs_fetch *")
        flaws = lib.opd_ibs_decode_fetch(where, raw, len(raw), struct)
        lib.opd_ibs_fetch_hits(where, struct, among, hits)
    count = ffi.new("unsigned *")
    table = lib.opd_ibs_events(count)
    return Record(
        flavour=flavour,
        flaws=Flaw(flaws),
        fields={name: int(getattr(struct, name)) for name, _ in ffi.typeof(struct).item.fields},
        events={
            event.name: int(hits.values[table[event.bit].value]) if event.sums else 1
            for event in derived_events()
            if hits.events.words[event.bit // 64] >> event.bit % 64 & 1
        },
        data_src=data_src,
        weight=weight,
    )


def period(flavour: Flavour, config: int, sample_period: int) -> int | None:
    """Give the period that an attr asks for; None when the kernel refuses it (EINVAL)."""
    return int(lib.opd_ibs_period(flavour, config, sample_period)) or None


def period_limits(flavour: Flavour, caps: int) -> tuple[int, int]:
    """Give the least period and the greatest that the hardware counts at once."""
    return int(lib.opd_ibs_period_min(flavour)), int(lib.opd_ibs_period_max(flavour, caps))


def satisfied(event: DerivedEvent, records: Sequence[bytes], machine: Machine) -> list[int | None]:
    """What each raw record adds to a derived event: 1, or its value; None: it is not satisfied."""
    where = _machine(machine)
    hits = ffi.new("struct opd_ibs_hits *")
    count = ffi.new("unsigned *")
    value = (lib.opd_ibs_events(count) + event.bit).value
    word, bit = divmod(event.bit, 64)
    among = ffi.new("struct opd_ibs_mask *")
    among.words[word] = 1 << bit
    if event.flavour is Flavour.OP:
        struct = ffi.new("struct opd_ibs_op *")
        decode_one, hits_of = lib.opd_ibs_decode_op, lib.opd_ibs_op_hits
    else:
        struct = ffi.new("struct opd_ibs_fetch *")
        decode_one, hits_of = lib.opd_ibs_decode_fetch, lib.opd_ibs_fetch_hits
    found: list[int | None] = []
    for raw in records:
        decode_one(where, raw, len(raw), struct)
        hits_of(where, struct, among, hits)
        there = hits.events.words[word] >> bit & 1
        found.append((int(hits.values[value]) if value else 1) if there else None)
    return found

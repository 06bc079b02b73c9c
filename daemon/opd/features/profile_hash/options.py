"""The options of profile_hash, checked before anything of the machine is asked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from opd.errors import OpdError
from opd.events.grammar import parse_events
from opd.features.declared import Options, about
from opd_native.pc_hash import SLOTS_MOST, Policy

if TYPE_CHECKING:
    from opd.events.request import EventRequest

# As `profile=2` of the kernel: almost no hit is in the last slot of a function, which
# readprofile counts to the next one.
SHIFT = 2
SHIFT_MOST = 31
# Eight pages of 4 KiB, where evicting needs within 1 % as few updates as a whole buffer a
# CPU (docs/benchmarks.md, hash). The kernel's own tables had one page, and flushed it.
SLOTS = 4096
SLOTS_LEAST = 8
WAYS = 8  # a line of the cache, where one slot gives way
RATE_MOST = 100_000
MODULE_MOST = 55  # letters that the kernel takes
# A symbol of the kernel has 511 letters at most.
_END = re.compile(r"0x[0-9a-fA-F]{1,16}|[0-9a-fA-F]{4,16}|[A-Za-z_.$][A-Za-z0-9_.$]{0,510}")


class ProfileHashOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of profile_hash."""

    shift: Annotated[
        int,
        about("A slot of the buffer is 2^shift bytes of code.", ge=0, le=SHIFT_MOST),
    ] = SHIFT
    range: Annotated[
        str,
        about(
            "Only this code: START-END, each an address in hex or a symbol. Empty: all,"
            " of the kernel _stext-_etext."
        ),
    ] = ""
    module: Annotated[str, about("Count in this module instead of the kernel.")] = ""
    binary: Annotated[
        str, about("Count in this ELF file, wherever it is mapped, instead of the kernel.")
    ] = ""
    slots: Annotated[
        int,
        about(
            "Slots of a table, a power of two; each CPU has two tables.",
            ge=SLOTS_LEAST,
            le=SLOTS_MOST,
        ),
    ] = SLOTS
    ways: Annotated[
        int,
        about(
            "Slots that a hit may be in, a power of two; 0: all with policy=flush, else 8.",
            ge=0,
            le=SLOTS_MOST,
        ),
    ] = 0
    policy: Annotated[
        Policy,
        about(
            "When they are all taken: flush the table, evict one slot, or none (the hit"
            " goes to the buffer)."
        ),
    ] = "evict"
    rate: Annotated[
        int, about("Samples a second and CPU; 0: as the event says.", ge=0, le=RATE_MOST)
    ] = 0
    event: Annotated[
        str, about("Which event to count, as --event takes it; empty: the daemon's first.")
    ] = ""

    def __post_init__(self) -> None:
        """What types cannot say."""
        if self.module and self.binary:
            raise ValueError("module and binary: expected one of them, got both")
        for name in ("slots", "ways"):
            value = getattr(self, name)
            if value & (value - 1):
                low = 1 << value.bit_length() - 1
                raise ValueError(f"{name}: {value} is no power of two; near it: {low} or {low * 2}")
        if self.ways > self.slots:
            raise ValueError(f"ways: {self.ways} are more than the {self.slots} slots of a table")
        if (
            "/" in self.module
            or self.module != self.module.strip("[] ")
            or len(self.module) > MODULE_MOST
        ):
            got = self.module[:100]
            raise ValueError(f"module: expected a name such as nf_tables, got {got!r}")
        if self.binary and (not self.binary.startswith("/") or "\0" in self.binary):
            raise ValueError(f"binary: expected an absolute path, got {self.binary[:100]!r}")
        if self.range:
            split_range(self.range)
        if self.event:
            self.request()

    @property
    def all_ways(self) -> int:
        """Slots that a hit may be in."""
        return self.ways or (self.slots if self.policy == "flush" else min(WAYS, self.slots))

    def request(self) -> EventRequest:
        """The event asked for by itself. Raises ValueError for what is none."""
        try:
            (request,) = parse_events((self.event,), source="event")
        except OpdError as error:
            raise ValueError(str(error)) from error
        if request.feature:
            raise ValueError(f"event: {self.event} is an event of feature {request.feature}")
        return request


def split_range(text: str) -> tuple[str, str]:
    """The two ends. Raises ValueError unless there are two that could be addresses or symbols."""
    start, dash, end = text.partition("-")
    if not dash or not _END.fullmatch(start) or not _END.fullmatch(end):
        raise ValueError(
            f"range: expected START-END, addresses in hex or symbols, such as"
            f" ffffffff81000000-ffffffff82000000 or _stext-_etext, got {text[:100]!r}"
        )
    return start, end


def address_of(end: str) -> int | None:
    """An end as an address; None: it is a symbol."""
    try:
        return int(end, 16)
    except ValueError:
        return None

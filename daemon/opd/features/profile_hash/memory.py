"""What the tables and the buffer of profile_hash may take, checked before any of it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.features.declared import UnavailableError
from opd.features.profile_hash.options import SHIFT_MOST, SLOTS_LEAST
from opd_native.pc_hash import memory_bytes

if TYPE_CHECKING:
    from opd.features.profile_hash.options import ProfileHashOptions
    from opd_native.pc_hash import Target

# Of tables and buffer together, were all of it touched.
BYTES_MOST = 1 << 30


def check_memory(options: ProfileHashOptions, target: Target, *, cpus: int) -> None:
    """Raise UnavailableError, with what would fit, when both together are above BYTES_MOST."""
    slots, length = options.slots, target.length
    tables = memory_bytes(slots=slots, cpus=cpus, length=0)
    buffer = memory_bytes(slots=slots, cpus=0, length=length)
    if tables + buffer <= BYTES_MOST:
        return
    raise UnavailableError(
        f"{tables + buffer} bytes of memory asked for, at most {BYTES_MOST}: {tables} of"
        f" tables (slots={slots}, two tables each of {cpus} CPUs) and {buffer} of the buffer"
        f" ({length} slots of {1 << target.shift} bytes: shift={target.shift});"
        f" {_what_fits(slots, target, cpus)}"
    )


def _what_fits(slots: int, target: Target, cpus: int) -> str:
    """The fewest changes that do: of one option if there is one, else of both."""
    fewer = [1 << bits for bits in range(slots.bit_length() - 1, SLOTS_LEAST.bit_length() - 2, -1)]
    coarser = range(target.shift, SHIFT_MOST + 1)

    def fits(slots: int, shift: int) -> bool:
        length = target._replace(shift=shift).length
        return memory_bytes(slots=slots, cpus=cpus, length=length) <= BYTES_MOST

    for few in fewer:
        if fits(few, target.shift):
            return f"slots={few} would do"
    for few in fewer:
        for shift in coarser:
            if fits(few, shift):
                return f"shift={shift}" + (f",slots={few}" if few < slots else "") + " would do"
    return "no shift would do: choose a smaller range"

"""Raw IBS payloads and the machines they come from, for tests."""

from __future__ import annotations

import struct

from opd_native.ibs import Machine

OLD_KERNEL = "5.4.0-42-generic"
NEW_KERNEL = "6.8.0"
# Machines by family and model.
EARLY_ZEN3, ZEN3_DESKTOP, ZEN2 = (0x19, 1), (0x19, 0x21), (0x17, 0x31)

# Bits of registers.
FETCH_VALID = 1 << 49
OP_VALID = 1 << 18
LOAD, STORE, DC_MISS, LINEAR, PHYSICAL, L2_MISS = 1, 2, 1 << 7, 1 << 17, 1 << 18, 1 << 20


def payload(caps: int, *registers: int) -> bytes:
    """Give the bytes of a PERF_SAMPLE_RAW payload."""
    return struct.pack(f"<I{len(registers)}Q", caps, *registers)


def machine(family: int, model: int, release: str = NEW_KERNEL) -> Machine:
    """Give an AMD machine as perf.data tells of it."""
    found = Machine.of(f"AuthenticAMD,{family},{model},1", release)
    assert found is not None
    return found

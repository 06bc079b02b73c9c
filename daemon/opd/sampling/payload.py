"""What a window carries beside its rows: latencies, accesses to memory, branches, raw records.

Each kind is a set of equally long columns whose ``sfile`` and ``stack`` (of a
branch ``from`` and ``to``) are numbers of the window:

``latency``   hits by ``bucket`` of a latency event's value (opd/payload.h)
``access``    a fair draw of the accesses to memory: addresses, thread, CPU,
              latency, and in ``what`` flags, source, TLB, width, a byte each
``total``     exact sums of all accesses by load or store, source and TLB
``branch``    from a retired branch to its target: how often, taken,
              mispredicted, returns
``record.X``  a fair draw of the raw records of feature X, one behind the other
              in ``bytes``, each ``length`` long
"""

from __future__ import annotations

import msgspec

# Bytes of a cell; ``bytes`` of raw records has none.
CELLS = {
    "latency": {"sfile": 4, "stack": 4, "bucket": 4, "count": 8},
    "access": {
        "address": 8,
        "physical": 8,
        "sfile": 4,
        "stack": 4,
        "tid": 4,
        "cpu": 4,
        "latency": 4,
        "what": 4,
    },
    "total": {"what": 4, "count": 8, "timed": 8, "latency": 8},
    "branch": {
        "sfile": 4,
        "from": 4,
        "to": 4,
        "count": 8,
        "taken": 8,
        "mispredicted": 8,
        "return": 8,
    },
    "record": {"sfile": 4, "stack": 4, "weight": 8, "length": 4},
}

LOAD, STORE, HAS_ADDRESS, HAS_PHYSICAL, HAS_LATENCY, LOCKED, MODIFIED, MISALIGNED = (
    1 << bit for bit in range(8)
)
# By number, see enum opd_access_source and opd_access_tlb.
SOURCES = (
    "unknown",
    "l1",
    "l2",
    "l3",
    "near-cache",
    "far-cache",
    "dram",
    "remote-dram",
    "lfb",
    "uncached",
    "io",
    "slow-memory",
    "cxl",
    "peer-memory",
)
# In ``what``, beside the TLB: another node served it.
REMOTE = 1 << 18
TLBS = ("unknown", "l1", "l2", "miss")


class Payload(msgspec.Struct, frozen=True):
    """One kind of payload of a window.

    ``offered``: what there was to keep; ``lost``: of it, what had no room. Of a
    draw the rest that is not among ``rows`` just was not drawn.
    """

    kind: str
    rows: int
    offered: int
    lost: int
    columns: dict[str, bytes]


def cells_of(kind: str) -> dict[str, int]:
    """The columns of a kind and the bytes of their cells; KeyError for one that is not known."""
    return CELLS["record" if kind.startswith("record.") else kind]

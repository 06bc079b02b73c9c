"""What a window keeps of precise samples beside its rows (contract: opd/payload.h)."""

from __future__ import annotations

from typing import Any, NamedTuple

from opd_native._core import ffi, lib

LATENCY_BUCKETS = 976
RECORD_CLASSES = ("ibs_fetch", "ibs_op")

# Kind, what counts its rows, its counts of offered and lost, columns and their bytes a cell.
_KINDS: tuple[tuple[str, str, str, tuple[tuple[str, int], ...]], ...] = (
    (
        "latency",
        "latencies",
        "latency",
        (("sfile", 4), ("stack", 4), ("bucket", 4), ("count", 8)),
    ),
    (
        "access",
        "accesses",
        "access",
        (
            *(("address", 8), ("physical", 8), ("sfile", 4), ("stack", 4)),
            *(("tid", 4), ("cpu", 4), ("latency", 4), ("what", 4)),
        ),
    ),
    (
        "total",
        "totals",
        "access",
        (("what", 4), ("count", 8), ("timed", 8), ("latency", 8)),
    ),
    (
        "branch",
        "branches",
        "branch",
        (
            *(("sfile", 4), ("from", 4), ("to", 4), ("count", 8)),
            *(("taken", 8), ("mispredicted", 8), ("return", 8)),
        ),
    ),
)


class NativePayload(NamedTuple):
    """One kind of payload: packed columns by name.

    ``offered``: what there was to keep, ``lost`` what had no room.
    """

    kind: str
    rows: int
    offered: int
    lost: int
    columns: dict[str, bytes]


def latency_bucket(value: int) -> int:
    """The bucket of a latency: 0..15 one each, then sixteen to every power of two."""
    return int(lib.opd_latency_bucket(value))


def latency_least(bucket: int) -> int:
    """The least value of a bucket."""
    return int(lib.opd_latency_least(bucket))


def unpack_payloads(pointer: Any) -> list[NativePayload]:
    """Copy a ``struct opd_payload_columns *`` out: kinds of which anything was offered.

    NULL has none.
    """
    if pointer == ffi.NULL:
        return []
    payloads = []
    for kind, rows_name, counts_name, columns in _KINDS:
        rows, counts = getattr(pointer, rows_name), getattr(pointer, counts_name)
        if not counts.offered:
            continue
        payloads.append(
            NativePayload(
                kind,
                rows,
                counts.offered,
                counts.lost,
                {
                    name: bytes(ffi.buffer(getattr(pointer, f"{kind}_{name}"), size * rows))
                    for name, size in columns
                },
            )
        )
    return payloads + _records(pointer)


def _records(pointer: Any) -> list[NativePayload]:
    """Raw records, of each class apart; ``bytes`` are those of all, one behind the other."""
    payloads = []
    first = 0
    for index, name in enumerate(RECORD_CLASSES):
        rows, counts = pointer.records[index], pointer.record[index]
        if counts.offered:
            starts = pointer.record_start[first : first + rows + 1]
            columns = {
                column: bytes(ffi.buffer(getattr(pointer, f"record_{column}") + first, size * rows))
                for column, size in (("sfile", 4), ("stack", 4), ("weight", 8))
            }
            lengths = ffi.new("uint32_t[]", rows or 1)
            for at in range(rows):
                lengths[at] = starts[at + 1] - starts[at]
            columns["length"] = bytes(ffi.buffer(lengths, 4 * rows))
            columns["bytes"] = bytes(
                ffi.buffer(pointer.record_bytes + starts[0], starts[rows] - starts[0])
            )
            payloads.append(
                NativePayload(f"record.{name}", rows, counts.offered, counts.lost, columns)
            )
        first += rows
    return payloads

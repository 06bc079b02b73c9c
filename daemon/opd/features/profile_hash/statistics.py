"""What the tables counted: as a JSON object, as counters, beside what the kernel's did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.features.declared import Stats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opd_native.pc_hash import PcStats

# The kernel's own tables of 2004, on 4 CPUs at 1000 Hz, a page of slots each.
FLUSHES_A_MINUTE_2004 = 18
UPDATES_PER_HIT_2004 = 0.0384


def document_of(stats: PcStats) -> dict[str, Any]:
    """All counters of a hash, or of one CPU of it."""
    updates = stats.shared_updates
    return {
        "hits": stats.hits,
        "shared_updates": updates,
        "updates_per_hit": round(updates / stats.hits, 6) if stats.hits else 0.0,
        "amortisation": round(stats.hits / updates, 3) if updates else 0.0,
        "flushes": stats.flushes,
        "flips": stats.flips,
        "evictions": stats.evictions,
        "probe_max": stats.probe_max,
        "ns_per_hit": round(stats.ns_per_hit, 1),
        "flip_ns": round(stats.flip_ns),
        "bytes": stats.bytes,
    }


def stats_of(
    whole: PcStats, by_cpu: Mapping[int, PcStats], *, outside: int, seconds: float, table: str
) -> Stats:
    """Statistics after ``seconds``; ``outside``: samples that were not in the range."""
    document = document_of(whole)
    values = {**document, "outside": outside, "wraps": whole.wraps}
    document["per_cpu"] = [{"cpu": cpu, **document_of(one)} for cpu, one in by_cpu.items()]
    minutes = seconds / 60
    a_minute = whole.flushes / minutes if minutes > 0 else 0.0
    share = whole.shared_updates / whole.hits if whole.hits else 0.0
    flushes = (
        f"flushes a minute: {a_minute:.2f} on {len(by_cpu)} CPUs (the kernel's tables of"
        f" 2004: about {FLUSHES_A_MINUTE_2004} on 4)"
    )
    became = f"{share:.2%}, one in {document['amortisation']:g}" if whole.hits else "no hits yet"
    updates = (
        f"hits that became updates of the shared buffer: {became}"
        f" (2004: {UPDATES_PER_HIT_2004:.2%}, one in 26, at 1000 Hz with one page of slots)"
    )
    return Stats(values, document, (table, flushes, updates))

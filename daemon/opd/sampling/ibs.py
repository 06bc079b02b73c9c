"""What windows keep of how their IBS records fared, apart by the PMU that wrote them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PMUS = ("ibs_fetch", "ibs_op")


def ibs_quality(counts: Mapping[int, Mapping[str, int]], pmus: Mapping[int, str]) -> dict[str, int]:
    """Counts of IBS records by event as a window's quality has them; ``pmus``: by event.

    >>> ibs_quality({3: {"records": 7, "bare": 0}}, {3: "ibs_op"})
    {'ibs_op.records': 7}
    """
    sums: Counter[str] = Counter()
    for event, one in counts.items():
        sums.update({f"{pmus[event]}.{name}": count for name, count in one.items() if count})
    return dict(sums)


def split_quality(name: str) -> tuple[str, str] | None:
    """Which PMU's and which count a name of a window's quality is; None: another's."""
    pmu, dot, what = name.partition(".")
    return (pmu, what) if dot and pmu in PMUS else None

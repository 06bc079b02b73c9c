"""Log-linear histograms of latencies: counts by bucket (opd/payload.h)."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from opd.stats.intervals import Z95
from opd_native.payload import latency_bucket, latency_least

if TYPE_CHECKING:
    from collections.abc import Iterable


class Histogram:
    """Counts by bucket. A bucket is at most a sixteenth of its least value wide."""

    def __init__(self, counts: Iterable[tuple[int, int]] = ()) -> None:
        """``counts``: (bucket, count)."""
        self._counts: Counter[int] = Counter()
        for bucket, count in counts:
            self._counts[bucket] += count

    @classmethod
    def of(cls, values: Iterable[int]) -> Histogram:
        """The histogram of single values."""
        return cls((latency_bucket(value), 1) for value in values)

    def add(self, bucket: int, count: int) -> None:
        """Count more in a bucket."""
        self._counts[bucket] += count

    def merge(self, other: Histogram) -> None:
        """Count all that another counted."""
        self._counts.update(other._counts)

    @property
    def n(self) -> int:
        """How many values were counted."""
        return self._counts.total()

    def quantile(self, share: float) -> tuple[float, float, float]:
        """The value that ``share`` of all are at or below, and its interval at 95 %.

        The interval is that of the order statistic, widened to whole buckets.
        Raises ValueError without values.
        """
        n = self.n
        if n == 0:
            raise ValueError("no values")
        half = Z95 * math.sqrt(n * share * (1 - share))
        rank = max(share * n, 1.0)
        low = self._edges(max(1.0, rank - half))[0]
        high = self._edges(min(float(n), rank + half))[1]
        return self._at(rank), float(low), float(high)

    def variance(self) -> float:
        """Of the values as if each were in the middle of its bucket; 0 for fewer than 2."""
        n = self.n
        if n < 2:
            return 0.0
        points = [(sum(_edges_of(bucket)) / 2, count) for bucket, count in self._counts.items()]
        mean = sum(value * count for value, count in points) / n
        return sum(count * (value - mean) ** 2 for value, count in points) / (n - 1)

    def _at(self, rank: float) -> float:
        """The value of a rank (1 on), spread evenly over its bucket."""
        before = 0
        for bucket in sorted(self._counts):
            count = self._counts[bucket]
            if before + count >= rank:
                low, high = _edges_of(bucket)
                return (
                    low + (high - low) * (rank - before - 0.5) / count
                    if count > 1
                    else (low + high) / 2
                )
            before += count
        raise ValueError("no such rank")

    def _edges(self, rank: float) -> tuple[int, int]:
        """The least and the greatest value of the bucket that holds a rank."""
        before = 0
        last = 0
        for bucket in sorted(self._counts):
            before += self._counts[bucket]
            last = bucket
            if before >= rank:
                break
        return _edges_of(last)


def _edges_of(bucket: int) -> tuple[int, int]:
    return latency_least(bucket), latency_least(bucket + 1) - 1

"""The metrics that ``report --metric`` knows: what is divided by what.

A share's numerator is part of its denominator; both count samples of derived
events, which all stand for the same period. A mean divides an event's weight,
which sums its latency, by its samples; a quantile comes of its histogram.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["share", "ratio", "mean", "quantile"]


class Metric(NamedTuple):
    """One metric. ``over``: the events of the denominator; of means and quantiles none."""

    name: str
    kind: Kind
    events: tuple[str, ...]
    over: tuple[str, ...]
    unit: str
    meaning: str
    quantile: float = 0.0


def _share(name: str, events: str, over: str, meaning: str) -> Metric:
    return Metric(name, "share", tuple(events.split()), tuple(over.split()), "share", meaning)


def _latencies(name: str, event: str, unit: str, what: str) -> list[Metric]:
    mean = Metric(f"{name}_mean", "mean", (event,), (), unit, f"mean {what}")
    quantiles = [
        Metric(
            *(f"{name}_p{percent}", "quantile", (event,), (), unit),
            f"{what} that {percent} % do not exceed",
            percent / 100,
        )
        for percent in (50, 90, 95, 99)
    ]
    return [mean, *quantiles]


_SOURCES = "IBS_OP_NB_LOCAL_ONLY IBS_OP_NB_REMOTE_ONLY"

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        _share(
            "dc_miss_ratio",
            "IBS_OP_DATA_CACHE_MISS",
            "IBS_OP_ALL_LOAD_STORE",
            "loads and stores that missed the data cache",
        ),
        _share(
            "l2_miss_ratio",
            "IBS_OP_L2_MISS",
            "IBS_OP_DATA_CACHE_MISS",
            "misses of the data cache that missed L2 too (Zen on)",
        ),
        _share(
            "dtlb_miss_ratio",
            "IBS_OP_L1_L2_DTLB_MISS",
            "IBS_OP_L1_DTLB_HITS IBS_OP_L1_DTLB_MISS_L2_DTLB_HIT IBS_OP_L1_L2_DTLB_MISS",
            "translations of data addresses that missed both TLB levels",
        ),
        _share(
            "misaligned_share",
            "IBS_OP_MISALIGNED_DATA_ACC",
            "IBS_OP_ALL_LOAD_STORE",
            "loads and stores that crossed an alignment boundary",
        ),
        _share(
            "locked_share",
            "IBS_OP_LOCKED",
            "IBS_OP_ALL_LOAD_STORE",
            "loads and stores that were locked",
        ),
        _share(
            "branch_mispredict_ratio",
            "IBS_OP_MISPREDICTED_BRANCH",
            "IBS_OP_BRANCH_RETIRED",
            "retired branches that were mispredicted",
        ),
        _share(
            "branch_taken_ratio",
            "IBS_OP_TAKEN_BRANCH",
            "IBS_OP_BRANCH_RETIRED",
            "retired branches that were taken",
        ),
        _share(
            "dram_share",
            "IBS_OP_NB_LOCAL_DRAM IBS_OP_NB_REMOTE_DRAM",
            _SOURCES,
            "loads that missed the data cache, with a known source, served by DRAM",
        ),
        _share(
            "remote_share",
            "IBS_OP_NB_REMOTE_ONLY",
            _SOURCES,
            "loads that missed the data cache, with a known source, served by another node",
        ),
        _share(
            "ic_miss_ratio",
            "IBS_FETCH_ICACHE_MISSES",
            "IBS_FETCH_ATTEMPTED",
            "attempted fetches that missed the instruction cache",
        ),
        _share(
            "op_cache_miss_ratio",
            "IBS_FETCH_OP_CACHE_MISS",
            "IBS_FETCH_ATTEMPTED",
            "attempted fetches that missed the op cache (Zen4 on)",
        ),
        _share(
            "itlb_miss_ratio",
            "IBS_FETCH_L1_ITLB_MISSES_L2_ITLB_MISSES",
            "IBS_FETCH_ATTEMPTED",
            "attempted fetches that missed both levels of the instruction TLB",
        ),
        _share(
            "fetch_abort_ratio",
            "IBS_FETCH_ABORTED",
            "IBS_FETCH_ALL",
            "fetches that did not complete",
        ),
        *_latencies(
            "load_latency",
            "IBS_OP_DC_LOAD_LAT",
            "cycles",
            "latency of loads that missed the data cache",
        ),
        *_latencies(
            "tlb_refill_latency",
            "IBS_OP_TLB_REFILL_LATENCY",
            "cycles",
            "time that the data TLB took to be filled (Zen on)",
        ),
        *_latencies(
            "fetch_latency", "IBS_FETCH_LATENCY", "cycles", "time from a fetch's start to its end"
        ),
        *_latencies(
            "tag_to_retire",
            "IBS_OP_TAG_TO_RETIRE",
            "cycles",
            "time from an op's tag to its retirement",
        ),
        *_latencies(
            "completion_to_retire",
            "IBS_OP_COMP_TO_RET",
            "cycles",
            "time from an op's completion to its retirement",
        ),
    )
}

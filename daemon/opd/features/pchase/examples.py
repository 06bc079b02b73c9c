"""Each option of the pointer chase once: what ``make bench ARGS=options`` runs."""

from __future__ import annotations

from typing import get_args

from opd.features.pchase.options import Stream

_BRIEF = "chain=1m,seconds=0.05,experiments=3"
_CHASES = (
    "line=128",
    "page=0",
    "mmu_page=thp",
    "mmu_page=2m",
    "mmu_page=1g",
    "chains=4",
    "threads=2",
    "iterations=100",
    "access=forward",
    "access=forward,stride=3",
    "access=reverse",
    "numa=xor:0",
    "numa=add:0",
    "numa=map:0/0",
    "numa=map:1/0",
    "hint=t0",
    "hint=t1",
    "hint=t2",
    "hint=nta",
    "hint=t0,ahead=8",
    "work=100",
    "loaders=1",
    "loaders=1,load=write,load_memory=8m,load_delay=64",
    "pin=false",
    "seed=7",
    "access=page_random",
    "access=same_set",
    "laps=8",
    "cpus=0",
    "nice=5",
    "fifo=10",
    "memory_cap=1g",
    "time_limit=60",
)
EXAMPLES = (
    _BRIEF,
    *(f"{_BRIEF},{one}" for one in _CHASES),
    *(f"mode=bandwidth,load={one},seconds=0.05,experiments=3" for one in get_args(Stream)),
    *(f"mode=bandwidth,vector={one},seconds=0.05,experiments=3" for one in (16, 32, 64)),
    "mode=curve,chain=8m",
    "mode=tlb,chain=16m,seconds=0.05,experiments=3",
    "mode=parallel,chain=16m,page=0,experiments=3",
    "mode=cores",
    "mode=numa,chain=16m,seconds=0.05,experiments=3,load_memory=16m",
    # Refused, and how.
    "chain=100g",
    "chain=0",
    "chain=100",
    "line=7",
    "chains=100000",
    "threads=10000",
)

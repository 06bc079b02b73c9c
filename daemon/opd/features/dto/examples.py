"""Options of dto, each quick to measure, that together name every one."""

from __future__ import annotations

_QUICK = "size=4k,iterations=100,rounds=2,looks=1"

_BUILT = (
    "current=git:HEAD,tree=/usr/src/library,build=make,current_build=make all,artifact=library.a,"
    "link=-lm,build_limit=60,layouts=2"
)

EXAMPLES = (
    f"{_QUICK},cpus=0,nice=5,memory_cap=256m,time_limit=60",
    f"{_QUICK},fifo=1,perf_cpu=0",
    f"{_QUICK},op=memset,baseline=sse2,current=rep-movsb",
    f"{_QUICK},op=memmove,overlap=64,warmup=5",
    f"{_QUICK},op=memcmp,source_offset=1,destination_offset=3",
    f"{_QUICK},cold=1,pf=50,seed=1",
    f"{_QUICK},mode=stdc,reference=1,round_limit=10",
    f"{_QUICK},inject=5,perf_min_effect=4",
    f"{_QUICK},page=2m",
    f"{_QUICK},mode=dsa,queues=wq0.0,wait=yield,near=1,dsa_timeout=1",
    "size=64k,perf_ab_rounds=1,perf_iters=100,perf_cold_cache=1,results_dir=out",
    "size=64k,perf_short=1,perf_core_freq_mhz=0,perf_uncore_freq_mhz=0",
    f"{_QUICK},{_BUILT}",
    "what=answers,threshold=4k,largest=16k,threads=2,random_cases=100",
)

"""Each option of the page-fault test once, and each kind: what ``make bench ARGS=options`` runs."""

from __future__ import annotations

from opd.features.pft.kinds import KINDS

_SMALL = "memory=16m,repeats=3"
_OPTIONS = (
    "memory_each=8m,threads=2",
    "memory=16m,threads=2",
    "memory=16m,processes=2",
    "memory=16m,repeats=5",
    "memory=16m,warmup=0",
    "memory=16m,cachelines=64",
    "memory=16m,line=128,cachelines=32",
    "memory=16m,clear=true",
    "memory=16m,mlock=true",
    "memory=16m,kind=shm,shm_lock=true",
    "memory=16m,multimap=true,threads=2",
    "memory=16m,packed=true,threads=2",
    "memory=16m,policy=default",
    "memory=16m,policy=local",
    "memory=16m,policy=preferred",
    "memory=16m,policy=bind,nodes=0",
    "memory=16m,policy=interleave,nodes=0",
    "memory=16m,policy=weighted_interleave,nodes=0",
    "memory=16m,policy=bind,node=0",
    "memory=16m,cpu_node=0",
    "memory=16m,numa=true",
    "memory=16m,pin=false,threads=2",
    "memory=16m,cpu_offset=1",
    "memory=16m,cpus=0",
    "memory=16m,fifo=50,threads=2",
    "memory=16m,nice=5",
    "memory=16m,delay=0.1,threads=2",
    "memory=16m,pause=0.1",
    "memory=16m,latency=false",
    "memory=16m,rusage=self,threads=2",
    "memory=16m,directory=/tmp,kind=file",
    "memory=16m,kind=mthp,folio=64k",
    "memory=16m,memory_cap=1g",
    "memory=16m,time_limit=60",
    "memory=16m,tag=t,plotid=p,title=T,subtitle=S,legend=L",
    # Refused, and how.
    "memory=16m,noclear=true",
    "memory=100g",
    "memory=99999999999g",
    "memory=0",
    "memory=16m,threads=10000",
    "memory=16m,cpus=99",
    "memory=16m,policy=bind,nodes=9",
    "memory=16m,cpu_node=9",
    "memory=16m,memory_cap=1m",
    "kind=hugetlb_2m,memory=64g",
)
EXAMPLES = (*(f"{_SMALL},kind={kind}" for kind in KINDS), *_OPTIONS)

"""``opctl mem``: accesses to memory by symbol, source, cache line, page and node.

Answers come of the accesses that were kept, each of which stands for
offered / kept of its window; where all were kept they are exact. Totals by
load or store, source and TLB are exact always, and of all accesses in the
range, whatever ``where`` says.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from opd.sampling.payload import (
    HAS_ADDRESS,
    HAS_LATENCY,
    HAS_PHYSICAL,
    LOAD,
    MODIFIED,
    REMOTE,
    SOURCES,
    STORE,
    TLBS,
)
from opd.stats.histogram import Histogram
from opd.stats.intervals import share_interval
from opd.store.keys import KEYS
from opd.store.precise.nodes import UNKNOWN, Nodes
from opd.store.precise.reading import Chosen, Shower, check_keys, event_among
from opd.store.precise.sharing import LINE, Line
from opd.store.quality import read_range
from opd.store.reports import stretches_of
from opd_native.payload import latency_bucket

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from opd.store.precise.reading import Found, PreciseQuery
    from opd.store.runs import Run

DEFAULT_BY = ("symbol",)
PAGE = 4096
LINES_MOST = 1 << 18

# What stands in for a key that the access does not tell.
NOT_TOLD = "-"
_REMOTE = {SOURCES.index("far-cache"), SOURCES.index("remote-dram")}
_DRAM = {SOURCES.index("dram"), SOURCES.index("remote-dram")}


class MemoryRow(msgspec.Struct, frozen=True):
    """One row: ``kept`` accesses stand for ``accesses``; ``percent`` of them with its interval.

    ``latency_*`` in core cycles, of loads that missed the data cache, None
    without any. ``threads``, ``sharing`` and ``bytes`` are told of lines.
    """

    accesses: float
    kept: int
    percent: float
    percent_low: float
    percent_high: float
    loads: float
    stores: float
    dram: float
    remote: float
    modified: float
    tlb_missed: float
    timed: int
    latency_mean: float | None
    latency_p50: float | None
    latency_p99: float | None
    threads: int
    sharing: str
    bytes: int


class MemoryTotal(msgspec.Struct, frozen=True):
    """An exact sum: accesses, of them with a latency, and its sum in core cycles."""

    op: str
    source: str
    tlb: str
    accesses: int
    timed: int
    latency: int


class MemoryResult(msgspec.Struct, frozen=True, kw_only=True):
    """Rows as columns, most accesses first.

    ``offered`` accesses there were, ``lost`` of them for want of memory,
    ``kept`` were drawn and ``chosen`` of these are what the answer is about.
    """

    by: tuple[str, ...]
    session: str
    keys: dict[str, list[str] | list[int]]
    rows: list[MemoryRow]
    groups: int
    totals: list[MemoryTotal]
    offered: int
    lost: int
    kept: int
    chosen: int
    covered_s: float
    quality: dict[str, object]
    damaged: int
    where: str | None


class _Sum:
    """What the accesses of one row add up to."""

    __slots__ = ("kept", "latencies", "latency", "line", "parts")

    def __init__(self) -> None:
        self.kept = 0
        self.parts = [0.0] * len(_PARTS)
        self.latency = 0
        self.latencies: Counter[int] = Counter()
        self.line: Line | None = None


_PARTS = ("accesses", "loads", "stores", "dram", "remote", "modified", "tlb_missed")


class _Access(NamedTuple):
    address: int
    physical: int
    tid: int
    cpu: int
    flags: int
    source: int
    tlb: int
    width: int


class _Kind(NamedTuple):
    """What the bits of ``what`` say: which parts of a row grow."""

    flags: int
    source: int
    tlb: int
    width: int
    parts: tuple[int, ...]


def _kind(what: int) -> _Kind:
    flags, source = what & 255, min(what >> 8 & 255, len(SOURCES) - 1)
    tlb = what >> 16 & 3
    there = (
        True,
        flags & LOAD,
        flags & STORE,
        source in _DRAM,
        what & REMOTE or source in _REMOTE,
        flags & MODIFIED,
        tlb == TLBS.index("miss"),
    )
    parts = tuple(at for at, yes in enumerate(there) if yes)
    return _Kind(flags, source, tlb, what >> 24, parts)


class Memory:
    """One question."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        query: PreciseQuery,
        runs: Sequence[Run],
        *,
        nodes: Callable[[Run], Nodes | None],
    ) -> None:
        """``nodes``: those of the machine that a run is of, where they are known.

        Raises UnknownNameError, UsageError.
        """
        self._connection = connection
        self._query = query
        self._runs = runs
        self._nodes = nodes
        self._by = query.by or DEFAULT_BY
        check_keys(self._by, runs, tuple(_OWN))
        told = event_among(runs, ("IBS_OP_ALL_LOAD_STORE", "IBS_OP_ALL", "ibs_op"))
        self._stretches = stretches_of(runs, query.since_ns, query.until_ns, told)
        self._chosen = Chosen(connection, runs, self._stretches, query.where)
        shared = [key for key in self._by if key in KEYS]
        self._shower = Shower(connection, shared, self._chosen.events)
        self._own = [key for key in self._by if key not in KEYS]
        self._sums: dict[tuple[object, ...], _Sum] = defaultdict(_Sum)
        self._totals: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        self._kinds: dict[int, _Kind] = {}
        self._offered = self._lost = self._kept = self._taken = 0

    def answer(self) -> MemoryResult:
        """Read and sum."""
        for found in self._chosen.read(("access", "total")):
            if found.kind == "total":
                self._add_totals(found)
            else:
                self._add(found)
        order = sorted(self._sums, key=lambda key: (-self._sums[key].parts[0], *map(str, key)))
        groups = len(order)
        if self._query.top > 0:
            del order[self._query.top :]
        quality, covered_s = read_range(self._connection, self._stretches, None)
        whole = sum(item.parts[0] for item in self._sums.values())
        return MemoryResult(
            by=tuple(self._by),
            session=self._runs[-1].info.session,
            keys=self._columns(order),
            rows=[self._row(self._sums[key], whole) for key in order],
            groups=groups,
            totals=self._shown_totals(),
            offered=self._offered,
            lost=self._lost,
            kept=self._kept,
            chosen=self._taken,
            covered_s=covered_s,
            quality=quality,
            damaged=self._chosen.damaged,
            where=self._query.where,
        )

    # ---- adding up

    def _add_totals(self, found: Found) -> None:
        columns = found.columns
        for what, *numbers in zip(
            *(columns[name] for name in ("what", "count", "timed", "latency")), strict=True
        ):
            sums = self._totals[what]
            for at, number in enumerate(numbers):
                sums[at] += number

    def _add(self, found: Found) -> None:
        self._offered += found.offered
        self._lost += found.lost
        self._kept += found.rows
        if not found.rows:
            return
        scale = found.offered / found.rows
        cells_of = self._chosen.cells(found)
        nodes = self._nodes(found.run) if "node" in self._own else None
        columns = found.columns
        shared: dict[tuple[int, int], tuple[int, ...] | None] = {}
        for sfile, symbol, address, physical, tid, cpu, latency, what in zip(
            *(
                columns[name]
                for name in (
                    *("sfile", "symbol", "address", "physical"),
                    *("tid", "cpu", "latency", "what"),
                )
            ),
            strict=True,
        ):
            about = (sfile, symbol)
            if about not in shared:
                cells = cells_of(sfile, symbol)
                shared[about] = self._shower.key(cells) if self._chosen.passes(cells) else None
            key = shared[about]
            if key is None:
                continue
            kind = self._kinds.get(what)
            if kind is None:
                kind = self._kinds[what] = _kind(what)
            self._taken += 1
            access = _Access(
                *(address, physical, tid, cpu, kind.flags, kind.source, kind.tlb, kind.width)
            )
            item = self._item(key, access, nodes, found.sfiles[2][sfile])
            item.kept += 1
            for at in kind.parts:
                item.parts[at] += scale
            if kind.flags & HAS_LATENCY:
                item.latency += latency
                item.latencies[latency] += 1

    def _item(
        self, shared: tuple[int, ...], access: _Access, nodes: Nodes | None, process: int
    ) -> _Sum:
        """The row of an access."""
        own = tuple(_OWN[key](access, nodes, process) for key in self._own)
        key = (*shared, *own)
        if own and key not in self._sums and len(self._sums) >= LINES_MOST:
            key = (*shared, *(NOT_TOLD for _ in own))
        item = self._sums[key]
        if "line" in self._own and access.flags & (HAS_ADDRESS | HAS_PHYSICAL):
            if item.line is None:
                item.line = Line()
            at = access.address if access.flags & HAS_ADDRESS else access.physical
            item.line.add(access.tid, at % LINE, access.width, store=bool(access.flags & STORE))
        return item

    # ---- showing

    def _columns(self, order: Sequence[tuple[object, ...]]) -> dict[str, list[str] | list[int]]:
        shared = len(self._by) - len(self._own)
        shown = self._shower.columns([key[:shared] for key in order])  # type: ignore[misc]
        for at, name in enumerate(self._own):
            cells: Any = [key[shared + at] for key in order]
            shown[name] = cells
        return {name: shown[name] for name in self._by}

    @staticmethod
    def _row(item: _Sum, whole: float) -> MemoryRow:
        accesses, loads, stores, dram, remote, modified, tlb_missed = item.parts
        share = accesses / whole if whole else 0.0
        # As sure as the accesses are many that the share was counted from.
        low, high = share_interval(item.kept, item.kept / share) if share else (0.0, 1.0)
        histogram = Histogram(
            (latency_bucket(value), count) for value, count in item.latencies.items()
        )
        timed = histogram.n
        return MemoryRow(
            accesses=accesses,
            kept=item.kept,
            percent=100 * share,
            percent_low=100 * low,
            percent_high=100 * high,
            loads=loads,
            stores=stores,
            dram=dram,
            remote=remote,
            modified=modified,
            tlb_missed=tlb_missed,
            timed=timed,
            latency_mean=item.latency / timed if timed else None,
            latency_p50=histogram.quantile(0.5)[0] if timed else None,
            latency_p99=histogram.quantile(0.99)[0] if timed else None,
            threads=item.line.threads if item.line else 0,
            sharing=item.line.sharing() if item.line else "",
            bytes=item.line.offsets if item.line else 0,
        )

    def _shown_totals(self) -> list[MemoryTotal]:
        return [
            MemoryTotal(
                _op(what),
                SOURCES[min(what >> 8 & 255, len(SOURCES) - 1)],
                TLBS[what >> 16 & 3],
                *numbers,
            )
            for what, numbers in sorted(
                self._totals.items(), key=lambda item: (-item[1][0], item[0])
            )
        ]


def _op(flags: int) -> str:
    return ("-", "load", "store", "load+store")[flags & (LOAD | STORE)]


def _node(access: _Access, nodes: Nodes | None, _process: int) -> int:
    if nodes is None or not access.flags & HAS_PHYSICAL:
        return UNKNOWN
    return nodes.of(access.physical)


def _place(access: _Access, process: int, unit: int) -> str:
    """A piece of memory: by its physical address, else by process and its own address."""
    if access.flags & HAS_PHYSICAL:
        return f"{access.physical // unit * unit:#x}"
    if access.flags & HAS_ADDRESS:
        return f"{process - 1}:{access.address // unit * unit:#x}"
    return NOT_TOLD


# Keys that only accesses have, beside those of reports.
_OWN: dict[str, Callable[[_Access, Nodes | None, int], object]] = {
    "source": lambda access, _nodes, _process: SOURCES[access.source],
    "tlb": lambda access, _nodes, _process: TLBS[access.tlb],
    "op": lambda access, _nodes, _process: _op(access.flags),
    "node": _node,
    "page": lambda access, _nodes, process: _place(access, process, PAGE),
    "line": lambda access, _nodes, process: _place(access, process, LINE),
    "tid": lambda access, _nodes, _process: access.tid,
    "core": lambda access, _nodes, _process: access.cpu,
}

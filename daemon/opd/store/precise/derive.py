"""``opctl derive``: a derived event that was not asked for, from the raw records that were kept.

Of each window a fair draw of the records is kept (all, when there were few).
Each window is a stratum: what share of its draw satisfies the event, times how
many records it had. The interval is that of draws without putting back; where
all records were kept the answer is exact.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from opd.errors import UnknownNameError
from opd.stats.intervals import estimate_total
from opd.store.payloads import split_records
from opd.store.precise.reading import Chosen, Shower, check_keys, event_among
from opd.store.quality import read_range
from opd.store.reports import Report, ReportQuery, stretches_of
from opd.store.runs import events_of
from opd_native.ibs import Machine, derived_event, derived_events, satisfied

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from opd.store.precise.reading import Found, PreciseQuery
    from opd.store.runs import Run
    from opd_native.ibs import DerivedEvent

DEFAULT_BY = ("symbol",)


class DeriveRow(msgspec.Struct, frozen=True):
    """``hits`` of the kept records stand for ``samples``, at 95 % between ``low`` and ``high``.

    ``mean``: of what the event adds up (cycles, requests), None for others.
    """

    samples: float
    low: float
    high: float
    hits: int
    mean: float | None


class DeriveResult(msgspec.Struct, frozen=True, kw_only=True):
    """Rows as columns, most samples first; ``total`` is of all of them.

    ``offered`` records there were, ``kept`` of them were drawn. ``counted``:
    samples of the event where the session counted it too, else None.
    """

    event: DerivedEvent
    session: str
    keys: dict[str, list[str] | list[int]]
    rows: list[DeriveRow]
    groups: int
    total: DeriveRow
    offered: int
    kept: int
    lost: int
    counted: int | None
    covered_s: float
    quality: dict[str, object]
    damaged: int
    where: str | None


class _Key:
    """Records of one key: hits by stratum, and the sum of what they add."""

    __slots__ = ("hits", "sum")

    def __init__(self) -> None:
        self.hits: dict[int, int] = defaultdict(int)
        self.sum = 0


def find_derived(name: str) -> DerivedEvent:
    """The event of that name. Raises UnknownNameError."""
    event = derived_event(name)
    if event is None:
        from opd.config.nearest import did_you_mean  # for mistakes alone

        names = [event.name for event in derived_events()]
        raise UnknownNameError(
            f"no derived event {name[:100]!r}{did_you_mean(name[:100], names)}",
            hint=f"there are: {' '.join(names)}",
        )
    return event


class Derive:
    """One question."""

    def __init__(
        self, connection: sqlite3.Connection, name: str, query: PreciseQuery, runs: Sequence[Run]
    ) -> None:
        """Raises UnknownNameError, UsageError."""
        self._connection = connection
        self._query = query
        self._runs = runs
        self._event = find_derived(name)
        self._by = query.by or DEFAULT_BY
        check_keys(self._by, runs)
        pmu = self._event.flavour.pmu
        told = event_among(runs, (f"{pmu.upper()}_ALL", pmu))
        self._stretches = stretches_of(runs, query.since_ns, query.until_ns, told)
        self._chosen = Chosen(connection, runs, self._stretches, query.where)
        self._shower = Shower(connection, self._by, self._chosen.events)
        self._keys: dict[tuple[int, ...], _Key] = defaultdict(_Key)
        self._strata: list[tuple[int, int]] = []  # offered, drawn
        self._lost = 0

    def answer(self) -> DeriveResult:
        """Read, decode and estimate."""
        for found in self._chosen.read((f"record.{self._event.flavour.pmu}",)):
            self._add(found)
        rows = {key: self._row([one]) for key, one in self._keys.items()}
        order = sorted(rows, key=lambda key: (-rows[key].samples, key))
        groups = len(order)
        if self._query.top > 0:
            del order[self._query.top :]
        quality, covered_s = read_range(self._connection, self._stretches, None)
        return DeriveResult(
            event=self._event,
            session=self._runs[-1].info.session,
            keys=self._shower.columns(order),
            rows=[rows[key] for key in order],
            groups=groups,
            total=self._row(list(self._keys.values())),
            offered=sum(offered for offered, _drawn in self._strata),
            kept=sum(drawn for _offered, drawn in self._strata),
            lost=self._lost,
            counted=self._counted(),
            covered_s=covered_s,
            quality=quality,
            damaged=self._chosen.damaged,
            where=self._query.where,
        )

    def _add(self, found: Found) -> None:
        stratum = len(self._strata)
        self._strata.append((found.offered, found.rows))
        self._lost += found.lost
        info = found.run.info
        machine = Machine.of(info.cpuid, info.kernel_release) or Machine()
        records = split_records(found.columns["length"], found.records)
        cells_of = self._chosen.cells(found)
        values = satisfied(self._event, records, machine)
        for sfile, symbol, value in zip(
            found.columns["sfile"], found.columns["symbol"], values, strict=True
        ):
            if value is None:
                continue
            cells = cells_of(sfile, symbol)
            if self._chosen.passes(cells):
                one = self._keys[self._shower.key(cells)]
                one.hits[stratum] += 1
                one.sum += value

    def _row(self, keys: Sequence[_Key]) -> DeriveRow:
        hits = [0] * len(self._strata)
        for one in keys:
            for stratum, count in one.hits.items():
                hits[stratum] += count
        samples, low, high = estimate_total(
            [(*stratum, having) for stratum, having in zip(self._strata, hits, strict=True)]
        )
        total = sum(hits)
        mean = sum(one.sum for one in keys) / total if total and self._event.sums else None
        return DeriveRow(samples, low, high, total, mean)

    def _counted(self) -> int | None:
        query = self._query
        if self._event.name not in events_of(self._runs):
            return None
        asked = ReportQuery(
            event=self._event.name,
            sort=("comm",),
            since_ns=query.since_ns,
            until_ns=query.until_ns,
            where=query.where,
        )
        return Report(self._connection, asked, self._runs).answer().total

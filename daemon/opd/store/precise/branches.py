"""``opctl branches``: retired branches from where to where, how often taken and mispredicted."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from opd.stats.intervals import share_interval
from opd.store.precise.reading import Chosen, event_among
from opd.store.quality import read_range
from opd.store.reports import stretches_of
from opd.store.stacks import StackReader

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from opd.store.precise.reading import PreciseQuery
    from opd.store.runs import Run

# What rows are told apart by.
BY = ("symbol", "address")


class BranchRow(msgspec.Struct, frozen=True):
    """Samples of one pair; the share that was mispredicted has its interval at 95 %.

    ``address`` and ``to_address`` are offsets in the images, "" by symbol.
    """

    samples: int
    percent: float
    taken: int
    mispredicted: int
    returns: int
    misprediction: float
    misprediction_low: float
    misprediction_high: float
    image: str
    symbol: str
    address: str
    to_image: str
    to_symbol: str
    to_address: str


class BranchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Most samples first. Of ``offered`` samples with a target ``lost`` had no room."""

    by: str
    session: str
    rows: list[BranchRow]
    groups: int
    samples: int
    taken: int
    mispredicted: int
    offered: int
    lost: int
    covered_s: float
    quality: dict[str, object]
    damaged: int
    where: str | None


def answer_branches(
    connection: sqlite3.Connection, query: PreciseQuery, runs: Sequence[Run], *, by: str
) -> BranchResult:
    """Read and sum. Raises UnknownNameError, UsageError for what ``where`` gets wrong."""
    told = event_among(runs, ("IBS_OP_BRANCH_RETIRED", "IBS_OP_ALL", "ibs_op"))
    stretches = stretches_of(runs, query.since_ns, query.until_ns, told)
    chosen = Chosen(connection, runs, stretches, query.where)
    sums: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    offered = lost = 0
    for found in chosen.read(("branch",)):
        offered += found.offered
        lost += found.lost
        cells_of, columns = chosen.cells(found), found.columns
        for sfile, symbol, *rest in zip(
            *(
                columns[name]
                for name in (
                    *("sfile", "symbol", "stack", "to_stack"),
                    *("count", "taken", "mispredicted", "return"),
                )
            ),
            strict=True,
        ):
            if not chosen.passes(cells_of(sfile, symbol)):
                continue
            item = sums[rest[0], rest[1]]
            for at, number in enumerate(rest[2:]):
                item[at] += number
    grouped = _grouped(connection, sums, by)
    order = sorted(grouped, key=lambda key: (-grouped[key][0], -grouped[key][2], key))
    groups = len(order)
    if query.top > 0:
        del order[query.top :]
    quality, covered_s = read_range(connection, stretches, None)
    samples, taken, mispredicted, _returns = [
        sum(column) for column in zip(*sums.values(), strict=True)
    ] or [0] * 4
    return BranchResult(
        by=by,
        session=runs[-1].info.session,
        rows=[_row(key, grouped[key], samples) for key in order],
        groups=groups,
        samples=samples,
        taken=taken,
        mispredicted=mispredicted,
        offered=offered,
        lost=lost,
        covered_s=covered_s,
        quality=quality,
        damaged=chosen.damaged,
        where=query.where,
    )


def _grouped(
    connection: sqlite3.Connection, sums: dict[tuple[int, int], list[int]], by: str
) -> dict[tuple[str, ...], list[int]]:
    """By image, symbol and address of both ends: stacks differ above the branch too."""
    numbers = sorted({number for pair in sums for number in pair})
    stacks = StackReader(connection).read(numbers)
    ends: dict[int, tuple[str, str, str]] = {}
    for number, stack in zip(numbers, stacks, strict=True):
        leaf = stack.frames[0] if stack.frames else None
        if leaf is None:
            ends[number] = ("[unknown]", "[unknown]", "")
        else:
            address = f"{leaf.address:#x}" if by == "address" else ""
            ends[number] = (leaf.image, leaf.name, address)
    grouped: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for (start, target), numbers_of in sums.items():
        item = grouped[(*ends[start], *ends[target])]
        for at, number in enumerate(numbers_of):
            item[at] += number
    return grouped


def _row(key: tuple[str, ...], numbers: list[int], whole: int) -> BranchRow:
    samples, taken, mispredicted, returns = numbers
    low, high = share_interval(mispredicted, samples)
    return BranchRow(
        *(samples, 100 * samples / whole if whole else 0.0, taken, mispredicted, returns),
        *(mispredicted / samples if samples else 0.0, low, high),
        *key,
    )

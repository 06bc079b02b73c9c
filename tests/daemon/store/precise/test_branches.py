"""Branches against counts of the single samples."""

from collections import defaultdict

import pytest
from precise_samples import random_ops, store_ops, symbol
from synthetic import IMAGES

from opd.errors import UnknownNameError
from opd.query.backend import OfflineBackend
from opd.query.tables import to_rows
from opd.stats.intervals import share_interval
from opd.store.precise.reading import PreciseQuery
from opd.store.queries import open_reader

OPS = [random_ops(seed, 900) for seed in range(3)]
BRANCHES = [op for ops in OPS for op in ops if op.target]
PATHS = {info.uid: info.path for info in IMAGES}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of the ops."""
    directory = tmp_path_factory.mktemp("branches")
    store_ops(directory, OPS)
    return directory


def expected(ops, by):
    """Samples, taken, mispredicted by both ends."""
    sums = defaultdict(lambda: [0, 0, 0])
    for op in ops:
        ends = []
        for frame in (op.frame, op.target):
            ends += [PATHS[frame[0]], symbol(op, frame)]
            ends.append(f"{frame[1] + 0x1000:#x}" if by == "address" else "")
        for at, number in enumerate((1, op.taken, op.mispredicted)):
            sums[tuple(ends)][at] += number
    return dict(sums)


@pytest.mark.parametrize("by", ["symbol", "address"])
def test_branches_go_from_where_to_where(store, by):
    """Also to where no sample was; most samples first."""
    with open_reader(store) as reader:
        result = reader.branches(PreciseQuery(top=0), by)
    found = {
        (row.image, row.symbol, row.address, row.to_image, row.to_symbol, row.to_address): [
            *(row.samples, row.taken, row.mispredicted)
        ]
        for row in result.rows
    }
    assert found == expected(BRANCHES, by)
    samples = [row.samples for row in result.rows]
    assert samples == sorted(samples, reverse=True)
    row = result.rows[0]
    assert (row.misprediction_low, row.misprediction_high) == share_interval(
        row.mispredicted, row.samples
    )
    assert (result.samples, result.offered, result.lost) == (len(BRANCHES), len(BRANCHES), 0)
    assert result.mispredicted == sum(op.mispredicted for op in BRANCHES)


def test_branches_take_a_filter(store):
    """Of where they start."""
    with open_reader(store) as reader:
        result = reader.branches(PreciseQuery(top=1, where="comm=worker2"), "symbol")
        nothing = reader.branches(PreciseQuery(where="comm=nobody"), "symbol")
    assert result.samples == sum(op.comm == "worker2" for op in BRANCHES)
    assert len(result.rows) == 1
    assert (nothing.rows, nothing.samples) == ([], 0)


def test_branches_travel(store):
    """By symbol there is no address; another word for by is refused."""
    with OfflineBackend(store) as backend:
        rows = to_rows(backend.call("branches", {"top": 0})["rows"])
        by_address = to_rows(backend.call("branches", {"by": "address"})["rows"])
        with pytest.raises(UnknownNameError, match="valid: symbol, address"):
            backend.call("branches", {"by": "line"})
    assert sum(row["samples"] for row in rows) == len(BRANCHES)
    assert "address" not in rows[0]
    assert by_address[0]["to_address"].startswith("0x")

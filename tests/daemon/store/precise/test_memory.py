"""Accesses to memory against counts of the single samples; estimates within their intervals."""

from collections import Counter, defaultdict

import pytest
from precise_samples import Op, random_ops, store_ops, symbol

from opd.errors import UnknownNameError
from opd.query.backend import OfflineBackend
from opd.query.tables import to_rows
from opd.store.precise.nodes import Nodes
from opd.store.precise.reading import PreciseQuery
from opd.store.precise.sharing import Line
from opd.store.queries import open_reader

OPS = [random_ops(seed, 900) for seed in range(3)]
ACCESSES = [op for ops in OPS for op in ops if op.load or op.store]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store in which every access was kept."""
    directory = tmp_path_factory.mktemp("whole")
    store_ops(directory, OPS)
    return directory


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A store in which 200 accesses of each window were kept."""
    directory = tmp_path_factory.mktemp("drawn")
    store_ops(directory, OPS, draw=200)
    return directory


def ask(directory, **query):
    """The answer, and its rows by their keys."""
    with open_reader(directory) as reader:
        result = reader.memory(PreciseQuery(top=0, **query))
    return result, dict(zip(zip(*result.keys.values(), strict=True), result.rows, strict=True))


def test_kept_whole_counts_are_exact(whole):
    """By symbol and source: accesses, loads, stores, DRAM and latencies as in the ops."""
    result, rows = ask(whole, by=("symbol", "source"))
    expected = defaultdict(list)
    for op in ACCESSES:
        expected[symbol(op), op.source].append(op)
    assert rows.keys() == expected.keys()
    for key, ops in expected.items():
        row = rows[key]
        assert (row.accesses, row.kept) == (len(ops), len(ops))
        assert row.loads == sum(op.load for op in ops)
        assert row.stores == sum(op.store for op in ops)
        assert row.dram == sum("dram" in op.source for op in ops)
        assert row.remote == sum(op.source == "remote-dram" for op in ops)
        assert row.tlb_missed == sum(op.tlb == "miss" for op in ops)
        timed = [op.latency for op in ops if op.latency]
        assert row.timed == len(timed)
        assert row.latency_mean == (sum(timed) / len(timed) if timed else None)
        assert row.percent == pytest.approx(100 * len(ops) / len(ACCESSES))
        assert row.percent_low <= row.percent <= row.percent_high
    assert (result.offered, result.kept, result.chosen) == (len(ACCESSES),) * 3


def test_totals_are_exact_whatever_was_drawn(drawn):
    """By load or store, source and TLB."""
    result, _rows = ask(drawn, by=("source",))
    expected = Counter(("load" if op.load else "store", op.source, op.tlb) for op in ACCESSES)
    found = {(total.op, total.source, total.tlb): total for total in result.totals}
    assert {key: total.accesses for key, total in found.items()} == expected
    assert sum(total.latency for total in result.totals) == sum(op.latency for op in ACCESSES)


def test_an_estimate_is_near_and_knows_how_near(drawn):
    """Drawn accesses stand for all: sums are right, shares within their intervals mostly."""
    result, rows = ask(drawn, by=("source",))
    assert result.kept == 600
    assert result.offered == len(ACCESSES)
    assert sum(row.accesses for row in rows.values()) == pytest.approx(len(ACCESSES))
    exact = Counter(op.source for op in ACCESSES)
    inside = [
        row.percent_low <= 100 * exact[source] / len(ACCESSES) <= row.percent_high
        for (source,), row in rows.items()
    ]
    # Of draws without putting back these intervals are wide: all of a fixed draw are inside.
    assert all(inside)


def test_a_filter_is_a_reports(whole):
    """The keys of report, joined as there."""
    result, rows = ask(whole, by=("comm",), where="comm=worker1 and not pid=103")
    chosen = [op for op in ACCESSES if op.comm == "worker1" and op.tgid != 103]
    assert rows["worker1",].accesses == len(chosen)
    assert result.chosen == len(chosen)
    with open_reader(whole) as reader, pytest.raises(UnknownNameError, match="unknown key 'cpu'"):
        reader.memory(PreciseQuery(by=("cpu",)))
    with open_reader(whole) as reader, pytest.raises(UnknownNameError, match="valid: source, tlb"):
        reader.memory(PreciseQuery(by=("sauce",)))


def test_lines_and_pages_are_pieces_of_physical_memory(whole):
    """Each access is in one; a line knows its threads."""
    _result, rows = ask(whole, by=("line",))
    expected = defaultdict(set)
    for op in ACCESSES:
        expected[f"{op.physical // 64 * 64:#x}",].add(op.tid)
    assert {key: row.threads for key, row in rows.items()} == {
        key: len(threads) for key, threads in expected.items()
    }
    _result, rows = ask(whole, by=("page",))
    pages = Counter(f"{op.physical // 4096 * 4096:#x}" for op in ACCESSES)
    assert {key[0]: row.accesses for key, row in rows.items()} == pages


def make_lines(**kinds):
    """A line for each name; (tid, offset, store) of its accesses."""
    ops = []
    for at, accesses in enumerate(kinds.values()):
        for tid, offset, store in accesses:
            address = 0x1000 + 64 * at + offset
            ops.append(
                Op("w", 1, tid, 0, (2, 0), load=not store, store=store, source="l1",
                   address=address, physical=address)
            )  # fmt: skip
    return ops


def test_sharing_is_told_by_who_writes_which_bytes(tmp_path):
    """One thread; readers; a writer of what others read; writers of bytes of their own."""
    ops = make_lines(
        alone=[(1, 0, True), (1, 8, False)],
        read=[(1, 0, False), (2, 0, False)],
        true=[(1, 0, True), (2, 0, False)],
        false=[(1, 0, True), (2, 8, True)],
        mixed=[(1, 0, True), (2, 0, True), (3, 8, False)],
    )
    store_ops(tmp_path, [ops])
    _result, rows = ask(tmp_path, by=("line",))
    assert [rows[f"{0x1000 + 64 * at:#x}",].sharing for at in range(5)] == [
        *("", "read", "true", "false", "mixed")
    ]
    assert rows["0x10c0",].bytes == 16


def test_a_line_remembers_so_many_threads():
    """Past them none is added, and what is known stays."""
    line = Line()
    for tid in range(100):
        line.add(tid, 0, 200, store=False)
    assert line.threads == Line.MOST
    assert (line.sharing(), line.offsets) == ("read", 64)


def test_nodes_are_read_from_sysfs(tmp_path, whole):
    """A block of memory belongs to the node whose folder has it; others to none."""
    for node, blocks in ((0, (0, 1)), (1, (100,))):
        for block in blocks:
            (tmp_path / f"node/node{node}/memory{block}").mkdir(parents=True)
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/block_size_bytes").write_text("40000000\n")
    nodes = Nodes.read(str(tmp_path))
    assert [nodes.of(address << 30) for address in (0, 1, 2, 100)] == [0, 0, -1, 1]
    with open_reader(whole) as reader:
        result = reader.memory(PreciseQuery(by=("node",), top=0), lambda _run: nodes)
    expected = Counter(nodes.of(op.physical) for op in ACCESSES)
    found = dict(zip(result.keys["node"], result.rows, strict=True))
    assert {node: row.accesses for node, row in found.items()} == expected
    one = tmp_path / "one"
    (one / "node/node0").mkdir(parents=True)
    assert Nodes.read(str(one)).of(123 << 40) == 0
    assert Nodes.read(str(tmp_path / "none")).of(0) == -1


def test_mem_travels(whole):
    """Columns of the measures, then the keys; lines have three more."""
    with OfflineBackend(whole) as backend:
        answer = backend.call("mem", {"by": "line,op", "top": 3})
        plain = backend.call("mem", {"top": 0})
    rows = to_rows(answer["rows"])
    assert len(rows) == 3
    assert {"threads", "sharing", "bytes", "line", "op"} <= rows[0].keys()
    assert answer["groups"] > 3
    assert plain["by"] == ["symbol"]
    assert sum(row["accesses"] for row in to_rows(plain["rows"])) == len(ACCESSES)


def test_a_store_without_payloads_has_no_accesses(tmp_path):
    """An answer of nothing, not an error."""
    store_ops(tmp_path, [])
    result, rows = ask(tmp_path, by=("source",))
    assert (rows, result.offered, result.totals) == ({}, 0, [])

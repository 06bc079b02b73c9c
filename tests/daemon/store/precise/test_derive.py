"""Estimates from a draw of raw records, against all of them."""

import random
from array import array

import pytest
from plain_names import PlainNames
from synthetic import IMAGES, Hit, make_run, make_window

from ibs_facts import draw_ops
from opd.errors import UnknownNameError
from opd.query.backend import OfflineBackend
from opd.sampling.payload import Payload
from opd.sampling.window import EventInfo
from opd.store.precise.reading import PreciseQuery
from opd.store.queries import open_reader
from opd.store.writer import StoreWriter

WINDOWS, RECORDS, KEPT = 12, 900, 200
FACTS = [draw_ops(seed, RECORDS) for seed in range(WINDOWS)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store whose windows kept some of their records; two processes."""
    directory = tmp_path_factory.mktemp("derive")
    writer = StoreWriter(directory, PlainNames)
    events = [EventInfo("ibs_op", "ibs_op", "count", period=250_000, feature="ibs_op")]
    writer.open_run(
        make_run(events=events, kind="import", cpuid="AuthenticAMD,25,17,1", kernel_release="6.8.0")
    )
    writer.add_images([(info, None) for info in IMAGES])
    for sequence, facts in enumerate(FACTS):
        window = make_window(
            sequence,
            [
                Hit(0, f"work{pid}", pid, 0, ((2, 64 * pid),), 1, 1)
                for pid in (0, 1)
            ],
        )  # fmt: skip
        kept = random.Random(sequence).sample(facts, KEPT)
        chunks = [fact.raw() for fact in kept]
        place = array("I", [fact.pid % 2 for fact in kept])
        columns = {
            "sfile": place.tobytes(),
            "stack": place.tobytes(),
            "weight": array("Q", [250_000] * KEPT).tobytes(),
            "length": array("I", map(len, chunks)).tobytes(),
            "bytes": b"".join(chunks),
        }
        window.payloads = [Payload("record.ibs_op", KEPT, len(facts), 0, columns)]
        writer.append(window)
    writer.close()
    return directory


@pytest.mark.parametrize(
    ("event", "satisfies"),
    [
        ("IBS_OP_LOAD", lambda fact: fact.load),
        ("IBS_OP_DATA_CACHE_MISS", lambda fact: fact.dc_miss),
        ("IBS_OP_MISPREDICTED_BRANCH", lambda fact: fact.branch and fact.mispredicted),
        ("IBS_OP_L1_L2_DTLB_MISS", lambda fact: fact.l1_tlb_miss and fact.l2_tlb_miss),
    ],
)
def test_an_estimate_is_near_what_all_records_say(store, event, satisfies):
    """The truth lies in the interval, which is narrow enough to say something."""
    truth = sum(satisfies(fact) for facts in FACTS for fact in facts)
    with open_reader(store) as reader:
        result = reader.derive(event, PreciseQuery(by=("comm",), top=0))
    total = result.total
    assert total.low <= truth <= total.high
    assert total.high - total.low < 0.7 * truth
    assert (result.offered, result.kept) == (WINDOWS * RECORDS, WINDOWS * KEPT)
    assert result.counted is None
    assert sum(row.samples for row in result.rows) == pytest.approx(total.samples)


def test_a_filter_chooses_rows_not_the_population(store):
    """What a process has is a part of all records."""
    with open_reader(store) as reader:
        all_of = reader.derive("IBS_OP_LOAD", PreciseQuery(by=("comm",), top=0))
        one = reader.derive("IBS_OP_LOAD", PreciseQuery(where="comm=work1"))
    rows = dict(zip(all_of.keys["comm"], all_of.rows, strict=True))
    assert one.total.samples == rows["work1"].samples
    assert one.offered == all_of.offered


def test_an_event_without_records_has_none(store):
    """Of the other PMU nothing was kept; a wrong name lists the right ones."""
    with open_reader(store) as reader:
        nothing = reader.derive("IBS_FETCH_ALL", PreciseQuery())
        with pytest.raises(UnknownNameError, match="no derived event 'IBS_OP_LAOD'; did you mean"):
            reader.derive("IBS_OP_LAOD", PreciseQuery())
    assert (nothing.total.samples, nothing.offered, nothing.rows) == (0.0, 0, [])


def test_derive_travels(store):
    """With the exact condition, where it is valid, and the mean of what it adds."""
    with OfflineBackend(store) as backend:
        answer = backend.call("derive", {"event": "IBS_OP_TAG_TO_RETIRE", "by": ["comm"]})
        plain = backend.call("derive", {"event": "IBS_OP_LOAD"})
    assert answer["unit"] == "cycles"
    values = [fact.tag_to_retire for facts in FACTS for fact in facts]
    assert answer["total"]["mean"] == pytest.approx(sum(values) / len(values), rel=0.05)
    assert plain["total"]["mean"] is None
    assert plain["condition"] == "D3.0"

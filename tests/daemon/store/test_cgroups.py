"""Cgroups as the store keeps them, and how they were known."""

import sqlite3
from itertools import repeat

import pytest
from plain_names import PlainNames
from synthetic import IMAGES, make_run, make_window, random_hits

from opd.sampling.window import CgroupInfo, EventInfo
from opd.store.queries import ReportQuery, open_reader
from opd.store.writer import StoreWriter

ID = "0f" * 32
PATHS = {1: "/", 2: "/system.slice/nginx.service", 3: f"/docker/{ID}", 4: "/\udcff.scope"}


@pytest.fixture
def writer(tmp_path):
    """A writer with a run, its images and cgroups."""
    writer = StoreWriter(tmp_path, PlainNames)
    writer.open_run(make_run())
    writer.add_images([(info, None) for info in IMAGES])
    writer.add_cgroups([CgroupInfo(uid, path) for uid, path in PATHS.items()])
    yield writer
    writer.close()


def hits_in(*cgroups, seed=1):
    """Hits spread over cgroups."""
    hits = random_hits(seed, rows=12)
    return [hit._replace(cgroup=cgroups[at % len(cgroups)]) for at, hit in enumerate(hits)]


def sums(directory, *keys, **query):
    """Samples by keys."""
    with open_reader(directory) as reader:
        result = reader.report(ReportQuery(sort=keys, top=0, **query))
    return dict(zip(zip(*result.keys.values(), strict=True), result.samples, strict=True))


def expected(hits, *texts):
    """Samples of the hits by the texts of their cgroups."""
    found = {}
    for hit in hits:
        key = tuple(text[hit.cgroup] for text in texts)
        found[key] = found.get(key, 0) + hit.hits
    return found


def test_a_path_is_stored_with_what_it_says(tmp_path, writer):
    """Unit, slice, container and runtime stand beside it, for any engine to read."""
    writer.append(make_window(0, hits_in(*PATHS)))
    with sqlite3.connect(tmp_path / "opd.db") as store:
        rows = store.execute("SELECT path, unit, slice, container, runtime FROM cgroups")
        assert set(rows) == {
            ("/", None, None, None, None),
            (PATHS[2], "nginx.service", "system.slice", None, None),
            (PATHS[3], None, None, ID, "docker"),
            ("/\\xff.scope", "\\xff.scope", None, None, None),
        }


def test_reports_by_unit_container_and_path_agree_with_the_hits(tmp_path, writer):
    """From windows and from roll-ups; what has no cgroup is [unknown], no unit [none]."""
    units = {0: "[unknown]", 1: "[none]", 2: "nginx.service", 3: "[none]"}
    containers = {0: "[unknown]", 1: "[none]", 2: "[none]", 3: ID}
    paths = {0: "[unknown]", **PATHS}
    hits = []
    for sequence in range(15):  # more than two minutes: the first are rolled up
        some = hits_in(0, 1, 2, 3, seed=sequence)
        writer.append(make_window(sequence, some))
        hits += some
    for keys, texts in (
        (("unit",), [units]),
        (("container", "unit"), [containers, units]),
        (("cgroup",), [paths]),
    ):
        assert sums(tmp_path, *keys) == expected(hits, *texts)
    pids = sums(tmp_path, "unit", "pid")  # not in the roll-ups
    for unit in set(units.values()):
        whole = sum(n for (of, _pid), n in pids.items() if of == unit)
        assert whole == expected(hits, units)[unit,]


def test_a_cgroup_that_is_gone_is_known_no_more(tmp_path, writer):
    """Its number means nothing afterwards; windows before keep it."""
    writer.append(make_window(0, hits_in(2)))
    writer.add_cgroups([CgroupInfo(2, "", gone=True)])
    writer.append(make_window(1, hits_in(2)))
    half = sum(hit.hits for hit in hits_in(2))
    assert sums(tmp_path, "unit") == {("nginx.service",): half, ("[unknown]",): half}


def test_a_failed_transaction_forgets_only_numbers(tmp_path, writer):
    """A cgroup that was first stored with a window that failed is stored with the next."""
    window = make_window(0, hits_in(2))
    window.row_stack = window.row_stack[:-4] + b"\xff\xff\xff\xff"
    with pytest.raises(Exception, match="stack"):
        writer.append(window)
    writer.append(make_window(1, hits_in(2)))
    assert set(sums(tmp_path, "unit")) == {("nginx.service",)}


def test_quality_sums_how_they_were_known(tmp_path, writer):
    """What no window says is unknown; the four make up the samples."""
    hits = hits_in(1, 2)
    samples = sum(hit.hits for hit in hits)
    known = {"label_exact": 3, "label_read": 2, "label_inherited": 1}
    for sequence in range(3):
        writer.append(make_window(sequence, hits, **known))
    writer.append(make_window(3, hits))
    with open_reader(tmp_path) as reader:
        labels = reader.quality()["labels"]
    assert labels == {"exact": 9, "read": 6, "inherited": 3, "unknown": 4 * samples - 18}


def test_quality_of_one_event_has_its_own_labels(tmp_path):
    """Of a run of several events, those of the event asked for."""
    events = [EventInfo("cpu-clock", "cpu-clock", "ns", hz=99), EventInfo("faults", "f", "count")]
    writer = StoreWriter(tmp_path, PlainNames)
    writer.open_run(make_run(events=events))
    writer.add_images([(info, None) for info in IMAGES])
    hits = [hit._replace(event=at % 2) for at, hit in enumerate(hits_in(0))]
    window = make_window(0, hits, label_exact=5)
    window.event_quality = [
        {"samples": n, "label_exact": exact} for n, exact in zip(repeat(10, 2), (4, 1), strict=True)
    ]
    writer.append(window)
    writer.close()
    with open_reader(tmp_path) as reader:
        for event, exact in (("cpu-clock", 4), ("faults", 1)):
            labels = reader.quality(event=event)["labels"]
            assert labels == {"exact": exact, "read": 0, "inherited": 0, "unknown": 10 - exact}

"""Reports that leave out the windows in which probes ran."""

import random
import shutil

import pytest
from plain_names import PlainNames
from synthetic import IMAGES, START_NS, WINDOW_NS, expected, make_run, make_window, random_hits

from opd.store import probes
from opd.store.database import open_writer, transaction
from opd.store.queries import ReportQuery, open_reader
from opd.store.writer import StoreWriter

KEYS = ("comm", "image", "symbol")
SECOND_NS = 1_000_000_000


def fill(directory, count):
    """Write a store of windows one after the other; when each was, and its hits."""
    writer = StoreWriter(directory, PlainNames)
    writer.open_run(make_run())
    writer.add_images([(info, None) for info in IMAGES])
    made = []
    for sequence in range(count):
        start = START_NS + sequence * WINDOW_NS
        hits = random_hits(sequence, rows=4)
        writer.append(make_window(sequence, hits, start, start + WINDOW_NS))
        made.append((start, start + WINDOW_NS, hits))
    writer.close()
    return made


def measured(directory, spans, *, parameters=None):
    """Note probes that ran in these spans; the end None: opd ended with it."""
    connection = open_writer(directory)
    parameters = parameters or {"time_limit": 30.0}
    with transaction(connection):
        for begin, end in spans:
            number = probes.begin(
                connection,
                {"probe": "p", "parameters": parameters, "origin": "asked", "at_ns": begin},
            )
            if end is not None:
                nothing = {"machine": {}, "metrics": [], "verdict": None, "void": None}
                probes.end(
                    connection,
                    {"id": number, "probe": "p", "notes": [], "details": {}, "samples": []}
                    # The process itself ran a little less long than the marks say.
                    | {"started_ns": begin + 1000, "ended_ns": end - 1000, "mark_ns": end}
                    | nothing,
                )
    connection.close()


def ask(directory, **more):
    """Ask without probes; the rows, and the answer."""
    with open_reader(directory) as reader:
        result = reader.report(ReportQuery(sort=KEYS, top=0, without_probes=True, **more))
    keys = zip(*result.keys.values(), strict=True)
    return dict(zip(keys, zip(result.samples, result.weight, strict=True), strict=True)), result


@pytest.fixture(scope="module")
def long_store(tmp_path_factory):
    """Give a store of more than an hour, and its windows."""
    directory = tmp_path_factory.mktemp("long")
    return directory, fill(directory, 450)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_left_is_what_no_probe_overlaps(tmp_path, long_store, seed):
    """From roll-ups of minutes and hours as from windows; the quality says how much is missing."""
    draw = random.Random(seed)
    filled, windows = long_store
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    spans = []
    for _ in range(draw.randint(0, 12)):
        first = draw.randrange(len(windows))
        last = min(first + draw.choice([1, 1, 3, 40]), len(windows))
        spans.append((windows[first][0], windows[last - 1][1]))
    measured(tmp_path, spans)
    since = draw.choice([None, windows[100][0], windows[37][0] + 5])
    until = draw.choice([None, windows[400][0]])
    inside = [
        one
        for one in windows
        if (since is None or one[1] > since) and (until is None or one[0] < until)
    ]
    left = [one for one in inside if not any(one[0] < e and one[1] > b for b, e in spans)]
    rows, result = ask(tmp_path, since_ns=since, until_ns=until)
    assert rows == expected([hit for one in left for hit in one[2]], KEYS)
    assert result.covered_s == pytest.approx(len(left) * WINDOW_NS / 1e9)
    assert result.quality["windows"] == {"have": len(left), "missing": 0}
    told = result.quality["left_out"]
    outside = [one for one in windows if one not in left]
    # Windows beyond the range that a probe at its edge ran in are told with it.
    assert len(inside) - len(left) <= told["windows"] <= len(outside)
    assert told["seconds"] == pytest.approx(told["windows"] * WINDOW_NS / 1e9)


def test_a_probe_that_cuts_no_window_takes_whole_ones(tmp_path):
    """As of opctl beside a daemon: the windows that it began and ended in go with it."""
    windows = fill(tmp_path, 20)
    measured(tmp_path, [(windows[5][0] + SECOND_NS, windows[7][0] + SECOND_NS)])
    _rows, result = ask(tmp_path)
    assert result.quality["windows"]["have"] == 17
    assert result.quality["left_out"] == {
        "probes": 1,
        "windows": 3,
        "seconds": pytest.approx(3 * WINDOW_NS / 1e9),
    }


def test_one_that_opd_ended_with_ends_by_its_time_limit(tmp_path):
    """Nobody told its end: it cannot have run longer than it might."""
    windows = fill(tmp_path, 20)
    measured(tmp_path, [(windows[10][0], None)], parameters={"time_limit": 30.0})
    _rows, result = ask(tmp_path)
    assert result.quality["left_out"]["windows"] == -(-30 * SECOND_NS // WINDOW_NS)


def test_a_series_leaves_them_out_too(tmp_path):
    """Each bucket has what is left of it, and the seconds of that."""
    windows = fill(tmp_path, 60)
    measured(tmp_path, [(windows[6][0], windows[18][1])])
    rows, whole = ask(tmp_path)
    assert rows
    _rows, series = ask(tmp_path, per_s=60)
    assert sum(series.buckets.samples) == whole.total
    assert sum(series.buckets.covered_s) == pytest.approx(whole.covered_s)


def test_without_any_probe_nothing_is_missing(tmp_path):
    """And it is told that nothing was left out."""
    windows = fill(tmp_path, 6)
    rows, result = ask(tmp_path)
    assert rows == expected([hit for one in windows for hit in one[2]], KEYS)
    assert result.quality["left_out"] == {"probes": 0, "windows": 0, "seconds": 0.0}

"""The worker killed again and again while windows, requests and retention go on."""

import contextlib
import os
import random
import signal
import sqlite3
import time

from linked import PATIENCE, linked
from synthetic import make_window, random_hits

from opd.store.messages import Keep
from opd.store.queries import open_reader

KILLS = 20


def test_twenty_kills_lose_and_double_nothing(tmp_path):
    """At random moments under load, each window and each save is in the store exactly once."""
    rng = random.Random(5)
    store = tmp_path / "s"
    saves = []
    with linked(store) as (link, events):
        link.keep(Keep(bytes=1 << 30, days=365.0))
        sequence = 0
        while link.stats()["deaths"] < KILLS:
            for _ in range(rng.randrange(1, 8)):
                link.send_window(make_window(sequence, random_hits(sequence, rows=100)))
                sequence += 1
            if rng.random() < 0.3:
                link.post("mark", {"marks": [(sequence, "user", str(sequence))]})
                saves.append(sequence)
            time.sleep(rng.uniform(0, 0.1))
            # A worker that is reaped reports no pid, so no other process is hit.
            if pid := link.stats()["pid"]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            died = len(events.of("died"))
            until = time.monotonic() + rng.uniform(0, 0.6)
            while time.monotonic() < until and len(events.of("died")) == died:
                time.sleep(0.01)
        assert link.wait_acknowledged(sequence - 1, PATIENCE)
        assert link.close(PATIENCE)
        stats = link.stats()
    assert stats["windows_stored"] == sequence
    assert stats["windows_dropped"] == 0
    assert not stats["windows_refused"]
    connection = sqlite3.connect(store / "opd.db")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    stored = [row[0] for row in connection.execute("SELECT sequence FROM windows ORDER BY 1")]
    connection.close()
    assert stored == list(range(sequence))
    with open_reader(store) as reader:
        assert [mark.at_ns for mark in reader.marks()] == saves
        total = sum(hit.hits for number in range(sequence) for hit in random_hits(number, rows=100))
        assert reader.quality()["windows"] == {"have": sequence, "missing": 0}
        from opd.store.queries import ReportQuery

        assert reader.report(ReportQuery(top=1)).total == total
        assert reader.report(ReportQuery(sort=("pid",), top=1)).total == total

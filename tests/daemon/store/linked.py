"""A started link to a worker, what it tells, and what must be in its store afterwards."""

import contextlib
import threading
from itertools import chain

from synthetic import IMAGES, expected, make_run

from opd.store.handover import WorkerLink
from opd.store.queries import ReportQuery, open_reader

RESOLVER = "plain_names:PlainNames"
PATIENCE = 60.0


class Events:
    """Keeps what a link tells."""

    def __init__(self):
        self.all = []
        self.changed = threading.Condition()

    def __call__(self, event):
        """Keep one."""
        with self.changed:
            self.all.append(event)
            self.changed.notify_all()

    def wait(self, kind):
        """The first event of a kind."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.of(kind), PATIENCE), self.all
            return self.of(kind)[0]

    def of(self, kind):
        """All events of a kind so far."""
        return [event for event in self.all if event.kind == kind]


@contextlib.contextmanager
def linked(directory, **options):
    """A started link with a run and its images."""
    events = Events()
    link = WorkerLink(directory, events, **{"resolver": RESOLVER, **options})
    try:
        link.start(PATIENCE)
        link.open_run(make_run())
        link.send_images([(info, None) for info in IMAGES])
        yield link, events
    finally:
        link.close(PATIENCE)


def assert_each_once(directory, hits):
    """The store holds every window once and the hits of all."""
    with open_reader(directory) as reader:
        assert reader.sessions()[0].windows == len(hits)
        assert reader.quality()["windows"] == {"have": len(hits), "missing": 0}
        result = reader.report(ReportQuery(top=0))
    keys = zip(*result.keys.values(), strict=True)
    sums = zip(result.samples, result.weight, strict=True)
    assert dict(zip(keys, sums, strict=True)) == expected(
        chain.from_iterable(hits), ("comm", "image", "symbol")
    )

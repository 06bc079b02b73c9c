"""Stores with hours of history, of which a test knows every hit."""

from __future__ import annotations

from collections import Counter

from plain_names import PlainNames
from synthetic import IMAGES, make_run, make_window, random_hits

from opd.store.segments.files import HOUR_NS
from opd.store.writer import StoreWriter

# Far enough back that every hour is over.
HOUR = 472_222
START_NS = HOUR * HOUR_NS
WINDOW_NS = 600_000_000_000
WINDOWS_AN_HOUR = 6


class History:
    """A store that grows window by window; ``hits`` has what is in it by window."""

    def __init__(self, directory, run=None):
        self.directory = directory
        self.run = run or make_run(started_ns=START_NS)
        self.writer = StoreWriter(directory, PlainNames)
        self.writer.open_run(self.run)
        self.writer.add_images([(image, None) for image in IMAGES])
        self.hits = {}

    def add(self, sequence, hits=None, start_ns=None, **quality):
        """One window of ten minutes."""
        hits = random_hits(sequence) if hits is None else hits
        start = START_NS + sequence * WINDOW_NS if start_ns is None else start_ns
        self.writer.append(make_window(sequence, hits, start, start + WINDOW_NS, **quality))
        self.hits[sequence] = hits

    def add_hours(self, hours, first=0):
        """Whole hours of windows."""
        for sequence in range(first * WINDOWS_AN_HOUR, (first + hours) * WINDOWS_AN_HOUR):
            self.add(sequence)

    def totals(self, sequences=None):
        """Samples and weight of all, or of these windows."""
        chosen = self.hits if sequences is None else sequences
        hits = [hit for sequence in chosen for hit in self.hits[sequence]]
        return sum(hit.hits for hit in hits), sum(hit.weight for hit in hits)

    def by(self, key):
        """Samples by a function of the hit."""
        counted = Counter()
        for hits in self.hits.values():
            for hit in hits:
                counted[key(hit)] += hit.hits
        return dict(counted)

    def close(self):
        """Close the writer; the store stays."""
        self.writer.close()

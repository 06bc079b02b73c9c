"""What features feed in: added up until the window is cut, then rows like all others.

An extra column is stored as an event of its own, ``EVENT.COLUMN``, with the
same sample files and stacks: its weight is the column's sum. So roll-ups,
filters, SQL and segments know it without knowing of columns.
"""

from __future__ import annotations

import threading
from array import array
from typing import TYPE_CHECKING, NamedTuple

from opd.features.declared import U64_MOST
from opd.sampling.window import MODE_USER, EventInfo, ImageInfo
from opd.store.columns import COMM_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from opd.features.declared import Feature
    from opd.features.samplefile import SampleWindow
    from opd.sampling.window import Window

KEYS_MOST = 4096
SYMBOLS_MOST = 1024
SYMBOL_CHARS = 200
_PID_MOST = 1 << 22
# Images of features: far from those of the sampler, which count from 1.
_IMAGE_BASE = 0xF000_0000


class _Key(NamedTuple):
    event: str
    pid: int
    comm: bytes
    symbol: str


class Place(NamedTuple):
    """Whose a row is, beside its event: process, image of the leaf, name."""

    pid: int
    image: int
    comm: bytes


class FeatureImages:
    """The pseudo-images of features, a name each: numbered within a run, announced once."""

    def __init__(self) -> None:
        self._uids: dict[tuple[str, str], int] = {}
        self._new: list[ImageInfo] = []

    def uid(self, feature: str, symbol: str) -> int:
        """The image of this symbol."""
        key = (feature, symbol)
        uid = self._uids.get(key)
        if uid is None:
            uid = self._uids[key] = _IMAGE_BASE + len(self._uids)
            self._new.append(ImageInfo(uid=uid, kind="feature", path=f"[{feature}]", symbol=symbol))
        return uid

    def take_new(self) -> list[ImageInfo]:
        """Those that nobody was told of yet."""
        new, self._new = self._new, []
        return new


class Records:
    """The records of one feature; any thread may add."""

    def __init__(self, feature: Feature, *, keys_most: int = KEYS_MOST) -> None:
        self._feature = feature.name
        self._columns = {
            event.name: tuple(column.name for column in event.columns) for event in feature.events
        }
        self._keys_most = keys_most
        self._lock = threading.Lock()
        self._sums: dict[_Key, list[int]] = {}
        self._symbols: set[str] = set()
        self.added = 0
        self.refused = 0

    def add(
        self,
        event: str,
        *,
        weight: int,
        hits: int,
        symbol: str,
        comm: str,
        pid: int,
        columns: Mapping[str, int],
    ) -> bool:
        """See ``Context.record``."""
        known = self._columns.get(event)
        if known is None:
            raise ValueError(f"no event {event!r}; there are: {' '.join(self._columns)}")
        if wrong := [name for name in columns if name not in known]:
            raise ValueError(f"{event}: no extra column {wrong[0]!r}; there are: {' '.join(known)}")
        numbers = [hits, weight, *(columns.get(name, 0) for name in known)]
        if any(type(n) is not int or not 0 <= n <= U64_MOST for n in numbers) or hits == 0:
            raise ValueError(f"{event}: hits are 1 or more, weight and columns 0 or more")
        if type(pid) is not int or not 0 <= pid <= _PID_MOST:
            raise ValueError(f"{event}: pid {pid!r} is none")
        name = (symbol or event)[:SYMBOL_CHARS]
        key = _Key(event, pid, comm.encode("utf-8", "replace")[: COMM_BYTES - 1], name)
        with self._lock:
            if not self._has_room(key, hits):
                return False
            sums = self._sums.setdefault(key, [0] * len(numbers))
            for at, number in enumerate(numbers):
                sums[at] = min(sums[at] + number, U64_MOST)
            self.added += hits
        return True

    def _has_room(self, key: _Key, hits: int) -> bool:
        if key in self._sums:
            return True
        known = key.symbol in self._symbols
        if len(self._sums) >= self._keys_most or (not known and len(self._symbols) >= SYMBOLS_MOST):
            self.refused += hits
            return False
        self._symbols.add(key.symbol)
        return True

    def take(self, ids: Mapping[str, int], images: FeatureImages, rows: Rows) -> None:
        """Move all into ``rows``. ``ids`` are of the run; events not in it are refused."""
        with self._lock:
            sums, self._sums = self._sums, {}
        for key, (hits, weight, *columns) in sums.items():
            if key.event not in ids:
                self.refused += hits
                continue
            image = images.uid(self._feature, key.symbol)
            stack = rows.stack(image)
            place = Place(key.pid, image, key.comm)
            rows.add(ids[key.event], place, stack, hits, weight)
            for name, total in zip(self._columns[key.event], columns, strict=True):
                rows.add(ids[f"{key.event}.{name}"], place, stack, hits, total, column=True)


class _Cells:
    """Rows that are being made: parallel columns."""

    def __init__(self) -> None:
        self.sfile, self.stack = array("I"), array("I")
        self.hits, self.weight = array("Q"), array("Q")


class Rows:
    """Rows that are appended to a window: columns like its own."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._sfiles: dict[tuple[int, Place], int] = {}
        self._stacks: dict[int, int] = {}
        self._records = _Cells()
        self._copies: list[tuple[int, int]] = []  # sample file that is copied, event of the copy
        self._copied = _Cells()
        self.hits: dict[int, int] = {}
        self.samples = 0

    def stack(self, image: int) -> int:
        """The stack of one frame: address 0 of an image."""
        return self._stacks.setdefault(image, self._window.stacks + len(self._stacks))

    def add(
        self, event: int, place: Place, stack: int, hits: int, weight: int, *, column: bool = False
    ) -> None:
        """Add a row; of an extra column it is no further sample."""
        self._records.sfile.append(self._sfiles.setdefault((event, place), len(self._sfiles)))
        self._records.stack.append(stack)
        self._records.hits.append(hits)
        self._records.weight.append(weight)
        self.hits[event] = self.hits.get(event, 0) + hits
        self.samples += 0 if column else hits

    def add_column(self, event: int, sfile: int, rows: SampleWindow, column: array[int]) -> None:
        """Add an extra column of a sample file of the window: rows with its sums as weights."""
        self._copied.sfile.extend(array("I", [len(self._copies)]) * len(rows))
        self._copies.append((sfile, event))
        self._copied.stack.extend(rows.stack)
        self._copied.hits.extend(rows.hits)
        self._copied.weight.extend(column)
        self.hits[event] = self.hits.get(event, 0) + sum(rows.hits)

    def append(self, events: int) -> None:
        """Put all into the window, whose run has so many events."""
        window = self._window
        at = window.sfiles
        for cells in (self._records, self._copied):
            window.rows += len(cells.sfile)
            window.row_sfile += array("I", [at + sfile for sfile in cells.sfile]).tobytes()
            window.row_stack += cells.stack.tobytes()
            window.row_hits += cells.hits.tobytes()
            window.row_weight += cells.weight.tobytes()
            at += len(self._sfiles)
        if self.hits:
            self._append_sfiles()
            self._append_stacks()
            self._append_quality(events)

    def _append_sfiles(self) -> None:
        window = self._window
        places = [place for _event, place in self._sfiles]
        events = [event for event, _place in self._sfiles] + [event for _s, event in self._copies]
        count = len(places)
        minus = array("i", [-1]) * count
        window.sfile_event += array("H", events).tobytes()
        new = {
            "sfile_mode": (1, bytes([MODE_USER]) * count),
            "sfile_tgid": (4, array("i", [place.pid for place in places]).tobytes()),
            "sfile_tid": (4, minus.tobytes()),
            "sfile_cpu": (4, minus.tobytes()),
            "sfile_image": (4, array("I", [place.image for place in places]).tobytes()),
            "sfile_comm": (
                COMM_BYTES,
                b"".join(place.comm.ljust(COMM_BYTES, b"\0") for place in places),
            ),
        }
        if window.sfile_cgroup:  # an empty column is of all
            new["sfile_cgroup"] = (4, bytes(4 * count))
        for name, (width, cells) in new.items():
            old: bytes = getattr(window, name)
            copied = [old[at * width : (at + 1) * width] for at, _event in self._copies]
            setattr(window, name, b"".join((old, cells, *copied)))
        window.sfiles += len(events)

    def _append_stacks(self) -> None:
        window = self._window
        count = len(self._stacks)
        frames = len(window.frame_image) // 4
        ends = array("I", range(frames + 1, frames + count + 1))
        window.stack_start += ends.tobytes()
        window.stack_flags += bytes(count)
        window.frame_image += array("I", self._stacks).tobytes()
        window.frame_address += bytes(8 * count)
        window.stacks += count

    def _append_quality(self, events: int) -> None:
        window = self._window
        quality = [dict(counts) for counts in window.event_quality]
        quality += [{} for _ in range(events - len(quality))]
        for event, hits in self.hits.items():
            quality[event]["samples"] = quality[event].get("samples", 0) + hits
        window.event_quality = quality
        samples = window.quality.get("samples", 0) + self.samples
        window.quality = {**window.quality, "samples": samples}


def events_of(feature: Feature, names: Iterable[str]) -> list[EventInfo]:
    """The feature's events in a run, each followed by its extra columns."""
    declared = {event.name: event for event in feature.events}
    infos = []
    for name in names:
        event = declared[name]
        infos.append(EventInfo(name, feature.name, event.unit, feature=feature.name))
        infos += [
            EventInfo(
                f"{name}.{column.name}",
                feature.name,
                column.unit,
                feature=feature.name,
                column=True,
            )
            for column in event.columns
        ]
    return infos

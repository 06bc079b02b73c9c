"""The sample files of one feature: which are known, and their rows of a window."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from opd.features.guard import Step
from opd.features.samplefile import SampleFile, SampleWindow
from opd.sampling.window import MODE_KERNEL
from opd.store.columns import COMM_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from opd.features.plugins import Plugin
    from opd.sampling.window import Window

FILES_MOST = 4096
_HOOKS = ("opd_sfile_create", "opd_sfile_dup", "opd_sfile_sync", "opd_sfile_close")


class Seen(NamedTuple):
    """A sample file of a window: its index ``at`` there, what it is, and its rows."""

    at: int
    sfile: SampleFile
    rows: SampleWindow


class SampleFiles:
    """Those that hooks were told of, least recently seen first; at most FILES_MOST.

    ``dropped`` counts sample files of a window beyond that, which no hook saw.
    """

    def __init__(self, plugin: Plugin, columns: Mapping[str, tuple[str, ...]]) -> None:
        """``columns``: extra columns by event."""
        self._plugin = plugin
        self._columns = columns
        self._known: dict[SampleFile, None] = {}
        self._to_close: dict[SampleFile, None] = {}
        self._session = 0
        self._copies: list[tuple[SampleFile, SampleFile]] = []
        self.wanted = any(map(plugin.has, _HOOKS))
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._known)

    @property
    def owes(self) -> bool:
        """Whether there are calls that sessions and evictions left to do."""
        return bool(self._copies or self._to_close)

    def of_window(
        self, window: Window, ids: Mapping[str, int], paths: Mapping[int, str]
    ) -> list[Seen]:
        """Those of a window with its rows. ``ids``: this feature's events in the run."""
        names = {ids[name]: name for name in self._columns if name in ids}
        events = array("H", window.sfile_event)
        found = [index for index, event in enumerate(events) if event in names]
        self.dropped += max(0, len(found) - FILES_MOST)
        found = found[:FILES_MOST]
        rows: dict[int, list[int]] = {index: [] for index in found}
        if found and self._plugin.has("opd_sfile_sync"):
            for row, index in enumerate(array("I", window.row_sfile)):
                if index in rows:
                    rows[index].append(row)
        stack = array("I", window.row_stack)
        hits, weight = array("Q", window.row_hits), array("Q", window.row_weight)
        cells = _Cells(window)
        seen = []
        for index in found:
            mine = rows[index]
            event = names[events[index]]
            view = SampleWindow(
                sequence=window.sequence,
                start_ns=window.start_ns,
                end_ns=window.end_ns,
                stack=array("I", [stack[row] for row in mine]),
                hits=array("Q", [hits[row] for row in mine]),
                weight=array("Q", [weight[row] for row in mine]),
                columns=self._columns[event],
            )
            seen.append(Seen(index, cells.sample_file(index, event, paths, self._session), view))
        return seen

    def steps(self, seen: list[Seen]) -> Iterator[Step]:
        """The calls that a window needs: close, dup, create and sync, and what is evicted."""
        yield from self.flush()
        for one in seen:
            sfile = one.sfile
            if sfile in self._known:
                del self._known[sfile]  # it goes to the end
            else:
                yield Step("opd_sfile_create", lambda f=sfile: self._plugin.sfile_create(f))  # type: ignore[misc]
            self._known[sfile] = None
            yield Step("opd_sfile_sync", lambda o=one: self._plugin.sfile_sync(o.sfile, o.rows))  # type: ignore[misc]
        while len(self._known) > FILES_MOST:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._to_close[oldest] = None
        yield from self.flush()

    def turn_over(self, *, copy: bool) -> None:
        """All are to be closed; with ``copy`` there are such of the next session before that."""
        self._session += 1
        if copy:
            self._copies += [
                (msgspec.structs.replace(source, session=self._session), source)
                for source in self._known
            ]
        self.close_all()

    def close_all(self) -> None:
        """All are to be closed."""
        self._to_close |= self._known
        self._known = {}

    def flush(self) -> Iterator[Step]:
        """The calls that are owed for sessions and evictions."""
        while self._copies:
            to, source = self._copies.pop(0)
            yield Step("opd_sfile_dup", lambda t=to, s=source: self._plugin.sfile_dup(t, s))  # type: ignore[misc]
            self._known[to] = None
        while self._to_close:
            sfile = next(iter(self._to_close))
            del self._to_close[sfile]
            yield Step("opd_sfile_close", lambda f=sfile: self._plugin.sfile_close(f))  # type: ignore[misc]


class _Cells:
    """The sample-file columns of a window."""

    def __init__(self, window: Window) -> None:
        self._mode = window.sfile_mode
        self._tgid = array("i", window.sfile_tgid)
        self._tid = array("i", window.sfile_tid)
        self._cpu = array("i", window.sfile_cpu)
        self._image = array("I", window.sfile_image)
        self._cgroup = array("I", window.sfile_cgroup)
        self._comm = window.sfile_comm

    def sample_file(
        self, index: int, event: str, paths: Mapping[int, str], session: int
    ) -> SampleFile:
        """One sample file as hooks see it."""
        comm = self._comm[index * COMM_BYTES : (index + 1) * COMM_BYTES]
        return SampleFile(
            event=event,
            comm=comm.partition(b"\0")[0].decode("utf-8", "replace"),
            tgid=self._tgid[index],
            image=paths.get(self._image[index], ""),
            mode="kernel" if self._mode[index] == MODE_KERNEL else "user",
            tid=self._tid[index],
            cpu=self._cpu[index],
            cgroup=self._cgroup[index] if self._cgroup else 0,
            session=session,
        )

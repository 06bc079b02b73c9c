"""The tables ``samples`` and ``stacks``: segments, and the windows that are in none.

The log is read as of one moment and the segments are listed after it, so that
a window which leaves the log in between is found in its segment. A window in
both is taken from the segment.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from opd.store.segments import duck
from opd.store.segments.files import HOUR_NS
from opd.store.segments.plan import Known, Owner, logged_hours, owners_of, unwritten
from opd.store.segments.samples import StackNumbers, Words, read_chunk, read_runs

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import duckdb

    from opd.store.segments.plan import Key, Written
    from opd.store.segments.samples import Run, Window

T = TypeVar("T")

_WINDOWS_AT_ONCE = 64
_ASKED_AT_ONCE = 500
# Numbers of stacks are a file's; the file's number goes above them.
_STACK_BITS = 32

_SHOWN = ", ".join(
    "owner.session" if name == "session" else f"part.{name}"
    for name in duck.COLUMNS
    if name not in ("stack", "frames")
)
_FOLDED = "array_to_string(list_reverse(list_transform(frames, lambda f: f.symbol)), ';')"
_LINES = "list_transform(frames, lambda f: f.image || chr(9) || f.symbol)"
_STACKS = (
    f"len(frames) AS depth, {_FOLDED} AS folded,"
    f" md5(array_to_string({_LINES}, chr(10)) || truncated) AS id, frames"
)


class _Loaded(NamedTuple):
    """A window of the log that is in DuckDB."""

    key: Key
    sequence: int


class SampleTables:
    """Keeps the views up to date in one DuckDB, from question to question."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, directory: Path) -> None:
        self._duck = connection
        self.known = Known(directory)
        self._files: list[Written] = []
        self._loaded: dict[int, _Loaded] = {}
        self._duck.execute("CREATE SCHEMA internal")
        self._empty()
        self._own([], {})
        self._views(None, None)

    def unchanged(self) -> bool:
        """Whether the files of the last refresh are still the same ones."""
        return all(written.is_there() for written in self._files)

    def refresh(
        self, store: sqlite3.Connection, *, since_ns: int | None, until_ns: int | None
    ) -> int:
        """Bring both tables to the store's snapshot; how many windows were damaged.

        Of the range [since_ns, until_ns) they have the windows that overlap it.
        """
        runs, owners = read_runs(store), owners_of(store)
        written = {one.key: one for one in self.known.list()}
        if self._outdated(store, written):
            self._empty()
        begin = None if since_ns is None else since_ns - HOUR_NS
        hours = logged_hours(store, since_ns=begin, until_ns=until_ns)
        by_id = {run.id: run for run in runs}
        for row, hour, windows in unwritten(store, hours, written, owners):
            key = (*owners[row], hour)
            self._load(store, by_id[row], key, windows)
        self._files = [
            one
            for one in written.values()
            if (begin is None or one.segment.end_ns > begin)
            and (until_ns is None or one.segment.start_ns < until_ns)
        ]
        self._own(runs, owners)
        self._views(since_ns, until_ns)
        return self._damaged + sum(one.about.damaged for one in self._files)

    # ---- the log

    def _empty(self) -> None:
        """Load nothing of the log so far."""
        self._duck.execute("DROP TABLE IF EXISTS internal.logged")
        duck.create_samples(self._duck, "internal.logged", owner="INTEGER")
        self._loaded.clear()
        self._stacks = StackNumbers()
        self._damaged = 0

    def _outdated(self, store: sqlite3.Connection, written: dict[Key, Written]) -> bool:
        """Whether windows that are loaded have become a segment, or were forgotten."""
        for window in self._loaded.values():
            segment = written.get(window.key)
            if segment is not None and window.sequence in segment.sequences:
                return True
        there = 0
        for some in _some(self._loaded, _ASKED_AT_ONCE):
            marks = ",".join("?" * len(some))
            (count,) = store.execute(
                f"SELECT count(*) FROM blocks WHERE window IN ({marks})",  # noqa: S608
                some,
            ).fetchone()
            there += count
        return there != len(self._loaded)

    def _load(
        self, store: sqlite3.Connection, run: Run, key: Key, windows: Iterable[Window]
    ) -> None:
        new = [window for window in windows if window.id not in self._loaded]
        for some in _some(new, _WINDOWS_AT_ONCE):
            words = Words(run)
            chunk = read_chunk(store, run, some, self._stacks, words)
            duck.insert_named(self._duck, "internal.logged", run, chunk, words)
            self._damaged += chunk.damaged
            self._loaded.update((window.id, _Loaded(key, window.sequence)) for window in some)

    # ---- names and views

    def _own(self, runs: list[Run], owners: dict[int, Owner]) -> None:
        """Whose the parts are: a session may be called otherwise now than in its files."""
        names = {owners[run.id]: run.session for run in runs}
        sessions = [
            names.get(Owner(one.about.run, one.about.session_started_ns), one.about.session)
            for one in self._files
        ]
        self._table("file_owner", range(len(sessions)), sessions)
        self._table("log_owner", [run.id for run in runs], [run.session for run in runs])

    def _table(self, name: str, numbers: Iterable[int], sessions: list[str]) -> None:
        columns = {
            "number": np.array(list(numbers), np.int64),
            "session": np.array(sessions, object),
        }
        self._duck.register("owners", columns)
        try:
            self._duck.execute(
                f"CREATE OR REPLACE TABLE internal.{name} AS"  # noqa: S608
                " SELECT number, session::VARCHAR AS session FROM owners"
            )
        finally:
            self._duck.unregister("owners")

    def _views(self, since_ns: int | None, until_ns: int | None) -> None:
        where = "true"
        if since_ns is not None:
            where += (
                f" AND part.time > make_timestamp({(since_ns - HOUR_NS) // 1000})"
                f" AND part.time + to_microseconds((part.seconds * 1e6)::BIGINT)"
                f" > make_timestamp({since_ns // 1000})"
            )
        if until_ns is not None:
            where += f" AND part.time < make_timestamp({-(-until_ns // 1000)})"
        logged = (
            "internal.logged AS part JOIN internal.log_owner AS owner ON part.owner = owner.number"
        )
        parts = [("part.stack::BIGINT", logged)]
        if self._files:
            paths = ", ".join(_quoted(str(one.segment.path)) for one in self._files)
            files = (
                f"read_parquet([{paths}]) AS part"
                " JOIN internal.file_owner AS owner ON part.file_index = owner.number"
            )
            number = f"((part.file_index + 1)::BIGINT << {_STACK_BITS}) + part.stack"
            parts.append((number, files))
        samples = " UNION ALL ".join(
            f"SELECT {_SHOWN}, {number} AS stack FROM {source} WHERE {where}"  # noqa: S608
            for number, source in parts
        )
        stacks = " UNION ALL ".join(
            f"SELECT {number} AS stack, {_STACKS} FROM {source} WHERE frames IS NOT NULL"  # noqa: S608
            for number, source in parts
        )
        self._duck.execute(f"CREATE OR REPLACE VIEW samples AS {samples}")
        self._duck.execute(
            "CREATE OR REPLACE VIEW stacks AS"  # noqa: S608
            f" SELECT stack, id, depth, folded, frames FROM ({stacks})"
        )


def _some(things: Iterable[T], count: int) -> Iterator[list[T]]:
    """Lists of at most so many, until there are no more."""
    rest = iter(things)
    while some := list(islice(rest, count)):
        yield some


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

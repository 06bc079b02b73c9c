"""Answers from a store: reports, sessions, runs, events, quality.

A window belongs to a range of time when it overlaps it, whole. Where the sort
keys allow, whole minutes and hours come from the roll-ups and only the edges
from the blocks of windows; both give the same answer.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from typing import TYPE_CHECKING, Any, Self

import msgspec

from opd.errors import StoreError
from opd.store.damage import is_damage
from opd.store.database import ReadConnection, check_version, snapshot
from opd.store.history import MarkInfo, SessionInfo, read_marks, read_sessions
from opd.store.quality import read_quality
from opd.store.reports import Report, ReportQuery, ReportResult, stretches_of
from opd.store.runs import Run, events_of, find_event, find_session, runs_of
from opd.store.stacks import StackReader, StoredStack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from opd.sampling.window import EventInfo, RunInfo
    from opd.store.precise.branches import BranchResult
    from opd.store.precise.derive import DeriveResult
    from opd.store.precise.memory import MemoryResult
    from opd.store.precise.metric import MetricResult
    from opd.store.precise.nodes import Nodes
    from opd.store.precise.reading import PreciseQuery
    from opd.store.probes import ProbeRun, ProbeSamples, ProbeTotals

__all__ = ["Reader", "ReportQuery", "ReportResult", "SessionInfo", "open_reader"]


def open_reader(directory: Path) -> Reader:
    """Open the store of a session directory. StoreError: none there, or too new."""
    return Reader(ReadConnection(directory))


# What reading a column or a packed note of another kind than expected raises.
_NONSENSE = (TypeError, ValueError, LookupError, OverflowError, msgspec.MsgspecError)


class Reader:
    """A store opened to read. Threads take turns; every answer is one snapshot."""

    def __init__(self, store: ReadConnection) -> None:
        self._store = store
        self._connection = store.connection
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store."""
        with self._turn:
            self._store.close()

    # ---- the calls

    def report(self, query: ReportQuery) -> ReportResult:
        """The hits of an event by the sort keys.

        UnknownNameError: session, event or key that is not there, with those
        that are; UsageError: ``where`` is wrong, or the answer too large. A
        session without hits has total 0.
        """
        with self._snapshot():
            runs = self._runs(query.session)
            left_out = None
            if query.without_probes:
                from opd.store.apart import without_probes  # few ask

                left_out = without_probes(
                    self._connection, self._version, runs, query.since_ns, query.until_ns
                )
            result = Report(self._connection, query, runs, left_out=left_out).answer()
            if any(event.column for run in runs for event in run.info.events):
                from opd.store.extracolumns import extra_columns  # few events have any

                result.extra = extra_columns(
                    self._connection, query, runs, result, left_out=left_out
                )
            return result

    def sessions(self) -> list[SessionInfo]:
        """All sessions, oldest first."""
        with self._snapshot():
            return read_sessions(self._connection, self._version)

    def marks(self, *, since_ns: int | None = None, until_ns: int | None = None) -> list[MarkInfo]:
        """The marks of a range, oldest first."""
        with self._snapshot():
            return read_marks(self._connection, self._version, since_ns, until_ns)

    def runs(self, session: str | None = None) -> list[RunInfo]:
        """The runs of a session (None: the latest), oldest first."""
        with self._snapshot():
            return [run.info for run in self._runs(session)]

    def events(self, session: str | None = None) -> list[EventInfo]:
        """The events of a session, those of its latest run first."""
        with self._snapshot():
            return list(events_of(self._runs(session)).values())

    def events_by_run(self, session: str | None = None) -> list[tuple[EventInfo, bool]]:
        """The same, each with whether the session's latest run has it (else an earlier one)."""
        with self._snapshot():
            runs = self._runs(session)
            latest = {event.name for event in runs[-1].info.events} if runs else set()
            return [(event, event.name in latest) for event in events_of(runs).values()]

    def quality(
        self,
        *,
        session: str | None = None,
        since_ns: int | None = None,
        until_ns: int | None = None,
        event: str | None = None,
    ) -> dict[str, object]:
        """The quality of a range, see opd.store.quality."""
        with self._snapshot():
            runs = self._runs(session)
            stretches = stretches_of(runs, since_ns, until_ns, event)
            return read_quality(self._connection, stretches, find_event(event, runs))

    def stacks(self, numbers: Sequence[int]) -> list[StoredStack]:
        """Stacks by their numbers in the ``rows`` blocks, leaf first, with identities."""
        with self._snapshot():
            return StackReader(self._connection).read(numbers)

    # ---- of precise samples

    def metric(self, name: str, query: ReportQuery) -> MetricResult:
        """A metric by the sort keys. UnknownNameError as report, also for its events."""
        from opd.store.precise.metric import answer_metric

        with self._snapshot():
            return answer_metric(self._connection, name, query, self._runs(query.session))

    def memory(
        self, query: PreciseQuery, nodes: Callable[[Run], Nodes | None] = lambda _run: None
    ) -> MemoryResult:
        """Accesses to memory. ``nodes``: those of a run's machine. Raises as report."""
        from opd.store.precise.memory import Memory

        with self._snapshot():
            runs = self._runs(query.session)
            return Memory(self._connection, query, runs, nodes=nodes).answer()

    def branches(self, query: PreciseQuery, by: str) -> BranchResult:
        """Retired branches ``by`` symbol or address. Raises as report."""
        from opd.store.precise.branches import answer_branches

        with self._snapshot():
            return answer_branches(self._connection, query, self._runs(query.session), by=by)

    def derive(self, event: str, query: PreciseQuery) -> DeriveResult:
        """A derived event from the raw records that were kept. Raises as report."""
        from opd.store.precise.derive import Derive

        with self._snapshot():
            return Derive(self._connection, event, query, self._runs(query.session)).answer()

    def feature_stats(
        self, name: str | None = None, session: str | None = None
    ) -> dict[str, dict[str, Any]]:
        """What became of the records of features. UnknownNameError: nothing is of that one."""
        from opd.store.precise.stats import feature_stats

        with self._snapshot():
            return feature_stats(self._connection, self._runs(session), name)

    # ---- of probes

    def probe_runs(
        self,
        *,
        probe: str | None = None,
        since_ns: int | None = None,
        until_ns: int | None = None,
        most: int = 0,
    ) -> list[ProbeRun]:
        """Measurements, oldest first; ``most``: only the last so many."""
        from opd.store import probes

        with self._snapshot():
            return probes.read_runs(
                self._connection,
                self._version,
                probe=probe,
                since_ns=since_ns,
                until_ns=until_ns,
                most=most,
            )

    def probe_run(self, number: int) -> ProbeRun:
        """One measurement. UnknownNameError: none of that number."""
        from opd.store import probes

        with self._snapshot():
            return probes.read_run(self._connection, self._version, number)

    def probe_totals(self, probe: str | None = None) -> dict[str, ProbeTotals]:
        """What all runs of each probe came to; of one that never ran there is nothing."""
        from opd.store import probes

        with self._snapshot():
            return probes.read_totals(self._connection, self._version, probe)

    def probe_samples(self, number: int) -> list[ProbeSamples]:
        """The raw samples of a measurement, by metric and worker."""
        from opd.store import probes

        with self._snapshot():
            return probes.read_samples(self._connection, self._version, number)

    # ---- what they share

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Hold one state of the store while a worker may go on writing."""
        with self._turn:
            try:
                with snapshot(self._connection):
                    # The worker may have upgraded it since it was opened.
                    self._version = check_version(self._connection, self._store.path)
                    yield
            except sqlite3.Error as error:
                word = "damaged" if is_damage(error) else "cannot read the store"
                raise StoreError(f"{self._store.path}: {word}: {error}") from error
            except _NONSENSE as error:
                # A row or a note that is not what a writer put there.
                what = f"{type(error).__name__}: {error}"
                raise StoreError(
                    f"{self._store.path}: damaged, or misread by opd: {what}"
                ) from error

    def _runs(self, session: str | None) -> list[Run]:
        try:
            return runs_of(self._connection, find_session(self._connection, session))
        except StoreError as error:
            raise StoreError(f"{self._store.path}: {error.message}") from error

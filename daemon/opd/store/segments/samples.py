"""Windows of the log as the table ``samples``: named, by function, and well sorted.

A stack of the window log is exact: its frames are addresses. Here frames are
functions. On a mixed load that leaves a quarter of the stacks and two thirds
of the rows, and a segment of a third of the bytes; who asks for instructions
asks the window log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from opd.errors import StoreError
from opd.sampling.window import STACK_TRUNCATED, EventInfo
from opd.store.names import UNKNOWN
from opd.store.segments.distinct import distinct
from opd.store.segments.frames import read_stacks
from opd.store.segments.windowlog import Rows, read_log

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from opd.store.segments.frames import Stacks

    Numbers = NDArray[np.int64]
    Texts = NDArray[Any]

_ASKED_AT_ONCE = 500
_NAME_BITS = 32
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SEEDS = (np.uint64(0xD1B54A32D192ED03), np.uint64(0x2545F4914F6CDD1D))
_MODES = np.array(["user", "kernel"], object)
_NOTHING = np.array([None], object)


class Run(NamedTuple):
    """A row of ``runs`` with its session, as far as a sample needs to know it."""

    id: int
    run: str
    session: str
    events: list[str]


class Window(NamedTuple):
    """A window of the log: its number and when it was."""

    id: int
    sequence: int
    start_ns: int
    end_ns: int


class Chunk(NamedTuple):
    """Some windows of a run, as columns that DuckDB takes, one entry a row.

    ``rows``: time (µs since 1970, UTC), seconds, event, comm, pid, tid and cpu
    (-1: not separated), mode, image, symbol, cgroup, unit, container, samples,
    weight, truncated, stack, and ``first``: the stack where the row is the first
    of all chunks that has it, else -1. ``frames``, of stacks that are new:
    stack, position (0: the leaf), symbol, image. ``missing``: stacks that could
    not be read, ``damaged``: windows.
    """

    rows: dict[str, Any]
    frames: dict[str, Any]
    length: int
    stacks: int
    samples: int
    weight: int
    missing: int
    damaged: int
    images: Numbers


def read_runs(connection: sqlite3.Connection) -> list[Run]:
    """Every run of the store."""
    return [
        Run(number, run, session, [event.name for event in _events(events)])
        for number, run, session, events in connection.execute(
            "SELECT runs.id, run, name, events FROM runs"
            " JOIN sessions ON sessions.id = runs.session ORDER BY runs.id"
        )
    ]


def _events(packed: bytes) -> list[EventInfo]:
    return msgspec.msgpack.decode(packed, type=list[EventInfo])


def read_chunk(
    connection: sqlite3.Connection,
    run: Run,
    windows: Sequence[Window],
    stack_numbers: StackNumbers,
) -> Chunk:
    """These windows of the run. Raises sqlite3.Error."""
    log = read_log(connection, [window.id for window in windows])
    exact, which = distinct(log.rows.stack)
    stacks = read_stacks(connection, exact)
    functions = _Functions(connection, stacks, stack_numbers)
    kept, rows, stack = _aggregated(log.rows, functions.rank[which])
    leaf, truncated = functions.leaf[which[kept]], functions.truncated[which[kept]]
    new = np.flatnonzero(stack >= functions.first)[::-1]
    firsts = np.empty(functions.new, np.int64)
    firsts[stack[new] - functions.first] = new  # the last one written is the first row
    first = np.full(len(stack), -1)
    first[firsts] = stack[firsts]
    columns = (rows.comm, rows.image, leaf, functions.name, functions.path)
    texts = _Texts(connection, columns)
    at = np.searchsorted([window.id for window in windows], rows.window)
    cgroup, unit, container = _cgroups(connection, rows.cgroup)
    events = np.array([*run.events, UNKNOWN], object)
    start_us = np.array([window.start_ns // 1000 for window in windows], np.int64)
    seconds = np.array(
        [round((window.end_ns - window.start_ns) / 1e9, 2) for window in windows], np.float64
    )
    return Chunk(
        rows={
            "time_us": start_us[at],
            "seconds": seconds[at],
            "event": events[np.minimum(rows.event, len(run.events))],
            "comm": texts.of(rows.comm),
            "pid": rows.pid,
            "tid": rows.tid,
            "cpu": rows.cpu,
            "mode": _MODES[rows.mode & 1],
            "image": texts.of(rows.image),
            "symbol": texts.of(leaf),
            "cgroup": cgroup,
            "unit": unit,
            "container": container,
            "samples": rows.samples,
            "weight": rows.weight,
            "truncated": truncated,
            "stack": stack,
            "first": first,
        },
        frames={
            "stack": functions.stack,
            "position": functions.position,
            "symbol": texts.of(functions.name),
            "image": texts.of(functions.path),
        },
        length=len(stack),
        stacks=functions.new,
        samples=int(rows.samples.sum()),
        weight=int(rows.weight.sum()),
        missing=stacks.missing,
        damaged=log.damaged,
        images=distinct(stacks.image)[0],
    )


class StackNumbers:
    """Numbers of stacks by function, over all chunks that end up in one table."""

    def __init__(self, first: int = 0) -> None:
        """Number from ``first`` on."""
        self._known: dict[bytes, int] = {}
        self.next = first

    def number(self, digests: list[bytes], order: Iterable[int]) -> Numbers:
        """The number of each of these distinct stacks; new ones are numbered in ``order``."""
        for at in order:
            if digests[at] not in self._known:
                self._known[digests[at]] = self.next
                self.next += 1
        return np.array([self._known[digest] for digest in digests], np.int64)


class _Functions:
    """Stacks by function: exact ones that differ only within functions are one.

    ``rank`` has for each exact stack the number of its functions'; new ones
    are numbered in order of their frames from the root, which puts like beside
    like. ``truncated`` and ``leaf`` (a name) are by exact stack. ``stack``,
    ``position``, ``path`` and ``name`` have an entry a frame of the new ones,
    leaf first.
    """

    def __init__(
        self, connection: sqlite3.Connection, stacks: Stacks, stack_numbers: StackNumbers
    ) -> None:
        paths = dict(connection.execute("SELECT id, path FROM images"))
        used, which = distinct(stacks.image)
        path = np.array([paths.get(number, 0) for number in used.tolist()], np.int64)[which]
        function = (path << _NAME_BITS) | stacks.name
        self.truncated = (stacks.flags & STACK_TRUNCATED) != 0
        digests = _digests(function, stacks.start, self.truncated)
        # Any exact stack shows the functions of those that are like it.
        _, shown, which = np.unique(digests[:, 0], return_index=True, return_inverse=True)
        if (digests[shown][which] != digests).any():
            raise StoreError("two stacks have one digest")  # once in 10**9 hours
        length = np.diff(stacks.start)
        first = stack_numbers.next
        texts = digests[shown].tobytes()
        numbers = stack_numbers.number(
            [texts[at : at + 16] for at in range(0, len(texts), 16)],
            _from_root(function, stacks.start, shown),
        )
        self.rank = numbers[which]
        self.first, self.new = first, stack_numbers.next - first
        mine = np.flatnonzero(numbers >= first)
        shown = shown[mine[np.argsort(numbers[mine])]]
        lengths = length[shown]
        begins = np.cumsum(lengths) - lengths
        self.stack = np.repeat(np.arange(first, first + self.new), lengths)
        self.position = np.arange(len(self.stack)) - np.repeat(begins, lengths)
        frame = np.repeat(stacks.start[:-1][shown], lengths) + self.position
        self.path = path[frame]
        self.name = stacks.name[frame]
        self.leaf = stacks.leaf_names(0)


def _digests(function: Numbers, start: Numbers, truncated: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Two 64-bit digests of each stack: sums over its frames, mixed with their positions."""
    length = np.diff(start)
    position = (np.arange(len(function)) - np.repeat(start[:-1], length)).astype(np.uint64)
    result = np.empty((len(length), 2), np.uint64)
    for column, seed in enumerate(_SEEDS):
        mixed = _mix(_mix(function.astype(np.uint64) ^ seed) + position * _GOLDEN)
        sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)))
        whole = sums[start[1:]] - sums[start[:-1]]
        more = 2 * length.astype(np.uint64) + truncated.astype(np.uint64)
        result[:, column] = _mix(whole + more * seed)
    return result


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread every bit over all 64 (the finalizer of splitmix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _from_root(function: Numbers, start: Numbers, shown: Numbers) -> list[int]:
    """The order of these stacks by their frames from the root: indices into ``shown``."""
    begin, length = start[:-1][shown], np.diff(start)[shown]
    # Big-endian, so that bytes sort as the frames do.
    at = np.repeat(begin + length - 1, length) - (
        np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
    )
    texts = function[at].astype(">u8").tobytes()
    ends = (8 * np.cumsum(length)).tolist()
    begins = [0, *ends][:-1]
    keys = [texts[first:last] for first, last in zip(begins, ends, strict=True)]
    return sorted(range(len(keys)), key=keys.__getitem__)


def _aggregated(rows: Rows, stack: Numbers) -> tuple[Numbers, Rows, Numbers]:
    """One row for what is the same now, sorted so that columns repeat themselves.

    Also which rows those were.
    """
    keys = (
        *(rows.event, rows.comm, rows.cgroup, rows.pid, rows.tid, rows.mode, rows.image, stack),
        *(rows.cpu, rows.window),
    )
    order = np.lexsort(keys[::-1])
    if not len(order):
        return order, rows, stack
    begins = np.zeros(len(order), bool)
    begins[0] = True
    for key in keys:
        inside = key[order]
        begins[1:] |= inside[1:] != inside[:-1]
    at = np.flatnonzero(begins)
    kept = order[at]
    taken = Rows(*(column[kept] for column in rows))
    summed = taken._replace(
        samples=np.add.reduceat(rows.samples[order], at),
        weight=np.add.reduceat(rows.weight[order], at),
    )
    return kept, summed, stack[kept]


class _Texts:
    """The texts of numbers of names."""

    def __init__(self, connection: sqlite3.Connection, columns: Sequence[Numbers]) -> None:
        self._numbers = distinct(np.concatenate(columns))[0]
        wanted = self._numbers.tolist()
        known: dict[int, str] = {}
        for at in range(0, len(wanted), _ASKED_AT_ONCE):
            some = wanted[at : at + _ASKED_AT_ONCE]
            marks = ",".join("?" * len(some))
            known.update(
                connection.execute(f"SELECT id, text FROM names WHERE id IN ({marks})", some)  # noqa: S608
            )
        self._texts = np.array([known.get(number, UNKNOWN) for number in wanted], object)

    def of(self, numbers: Numbers) -> Texts:
        """The text of each; ``[unknown]`` where there is none."""
        texts: Texts = self._texts[np.searchsorted(self._numbers, numbers)]
        return texts


def _cgroups(connection: sqlite3.Connection, numbers: Numbers) -> tuple[Texts, Texts, Texts]:
    """Path, unit and container of each; None where it is not known."""
    known: dict[int, tuple[str | None, ...]] = {}
    if numbers.any():
        known = {
            number: tuple(about)
            for number, *about in connection.execute(
                "SELECT id, path, unit, container FROM cgroups"
            )
        }
    used, which = distinct(numbers)
    about = [known.get(number, (None, None, None)) for number in used.tolist()]
    path, unit, container = (
        np.array([row[column] or None for row in about], object)[which] if about else _NOTHING[:0]
        for column in range(3)
    )
    return path, unit, container

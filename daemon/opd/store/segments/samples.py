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
    """Some windows of a run, as columns of numbers that DuckDB takes.

    ``rows``, one entry a row: window, event, comm, pid, tid and cpu (-1: not
    separated), mode, image, symbol, cgroup, samples, weight, truncated, stack,
    and ``first``: the stack where the row is the first of all chunks that has
    it, else -1. ``frames``, of stacks that are new, leaf first: stack, symbol,
    image. ``missing``: stacks that could not be read, ``damaged``: windows.
    """

    rows: dict[str, Any]
    frames: dict[str, Any]
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
    words: Words,
) -> Chunk:
    """These windows of the run; ``words`` learns what its numbers mean. Raises sqlite3.Error."""
    log = read_log(connection, [window.id for window in windows])
    exact, which = distinct(log.rows.stack)
    stacks = read_stacks(connection, exact)
    functions = _Functions(connection, stacks, stack_numbers)
    kept, rows, stack = _aggregated(log.rows, functions.rank[which])
    leaf = functions.leaf[which[kept]]
    new = np.flatnonzero(stack >= functions.first)[::-1]
    firsts = np.empty(functions.new, np.int64)
    firsts[stack[new] - functions.first] = new  # the last one written is the first row
    first = np.full(len(stack), -1)
    first[firsts] = stack[firsts]
    words.learn(
        connection,
        windows,
        names=(rows.comm, rows.image, leaf, functions.name, functions.path),
        cgroups=rows.cgroup,
    )
    small = {
        "event": np.minimum(rows.event, len(run.events)),
        "comm": rows.comm,
        "pid": rows.pid,
        "tid": rows.tid,
        "cpu": rows.cpu,
        "mode": rows.mode & 1,
        "image": rows.image,
        "symbol": leaf,
        "cgroup": rows.cgroup,
        "stack": stack,
        "first": first,
    }
    return Chunk(
        rows={
            **{name: column.astype(np.int32) for name, column in small.items()},
            "window": rows.window,
            "samples": rows.samples,
            "weight": rows.weight,
            "truncated": functions.truncated[which[kept]],
        },
        frames={
            "stack": functions.stack.astype(np.int32),
            "symbol": functions.name.astype(np.int32),
            "image": functions.path.astype(np.int32),
        },
        samples=int(rows.samples.sum()),
        weight=int(rows.weight.sum()),
        missing=stacks.missing,
        damaged=log.damaged,
        images=distinct(stacks.image)[0],
    )


class Words:
    """What the numbers in chunks mean: names, windows, cgroups, events."""

    def __init__(self, run: Run) -> None:
        self._events = [*run.events, UNKNOWN]
        self._names: dict[int, str] = {}
        self._windows: dict[int, Window] = {}
        self._cgroups: dict[int, tuple[str | None, ...]] = {}

    def learn(
        self,
        connection: sqlite3.Connection,
        windows: Sequence[Window],
        *,
        names: Sequence[Numbers],
        cgroups: Numbers,
    ) -> None:
        """Read those that are not known yet."""
        self._windows.update((window.id, window) for window in windows)
        used = distinct(np.concatenate(names))[0].tolist()
        wanted = [number for number in used if number not in self._names]
        self._names.update(dict.fromkeys(wanted, UNKNOWN))
        for at in range(0, len(wanted), _ASKED_AT_ONCE):
            some = wanted[at : at + _ASKED_AT_ONCE]
            marks = ",".join("?" * len(some))
            self._names.update(
                connection.execute(f"SELECT id, text FROM names WHERE id IN ({marks})", some)  # noqa: S608
            )
        if cgroups.any():
            self._cgroups.update(
                (number, tuple(about))
                for number, *about in connection.execute(
                    "SELECT id, path, unit, container FROM cgroups"
                )
            )

    def texts(self, numbers: Numbers) -> Texts:
        """The name of each number."""
        used, which = distinct(numbers)
        texts: Texts = np.array([self._names[number] for number in used.tolist()], object)[which]
        return texts

    def tables(self) -> dict[str, dict[str, Any]]:
        """All of them, as tables of columns: number and what it means."""
        windows = list(self._windows.values())
        cgroups = [(number, *about) for number, about in self._cgroups.items()]
        return {
            "word_names": {
                "number": np.array(list(self._names), np.int32),
                "text": np.array(list(self._names.values()), object),
            },
            "word_events": {
                "number": np.arange(len(self._events), dtype=np.int32),
                "text": np.array(self._events, object),
            },
            "word_windows": {
                "number": np.array([window.id for window in windows], np.int64),
                "time_us": np.array([window.start_ns // 1000 for window in windows], np.int64),
                "seconds": np.array([_seconds(window) for window in windows], np.float64),
            },
            "word_cgroups": {
                "number": np.array([row[0] for row in cgroups], np.int32),
                "path": np.array([row[1] or None for row in cgroups], object),
                "unit": np.array([row[2] or None for row in cgroups], object),
                "container": np.array([row[3] or None for row in cgroups], object),
            },
        }


def _seconds(window: Window) -> float:
    """A window's length to a hundredth: most then have the same."""
    return round((window.end_ns - window.start_ns) / 1e9, 2)


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
    ``path`` and ``name`` have an entry a frame of the new ones, leaf first.
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
        position = np.arange(len(self.stack)) - np.repeat(begins, lengths)
        frame = np.repeat(stacks.start[:-1][shown], lengths) + position
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

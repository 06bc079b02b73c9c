"""Stretches of a run within which numbers of frames and stacks mean the same.

A writer that remembers a stack gives it one number for as long as it
remembers, so a window may name a stack that was stored long before. A few
times a day, and when it has seen too many, the writer forgets on purpose:
windows from then on name only what is stored from then on. What is in no
epoch that still has windows can then be deleted without looking into blocks.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from opd.store.dictionary import Dictionary

# What is remembered of a run; past it, frames and stacks get new numbers.
FRAMES_KNOWN = 1 << 16
STACKS_KNOWN = 1 << 16
EPOCH_SECONDS = 6 * 3600.0
# An epoch without windows may be another writer's that has yet to store one.
YOUNG_NS = 3600 * 1_000_000_000

Span = tuple[int, int]


class Epoch:
    """The writer's own: since its condenser last forgot."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.forget()

    def forget(self) -> None:
        """The condenser has forgotten everything."""
        self._began = time.monotonic()
        self._firsts: tuple[int, int] | None = None
        self._run = 0
        self._id = 0
        self._frames = self._stacks = 0

    @property
    def is_over(self) -> bool:
        """Whether it is time to forget."""
        return (
            self._frames > FRAMES_KNOWN
            or self._stacks > STACKS_KNOWN
            or time.monotonic() - self._began > EPOCH_SECONDS
        )

    @property
    def id(self) -> int:
        """Its row; 0 before its first window."""
        return self._id

    def enter(self, dictionary: Dictionary, run: int, sequence: int) -> None:
        """A window of the run comes, and with it numbers from the next ones on."""
        if self._firsts is None:
            self._firsts = dictionary.next_stack(), dictionary.next_frame()
        if self._run != run:
            stack, frame = self._firsts
            self._id = (
                self._connection.execute(
                    "INSERT INTO epochs (run, from_sequence, started_ns, first_stack, end_stack,"
                    " first_frame, end_frame) VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (run, sequence, time.time_ns(), stack, dictionary.next_stack())
                    + (frame, dictionary.next_frame()),
                ).lastrowid
                or 0
            )
            self._run = run

    def leave(self, dictionary: Dictionary, *, frames: int, stacks: int) -> None:
        """The window brought so many new frames and stacks."""
        self._frames += frames
        self._stacks += stacks
        if frames or stacks:
            self._connection.execute(
                "UPDATE epochs SET end_stack = ?, end_frame = ? WHERE id = ?",
                (dictionary.next_stack(), dictionary.next_frame(), self._id),
            )


def drop_dead(connection: sqlite3.Connection, own: int) -> int:
    """Delete epochs that have no windows any more, but ``own`` and young ones; how many."""
    dead = [
        id_
        for (id_,) in connection.execute(
            "SELECT id FROM epochs AS e WHERE id != ? AND started_ns < ? AND NOT EXISTS ("
            " SELECT 1 FROM windows WHERE run = e.run AND sequence >= e.from_sequence"
            "  AND sequence < ifnull((SELECT min(from_sequence) FROM epochs AS next"
            "   WHERE next.run = e.run AND next.from_sequence > e.from_sequence), 1 << 62))",
            (own, time.time_ns() - YOUNG_NS),
        )
    ]
    connection.executemany("DELETE FROM epochs WHERE id = ?", ((id_,) for id_ in dead))
    return len(dead)


def gaps(connection: sqlite3.Connection, table: str) -> Iterator[Span]:
    """The numbers [first, end) of ``stacks`` or ``frames`` that are in no epoch."""
    kind = {"stacks": "stack", "frames": "frame"}[table]
    at = 0
    for first, end in connection.execute(
        f"SELECT first_{kind}, end_{kind} FROM epochs ORDER BY first_{kind}"  # noqa: S608
    ).fetchall():
        if first > at:
            yield at, first
        at = max(at, end)

"""The numbers that windows use for names, images, frames and stacks.

All calls happen inside the caller's write transaction; after a rollback the
caller drops the dictionary and makes a new one, since what it cached may not
exist. Caches have two generations: when the young one is full it becomes the
old one, and what is not asked for again goes with the next turn.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from opd.store.blocks import pack
from opd.store.database import printable
from opd.store.schema import IMAGE_DELETED
from opd_native.columns import steps as differences

try:
    # What hashlib.blake2b is. hashlib itself loads OpenSSL: 5 ms and 3 MB of the worker.
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Hashable, Iterable, Sequence

    from opd.sampling.window import ImageInfo
    from opd_native.condense import Column

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")

_NAMES_CACHED = 8192
_TEXTS_A_STATEMENT = 500
_IMAGES_CACHED = 4096
_CGROUPS_CACHED = 1024


class Cache(Generic[K, V]):
    """A dict of at most about ``2 * limit`` entries, oldest unused ones gone first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """The value, which counts as a use."""
        value = self._young.get(key)
        if value is None:
            value = self._old.get(key)
            if value is not None:
                self[key] = value
        return value

    def __setitem__(self, key: K, value: V) -> None:
        if len(self._young) >= self._limit:
            self._old = self._young
            self._young = {}
        self._young[key] = value

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


FRAME_COLUMNS = 6
STACK_COLUMNS = 4


class Frames(NamedTuple):
    """Frames of one image: ascending ELF addresses, and for each its name.

    ``caller``: return addresses. Names and raw names (0: the same) by number.
    """

    image: int
    caller: int
    addresses: array[int]
    names: array[int]
    raws: array[int]
    kinds: array[int]


def text_hash(text: str) -> int:
    """48 bits of a hash: six bytes a name in the index."""
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big")


class Dictionary:
    """Finds or makes the numbers in one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._names: Cache[str, int] = Cache(_NAMES_CACHED)
        self._images: Cache[tuple[bytes, str], int] = Cache(_IMAGES_CACHED)
        self._cgroups: Cache[str, int] = Cache(_CGROUPS_CACHED)

    def name(self, text: str) -> int:
        """The number of a text (made valid UTF-8)."""
        number = self._names.get(text)
        if number is None:
            shown = printable(text)
            hashed = text_hash(shown)
            row = self._connection.execute(
                "SELECT id FROM names WHERE hash = ? AND text = ?", (hashed, shown)
            ).fetchone()
            if row is None:
                number = self._insert("INSERT INTO names (hash, text) VALUES (?, ?)", hashed, shown)
            else:
                number = int(row[0])
            self._names[text] = number
        return number

    def learn(self, texts: Iterable[str]) -> None:
        """Number many texts in few statements; ``name`` then knows them."""
        new = {text: printable(text) for text in texts if self._names.get(text) is None}
        shown = {text: text_hash(text) for text in new.values()}
        known: dict[str, int] = {}
        hashes = list(set(shown.values()))
        for at in range(0, len(hashes), _TEXTS_A_STATEMENT):
            some = hashes[at : at + _TEXTS_A_STATEMENT]
            rows = self._connection.execute(
                f"SELECT text, id FROM names WHERE hash IN ({', '.join('?' * len(some))})",  # noqa: S608
                some,
            )
            known.update(rows)
        unknown = [text for text in shown if text not in known]
        if unknown:
            first = self._connection.execute("SELECT coalesce(max(id), 0) + 1 FROM names")
            ids = range(int(first.fetchone()[0]), 1 << 62)
            known.update(zip(unknown, ids, strict=False))
            self._connection.executemany(
                "INSERT INTO names (id, hash, text) VALUES (?, ?, ?)",
                [(known[text], shown[text], text) for text in unknown],
            )
        for text, written in new.items():
            self._names[text] = known[written]

    def image(self, info: ImageInfo, identity: bytes) -> int:
        """The number of an image: one for each identity and path."""
        key = (identity, info.path)
        number = self._images.get(key)
        if number is None:
            path = self.name(info.path)
            flags = IMAGE_DELETED if info.deleted else 0
            row = self._connection.execute(
                "SELECT id, flags FROM images WHERE identity = ? AND path = ?", (identity, path)
            ).fetchone()
            if row is None:
                number = self._insert(
                    "INSERT INTO images (identity, path, kind, build_id, flags)"
                    " VALUES (?, ?, ?, ?, ?)",
                    *(identity, path, info.kind, _hex(info.build_id), flags),
                )
            else:
                number = int(row[0])
                if row[1] != flags:
                    self._connection.execute(
                        "UPDATE images SET flags = ? WHERE id = ?", (flags, number)
                    )
            self._images[key] = number
        return number

    def cgroup(self, path: str) -> int:
        """The number of a cgroup, one for each path."""
        number = self._cgroups.get(path)
        if number is None:
            shown = printable(path)
            row = self._connection.execute(
                "SELECT id FROM cgroups WHERE path = ?", (shown,)
            ).fetchone()
            if row is None:
                from opd.sampling.labels import read_label  # start-up has a budget

                number = self._insert(
                    "INSERT INTO cgroups (path, unit, slice, container, runtime)"
                    " VALUES (?, ?, ?, ?, ?)",
                    *(shown, *read_label(shown)),
                )
            else:
                number = int(row[0])
            self._cgroups[path] = number
        return number

    def add_frames(self, groups: Sequence[Frames]) -> int:
        """Store frames; the number of the first, the others follow in order.

        Neighbours in a file are near in number: kept are differences, modulo
        2**64, to the address before where that is of the same image.
        """
        first = self._next("frames")
        images, steps, callers = array("I"), array("Q"), array("B")
        names, raws, kinds = array("I"), array("I"), array("I")
        before = last = 0
        for group in groups:
            count = len(group.addresses)
            if not count:
                continue
            images.extend(array("I", [group.image]) * count)
            callers.extend(array("B", [group.caller]) * count)
            steps.extend(differences(group.addresses, last if group.image == before else 0))
            before, last = group.image, group.addresses[-1]
            names.extend(group.names)
            raws.extend(group.raws)
            kinds.extend(group.kinds)
        if images:
            block = pack([images, steps, callers, names, raws, kinds])
            self._insert("INSERT INTO frames VALUES (?, ?, ?)", first, len(images), block)
        return first

    def next_stack(self) -> int:
        """The number that the next new stack gets."""
        return self._next("stacks")

    def next_frame(self) -> int:
        """The number that the next new frame gets."""
        return self._next("frames")

    def add_stacks(self, first: int, count: int, columns: Sequence[Column]) -> None:
        """Store ``count`` stacks, numbered from ``first``.

        The columns are, for each stack in order of its frames, flags, number
        of frames, and how many of them it shares with the one before; then
        the frames that are not shared, root first.
        """
        if count:
            self._insert("INSERT INTO stacks VALUES (?, ?, ?)", first, count, pack(columns))

    def _insert(self, statement: str, *values: object) -> int:
        number = self._connection.execute(statement, values).lastrowid
        return 0 if number is None else number

    def _next(self, table: str) -> int:
        row = self._connection.execute(
            f"SELECT first + count FROM {table} ORDER BY first DESC LIMIT 1"  # noqa: S608
        ).fetchone()
        return 1 if row is None else int(row[0])


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""

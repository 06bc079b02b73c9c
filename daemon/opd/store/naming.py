"""Names the frames of one run: what the worker knows of its images, and who can read them."""

from __future__ import annotations

from array import array
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from opd.errors import StoreError
from opd.sampling.window import ImageInfo
from opd.store.dictionary import Frames
from opd.store.names import UNKNOWN, kind_of
from opd_native.condense import NAME_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.store.dictionary import Dictionary
    from opd.store.names import NameLike, NameSource


class _Name(NamedTuple):
    text: str
    raw: str
    kind: str


_NO_NAME = _Name(UNKNOWN, UNKNOWN, "unknown")


class Namer:
    """Images of the run by uid, and the source of their names.

    What the source cannot do costs names, never a window: ``errors`` counts
    it by kind.
    """

    def __init__(self) -> None:
        self._images: dict[int, ImageInfo] = {}
        self._identities: dict[int, bytes] = {}
        self._source: NameSource | None = None
        self.errors: dict[str, int] = {}

    def begin(self, source: NameSource) -> None:
        """Another run: image uids begin anew."""
        self._images = {}
        self._identities = {}
        self._source = source

    def forget(self) -> None:
        """Ask for identities anew: a transaction failed."""
        self._identities = {}

    def counters(self) -> dict[str, int]:
        """What the source counted, and errors by kind."""
        counted: dict[str, int] = getattr(self._source, "counters", {})
        return {**{f"resolver_{kind}": n for kind, n in self.errors.items()}, **counted}

    def add(self, info: ImageInfo, fd: int | None) -> None:
        """Announce an image; the source gets the file, and closes it."""
        self._images[info.uid] = info
        try:
            self._known_source().add_image(info, fd)
        except Exception as error:  # noqa: BLE001 - it read a file that anybody wrote
            self._blame(error)

    def path(self, uid: int) -> str:
        """The image's path."""
        info = self._images.get(uid)
        return UNKNOWN if info is None else info.path

    def name(self, dictionary: Dictionary, new: list[tuple[int, int, int]]) -> array[int]:
        """Name and store new frames; number, name and kind of each, in their order."""
        groups = [
            self._frames_of(dictionary, uid, caller, array("Q", map(itemgetter(2), group)))
            for (uid, caller), group in groupby(new, key=itemgetter(0, 1))
        ]
        first = dictionary.add_frames(groups)
        words = array("I", bytes(4 * NAME_WORDS * len(new)))
        words[0::NAME_WORDS] = array("I", range(first, first + len(new)))
        words[1::NAME_WORDS] = array("I", chain.from_iterable(group.names for group in groups))
        words[2::NAME_WORDS] = array("I", chain.from_iterable(group.kinds for group in groups))
        return words

    def _frames_of(
        self, dictionary: Dictionary, uid: int, caller: int, offsets: array[int]
    ) -> Frames:
        """Frames of one image with address and name, as the source says."""
        info = self._images.get(uid) or ImageInfo(uid=uid, kind="unknown", path=UNKNOWN)
        image = dictionary.image(info, self._identity(uid))
        try:
            addresses, distinct, which = self._ask(uid, offsets, caller=bool(caller))
        except Exception as error:  # noqa: BLE001 - it read a file that anybody wrote
            self._blame(error)
            addresses, distinct, which = offsets, [_NO_NAME], [0] * len(offsets)
        number = dictionary.name
        names = [number(name.text) for name in distinct]
        raws = [0 if name.raw == name.text else number(name.raw) for name in distinct]
        kinds = [kind_of(name.kind) for name in distinct]
        return Frames(
            image,
            caller,
            addresses,
            [names[index] for index in which],
            [raws[index] for index in which],
            [kinds[index] for index in which],
        )

    def _ask(
        self, uid: int, offsets: array[int], *, caller: bool
    ) -> tuple[array[int], Sequence[NameLike], Sequence[int]]:
        """ELF addresses, names, and for each address which name."""
        if uid not in self._images:
            raise StoreError(f"image {uid} was never announced")
        source = self._known_source()
        addresses = source.elf_addresses(uid, offsets)
        distinct, which = source.name_runs(uid, addresses, caller=caller)
        if not len(which) == len(addresses) == len(offsets):
            raise StoreError(f"image {uid}: the resolver answered another number of frames")
        return addresses, distinct, which

    def _identity(self, uid: int) -> bytes:
        identity = self._identities.get(uid)
        if identity is None:
            try:
                identity = bytes(self._known_source().image_identity(uid))
            except Exception as error:  # noqa: BLE001 - it read a file that anybody wrote
                self._blame(error)
                identity = bytes(16)
            self._identities[uid] = identity
        return identity

    def _known_source(self) -> NameSource:
        if self._source is None:
            raise StoreError("a frame before a run was opened")
        return self._source

    def _blame(self, error: Exception) -> None:
        """Count what the source could not do, by kind of error."""
        kind = type(error).__name__
        self.errors[kind] = self.errors.get(kind, 0) + 1

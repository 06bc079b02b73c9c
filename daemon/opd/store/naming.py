"""Names the frames of one run: what the worker knows of its images, and who can read them."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from opd.errors import StoreError
from opd.redaction import redact_path
from opd.sampling.window import ImageInfo
from opd.store.dictionary import Frames
from opd.store.names import UNKNOWN, kind_of
from opd_native.columns import gather
from opd_native.condense import NAME_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.redaction import Redact
    from opd.store.dictionary import Dictionary
    from opd.store.names import NameLike, NameSource
    from opd_native.condense import NewFrames


class _Name(NamedTuple):
    text: str
    raw: str
    kind: str


_NO_NAME = _Name(UNKNOWN, UNKNOWN, "unknown")


class _Answer(NamedTuple):
    """Names of frames of one image: for each address the index of one in ``distinct``."""

    uid: int
    caller: int
    addresses: array[int]
    distinct: Sequence[NameLike]
    which: array[int]


class Namer:
    """Images of the run by uid, and the source of their names.

    What the source cannot do costs names, never a window: ``errors`` counts
    it by kind.
    """

    def __init__(self, redact: Redact = "none") -> None:
        self._redact: Redact = redact
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
        kept = info
        if self._redact != "none":
            # What is stored; the source still needs to find the file.
            kept = msgspec.structs.replace(info, path=redact_path(info.path, self._redact))
        self._images[info.uid] = kept
        try:
            self._known_source().add_image(info, fd)
        except Exception as error:  # noqa: BLE001 - it read a file that anybody wrote
            self._blame(error)

    def path(self, uid: int) -> str:
        """The image's path."""
        info = self._images.get(uid)
        return UNKNOWN if info is None else info.path

    def name(self, dictionary: Dictionary, new: NewFrames) -> array[int]:
        """Name and store new frames; number, name and kind of each, in their order."""
        count = len(new.addresses)
        ends = [at for _uid, _caller, at in new.groups[1:]] + [count]
        answers = [
            self._answer(uid, caller, new.addresses[at:end])
            for (uid, caller, at), end in zip(new.groups, ends, strict=False)
        ]
        dictionary.learn(
            text for answer in answers for name in answer.distinct for text in (name.text, name.raw)
        )
        groups = [self._frames(dictionary, answer) for answer in answers]
        first = dictionary.add_frames(groups)
        words = array("I", bytes(4 * NAME_WORDS * count))
        names, kinds = array("I"), array("I")
        for group in groups:
            names.extend(group.names)
            kinds.extend(group.kinds)
        words[0::NAME_WORDS] = array("I", range(first, first + count))
        words[1::NAME_WORDS] = names
        words[2::NAME_WORDS] = kinds
        return words

    def _answer(self, uid: int, caller: int, offsets: array[int]) -> _Answer:
        """What the source says of frames of one image."""
        try:
            return _Answer(uid, caller, *self._ask(uid, offsets, caller=bool(caller)))
        except Exception as error:  # noqa: BLE001 - it read a file that anybody wrote
            self._blame(error)
            return _Answer(uid, caller, offsets, [_NO_NAME], array("I", bytes(4 * len(offsets))))

    def _frames(self, dictionary: Dictionary, answer: _Answer) -> Frames:
        """Frames of one image by numbers."""
        info = self._images.get(answer.uid)
        if info is None:
            info = ImageInfo(uid=answer.uid, kind="unknown", path=UNKNOWN)
        number = dictionary.name
        distinct = answer.distinct
        names = [number(name.text) for name in distinct]
        raws = [0 if name.raw == name.text else number(name.raw) for name in distinct]
        kinds = [kind_of(name.kind) for name in distinct]
        return Frames(
            dictionary.image(info, self._identity(answer.uid)),
            answer.caller,
            answer.addresses,
            gather(array("I", names), answer.which),
            gather(array("I", raws), answer.which),
            gather(array("I", kinds), answer.which),
        )

    def _ask(
        self, uid: int, offsets: array[int], *, caller: bool
    ) -> tuple[array[int], Sequence[NameLike], array[int]]:
        """ELF addresses, names, and for each address which name."""
        if uid not in self._images:
            raise StoreError(f"image {uid} was never announced")
        source = self._known_source()
        addresses = source.elf_addresses(uid, offsets)
        distinct, which = source.name_runs(uid, addresses, caller=caller)
        if not len(which) == len(addresses) == len(offsets):
            raise StoreError(f"image {uid}: the resolver answered another number of frames")
        return addresses, distinct, which if isinstance(which, array) else array("I", which)

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

"""What the store asks of whoever knows images: identities, addresses, names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

    from opd.sampling.window import ImageInfo, RunInfo

UNKNOWN = "[unknown]"

# Kinds of a name as the store keeps them.
KIND_NAMED = 0
KIND_RANGE = 1
KIND_UNKNOWN = 2
_KINDS = {"unknown": KIND_UNKNOWN, "range": KIND_RANGE, "ranges": KIND_RANGE}


class NameLike(Protocol):
    """One answer: ``text`` is shown, ``raw`` is the symbol's own spelling."""

    @property
    def text(self) -> str:
        """What reports print."""

    @property
    def raw(self) -> str:
        """The symbol as its file spells it."""

    @property
    def kind(self) -> str:
        """``unknown``, ``range`` (IMAGE!0xSTART), or any word for a symbol."""


class NameSource(Protocol):
    """Knows the images of one run. May raise: the store then writes ``[unknown]``."""

    def add_image(self, info: ImageInfo, fd: int | None) -> None:
        """Announce an image. ``fd`` becomes the source's, which closes it."""

    def image_identity(self, uid: int) -> bytes:
        """16 bytes, the same on every host."""

    def elf_addresses(self, uid: int, offsets: array[int]) -> array[int]:
        """u64 to u64: what the sampler gave to the address in the ELF file."""

    def name_runs(
        self, uid: int, elf_addresses: array[int], *, caller: bool
    ) -> tuple[Sequence[NameLike], Sequence[int]]:
        """Names, and for each address which of them; ``caller``: they are return addresses."""


# The worker makes one for each run; a source itself serves a single run.
if TYPE_CHECKING:
    Resolver = NameSource | Callable[[RunInfo], NameSource]


def kind_of(word: str) -> int:
    """The kind as a number."""
    return _KINDS.get(word, KIND_NAMED)

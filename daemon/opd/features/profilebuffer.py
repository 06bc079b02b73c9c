"""What a profile buffer holds, and who serves it: what ``opctl readprofile`` asks for."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple, Protocol

from opd.errors import OperationFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

KERNEL, MODULE, BINARY = "kernel", "module", "binary"


class Buffer(NamedTuple):
    """What a profile buffer held at a moment.

    ``what``: KERNEL, MODULE or BINARY. ``image``: ``[kernel]``, ``[ext4]`` or a
    path. ``start``: the address of slot 0, at runtime or in the ELF file;
    slot i is of [start + i << shift, start + (i + 1) << shift). ``slots`` are
    those with ticks, in order, ``ticks`` what they have. ``length``: slots in
    all. ``outside``: samples of the image that were in no slot.
    """

    what: str
    image: str
    start: int
    shift: int
    length: int
    slots: Sequence[int]
    ticks: Sequence[int]
    outside: int = 0

    def addresses(self) -> array[int]:
        """Where the slots with ticks begin."""
        return array("Q", [self.start + (slot << self.shift) for slot in self.slots])


class ProfileSource(Protocol):
    """The running feature; any thread may call."""

    def read(self) -> Buffer:
        """Flip, flush, and give what the buffer holds then."""
        ...

    def reset(self) -> None:
        """Flip, and have all slots at 0."""
        ...


_serving: list[ProfileSource] = []


def serve(source: ProfileSource | None) -> None:
    """Have this one answer from now on; None: nobody."""
    _serving[:] = [] if source is None else [source]


def serving() -> ProfileSource:
    """Who answers. Raises OperationFailedError when nobody does."""
    found = _serving[:1]
    if not found:
        raise OperationFailedError("profile-hash counts nothing yet", hint="ask again in a moment")
    return found[0]

"""What a profile buffer held at a moment: what ``opctl readprofile`` asks for."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KERNEL, MODULE, BINARY = "kernel", "module", "binary"


class Symbol(NamedTuple):
    """A function of [start, end); ``name`` is "" where nothing names the addresses."""

    name: str
    start: int
    end: int


Lookup: TypeAlias = "Callable[[Sequence[int]], tuple[list[Symbol], array[int]]]"
"""Few symbols for addresses, and for each address which of them. Raises NativeError."""


class Buffer(NamedTuple):
    """Slots that have ticks, in order, of ``length`` in all.

    ``what``: KERNEL, MODULE or BINARY. ``image``: ``[kernel]``, ``[ext4]`` or a
    path. ``start``: the address of slot 0, at runtime or in the ELF file;
    slot i is of [start + i << shift, start + (i + 1) << shift). ``outside``:
    samples of the event that were in no slot. ``lookup`` names addresses.
    """

    what: str
    image: str
    start: int
    shift: int
    length: int
    slots: Sequence[int]
    ticks: Sequence[int]
    outside: int
    lookup: Lookup

    def addresses(self) -> array[int]:
        """Where the slots with ticks begin."""
        return array("Q", [self.start + (slot << self.shift) for slot in self.slots])

"""What naming and storing cost the worker, told apart."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

    from opd.sampling.window import ImageInfo
    from opd.store.names import NameLike, NameSource

_T = TypeVar("_T")
NS = 1_000_000_000


class Meter:
    """CPU time of names and of everything around them in the calls that store."""

    def __init__(self) -> None:
        self.names_ns = 0
        self._store_ns = 0

    def storing(self, call: Callable[..., _T], *arguments: Any) -> _T:
        """Make a call; what it does not spend on names is the store's."""
        began, names = time.thread_time_ns(), self.names_ns
        try:
            return call(*arguments)
        finally:
            used = time.thread_time_ns() - began
            self._store_ns += used - (self.names_ns - names)

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time so far by stage."""
        return {"names": self.names_ns / NS, "store": self._store_ns / NS}


class MeteredNames:
    """A NameSource whose time is counted."""

    def __init__(self, source: NameSource, meter: Meter) -> None:
        self._source = source
        self._meter = meter

    def add_image(self, info: ImageInfo, fd: int | None) -> None:
        """Announce an image."""
        self._timed(self._source.add_image, info, fd)

    def image_identity(self, uid: int) -> bytes:
        """16 bytes, the same on every host."""
        return self._timed(self._source.image_identity, uid)

    def elf_addresses(self, uid: int, offsets: array[int]) -> array[int]:
        """What the sampler gave to the address in the ELF file."""
        return self._timed(self._source.elf_addresses, uid, offsets)

    def name_runs(
        self, uid: int, elf_addresses: array[int], *, caller: bool
    ) -> tuple[Sequence[NameLike], Sequence[int]]:
        """Names, and for each address which of them."""
        return self._timed(self._source.name_runs, uid, elf_addresses, caller=caller)

    def __getattr__(self, name: str) -> Any:
        """Whatever else the source has."""
        return getattr(self._source, name)

    def _timed(self, call: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
        began = time.thread_time_ns()
        try:
            return call(*arguments, **options)
        finally:
            self._meter.names_ns += time.thread_time_ns() - began

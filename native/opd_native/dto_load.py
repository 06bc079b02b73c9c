"""Functions out of a shared library, beside another of the same names (opd/dto_load.h).

A library runs as it is loaded: only in a process that is for that.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from opd_native._core import ffi, lib
from opd_native.errors import NativeError

_REASON = 512  # OPD_DTO_LOAD_REASON


class LibraryLoadError(NativeError):
    """The loader refused; ``reason`` has its words."""

    def __init__(self, number: int, path: str, reason: str) -> None:
        super().__init__(number, f"load {path}")
        self.reason = reason

    @property
    def is_full(self) -> bool:
        """Whether another way of loading may do: no namespace, or no room in one."""
        return self.errno in (errno.ENOMEM, errno.ENOSYS)


class Library:
    """A loaded library; it stays until the process ends."""

    def __init__(self, path: str, *, own_namespace: bool) -> None:
        """Load it. Raises LibraryLoadError."""
        handle = ffi.new("void **")
        reason = ffi.new(f"char[{_REASON}]")
        rc = lib.opd_dto_load(os.fsencode(path), own_namespace, handle, reason)
        if rc < 0:
            words = ffi.string(reason).decode(errors="replace")
            raise LibraryLoadError(-rc, path, words)
        self._handle = handle[0]

    def address(self, name: str) -> int:
        """Where the function of that name is, 0 when there is none."""
        return int(ffi.cast("uintptr_t", lib.opd_dto_symbol(self._handle, name.encode())))

    def table(self, name: str, count: int) -> tuple[int, ...]:
        """The addresses in a table of pointers that the library exports. Raises KeyError."""
        found = lib.opd_dto_symbol(self._handle, name.encode())
        if found == ffi.NULL:
            raise KeyError(name)
        cells: Any = ffi.cast("uintptr_t *", found)
        return tuple(int(cells[at]) for at in range(count))


_BYTES = 5000


def wrong_result(name: str, address: int) -> str:
    """Call one of the four once; what is wrong with what it did, "" when nothing is."""
    source = bytes(at * 7 & 0xFF for at in range(_BYTES))
    a = ffi.new("char[]", source)
    b = ffi.new("char[]", b"\xee" * (_BYTES + 2))
    if name == "memcmp":
        compare = ffi.cast("int (*)(const void *, const void *, size_t)", address)
        ffi.memmove(b, source, _BYTES)
        same = compare(a, b, _BYTES)
        b[_BYTES - 1] = bytes([source[-1] ^ 0xFF])
        other = compare(a, b, _BYTES)
        # The sign is that of the first pair that differs, as unsigned bytes.
        is_right = same == 0 and (other < 0) == (source[-1] < source[-1] ^ 0xFF) and other != 0
        return "" if is_right else f"memcmp of {_BYTES} bytes says {same} and {other}"
    if name == "memset":
        fill = ffi.cast("void *(*)(void *, int, size_t)", address)
        given, wanted = fill(b, 0xA5, _BYTES), bytes([0xA5]) * _BYTES
    else:
        copy = ffi.cast("void *(*)(void *, const void *, size_t)", address)
        given, wanted = copy(b, a, _BYTES), source
    if given != ffi.cast("void *", b):
        return f"{name} does not return where it wrote to"
    if bytes(ffi.buffer(b, _BYTES)) != wanted:
        return f"{name} of {_BYTES} bytes does not write what it should"
    if bytes(ffi.buffer(b, _BYTES + 2))[_BYTES:] != b"\xee\xee":
        return f"{name} of {_BYTES} bytes writes beyond its end"
    return ""

"""The kernel's symbol list (contract: opd/kallsyms.h)."""

from __future__ import annotations

import os
import struct
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from opd_native import columns
from opd_native._core import ffi, lib
from opd_native.errors import check

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class KernelSymbol(NamedTuple):
    """``name`` is "" where there is none; ``module`` is "" for the kernel itself."""

    name: str
    module: str
    start: int
    end: int


class KernelText(NamedTuple):
    """Runtime addresses of _text, _stext and _etext; 0 where the list lacks one."""

    text: int
    stext: int
    etext: int


# struct opd_kallsyms_symbol: start, end, and where its name and module are.
_SYMBOL = struct.Struct("<QQQQ")


class Kallsyms:
    """Owns the packed list. ``source`` is a path, or the list itself as bytes.

    Raises NativeError: EACCES when the kernel hides the addresses
    (kptr_restrict), ENODATA when there is no text symbol, ENOENT, ….
    """

    def __init__(self, source: str | Path | bytes = "/proc/kallsyms") -> None:
        out = ffi.new("struct opd_kallsyms **")
        if isinstance(source, bytes):
            check(lib.opd_kallsyms_from_memory(source, len(source), out), "read kallsyms")
        else:
            check(lib.opd_kallsyms_open(os.fsencode(source), out), f"read {source}")
        self._table: Any = ffi.gc(out[0], lib.opd_kallsyms_close)

    @classmethod
    def mapped(cls, fd: int, key: bytes) -> Self:
        """The list that ``save`` wrote under this 16-byte key, mapped.

        Raises NativeError: ESTALE for another key, EBADMSG for anything else.
        """
        self = cls.__new__(cls)
        out = ffi.new("struct opd_kallsyms **")
        check(lib.opd_kallsyms_map(fd, key, out), "map a saved list of kernel symbols")
        self._table = ffi.gc(out[0], lib.opd_kallsyms_close)
        return self

    def save(self, fd: int, key: bytes) -> None:
        """Write the list to an empty file."""
        check(lib.opd_kallsyms_save(self._table, key, fd), "save the list of kernel symbols")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free everything; the object cannot be used afterwards."""
        table, self._table = self._table, None
        if table is not None:
            ffi.release(table)

    def __len__(self) -> int:
        return int(lib.opd_kallsyms_count(self._table))

    @property
    def bytes_held(self) -> int:
        """Memory of the C object in bytes, less a mapped file."""
        return int(lib.opd_kallsyms_bytes(self._table))

    @property
    def text(self) -> KernelText:
        """Where the kernel's text lies."""
        out = ffi.new("uint64_t[3]")
        lib.opd_kallsyms_text(self._table, out, out + 1, out + 2)
        return KernelText(*out)

    def lookup(self, addresses: Sequence[int]) -> list[KernelSymbol]:
        """Name runtime addresses: of several symbols at one address the first of the list."""
        distinct, which = self.lookup_runs(addresses)
        return [distinct[index] for index in which]

    def lookup_runs(self, addresses: Sequence[int]) -> tuple[list[KernelSymbol], array[int]]:
        """The same as few answers, and for each address which of them."""
        wanted = array("Q", addresses)
        if not wanted:
            return [], array("I")
        symbols = ffi.new("struct opd_kallsyms_symbol[]", len(wanted))
        lib.opd_kallsyms_lookup(
            self._table, ffi.from_buffer("uint64_t[]", wanted), len(wanted), symbols
        )
        which, firsts = columns.runs(symbols, _SYMBOL.size, len(wanted))
        answers = []
        for first in firsts:
            symbol = symbols[first]
            name = _text(symbol.name) if symbol.name else ""
            answers.append(KernelSymbol(name, _text(symbol.module), symbol.start, symbol.end))
        return answers, which

    def ranges(self, names: Sequence[str]) -> list[tuple[int, int]]:
        """Give the [start, end) of every symbol with one of these names, by address."""
        owned = [ffi.new("char[]", os.fsencode(name)) for name in names]
        pointers = ffi.new("char *[]", owned)
        capacity = 4 * len(names) + 16
        while True:
            found = ffi.new("struct opd_kernel_range[]", capacity)
            count = lib.opd_kallsyms_ranges(self._table, pointers, len(names), found, capacity)
            if count <= capacity:
                return [(found[i].start, found[i].end) for i in range(count)]
            capacity = count


def kernel_modules(path: str | Path = "/proc/modules") -> list[tuple[str, int, int]]:
    """Give (name, start, end) of each loaded module; none on a kernel without modules.

    Raises NativeError EACCES when the kernel hides the addresses.
    """
    capacity = 512
    while True:
        found = ffi.new("struct opd_kernel_module[]", capacity)
        count = check(lib.opd_kernel_modules(os.fsencode(path), found, capacity), f"read {path}")
        if count <= capacity:
            return [
                (_text(one.name), one.start, one.start + one.size) for one in list(found)[:count]
            ]
        capacity = count


def _text(value: Any) -> str:
    return bytes(ffi.string(value)).decode("utf-8", "backslashreplace")

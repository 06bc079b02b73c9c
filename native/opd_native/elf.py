"""Names of addresses in ELF files (contract: opd/elf.h)."""

from __future__ import annotations

import errno
import struct
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from opd_native import columns
from opd_native._core import ffi, lib
from opd_native.errors import NativeError, check

if TYPE_CHECKING:
    from collections.abc import Sequence

NONE, NAMED, RANGE = 0, 1, 2

# struct opd_elf_name.
_NAME = struct.Struct("<QQIIII")
_TEXT_CAPACITY = 65536


class ElfName(NamedTuple):
    """One answer: ``kind`` NAMED with ``name``, RANGE with a function's start, or NONE."""

    kind: int
    name: bytes
    start: int
    end: int


class Elf:
    """Owns one opened ELF file; used by one thread at a time.

    ``file`` is a descriptor (duplicated: the caller may close its own) or the
    bytes of an image. Raises NativeError: ENOEXEC when it is no ELF file,
    ENOTSUP when it is big-endian.
    """

    def __init__(self, file: int | bytes) -> None:
        out = ffi.new("struct opd_elf **")
        if isinstance(file, bytes):
            check(lib.opd_elf_from_memory(file, len(file), out), "read ELF image")
        else:
            check(lib.opd_elf_open(file, out), "read ELF file")
        self._elf: Any = ffi.gc(out[0], lib.opd_elf_close)
        self.symbols_loaded = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free everything; the object cannot be used afterwards."""
        elf, self._elf = self._elf, None
        if elf is not None:
            ffi.release(elf)

    @property
    def build_id(self) -> str:
        """The GNU build-id in hex, "" when there is none."""
        identity = ffi.new("uint8_t[]", 64)
        length = lib.opd_elf_build_id(self._elf, identity)
        return bytes(ffi.buffer(identity, length)).hex()

    @property
    def has_symtab(self) -> bool:
        """Whether the file itself has a .symtab."""
        return bool(lib.opd_elf_has_symtab(self._elf))

    @property
    def bytes_held(self) -> int:
        """Memory of the C object, in bytes."""
        return int(lib.opd_elf_bytes(self._elf))

    @property
    def symbol_count(self) -> int:
        """Stretches of addresses in the table of names."""
        return int(lib.opd_elf_symbols(self._elf))

    def load_symbols(self, debug: Elf | None = None) -> None:
        """Build the table of names, once. ``debug`` serves when the file has no .symtab.

        Raises NativeError E2BIG or ENOMEM when the tables are too large; names() then
        still finds function ranges.
        """
        if self.symbols_loaded:
            return
        self.symbols_loaded = True
        debug_elf = ffi.NULL if debug is None else debug._elf  # noqa: SLF001  (the same class)
        check(lib.opd_elf_load_symbols(self._elf, debug_elf), "read ELF symbols")

    def find_function(self, name: str, debug: Elf | None = None) -> int:
        """Give the offset in the file at which a function begins; no table is built.

        Raises NativeError: ENOENT no such function, ENOTUNIQ several of that
        name, ENXIO it is not in the file's code.
        """
        if "\0" in name:
            raise NativeError(errno.ENOENT, "find a function")
        offset = ffi.new("uint64_t *")
        debug_elf = ffi.NULL if debug is None else debug._elf  # noqa: SLF001  (the same class)
        encoded = name.encode(errors="surrogateescape")
        check(lib.opd_elf_find_function(self._elf, debug_elf, encoded, offset), "find a function")
        return int(offset[0])

    def code(self) -> list[tuple[int, int, int]]:
        """Offset in the file, size and ELF address of each executable segment."""
        count = lib.opd_elf_code(self._elf, ffi.NULL, 0)
        out = ffi.new("struct opd_elf_code[]", max(count, 1))
        lib.opd_elf_code(self._elf, out, count)
        return [(one.offset, one.size, one.address) for one in list(out)[:count]]

    def is_code(self, offset: int) -> bool:
        """Whether an offset in the file is in an executable segment."""
        return offset < 1 << 64 and bool(lib.opd_elf_is_code(self._elf, offset))

    def addresses(self, offsets: Sequence[int]) -> array[int]:
        """Turn offsets in the file into ELF addresses; one in no segment stays as it is."""
        result = array("Q", offsets)
        if result:
            lib.opd_elf_addresses(
                self._elf,
                ffi.from_buffer("uint64_t[]", array("Q", offsets)),
                ffi.from_buffer("uint64_t[]", result),
                len(result),
            )
        return result

    def names(self, addresses: Sequence[int]) -> list[ElfName]:
        """Name ELF addresses, one answer each, in order. Raises NativeError ENOMEM only.

        Neighbours in one stretch of addresses get the same object.
        """
        distinct, which = self.name_runs(addresses)
        return [distinct[index] for index in which]

    def name_runs(self, addresses: Sequence[int]) -> tuple[list[ElfName], array[int]]:
        """The same as few answers, and for each address which of them."""
        wanted = array("Q", addresses)
        count = len(wanted)
        answers: list[ElfName] = []
        which = array("I")
        if not count:
            return answers, which
        names = ffi.new("struct opd_elf_name[]", count)
        text = ffi.new("char[]", _TEXT_CAPACITY)
        packed = ffi.from_buffer("uint64_t[]", wanted)
        while (done := len(which)) < count:
            got = lib.opd_elf_names(
                self._elf, packed + done, count - done, names, text, _TEXT_CAPACITY
            )
            if check(got, "name ELF addresses") == 0:
                raise NativeError(75, "name ELF addresses")  # EOVERFLOW: no name is that long
            view, found = ffi.buffer(text), ffi.buffer(names)
            run_of, firsts = columns.runs(names, _NAME.size, got)
            before = len(answers)  # a text buffer that ran full cuts a list in two
            which.extend(array("I", [run + before for run in run_of]) if before else run_of)
            for first in firsts:
                start, end, kind, at, length, _ = _NAME.unpack_from(found, first * _NAME.size)
                name = view[at : at + length] if kind == NAMED else b""
                answers.append(ElfName(kind, name, start, end))
        return answers, which

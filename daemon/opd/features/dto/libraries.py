"""What a library file is and which functions it defines, without running any of it.

Read: ELF shared objects and relocatable objects, and ar archives of the latter.
Facts: the ELF and ar formats (elf.h, ar.h).
"""

from __future__ import annotations

import enum
import mmap
import os
import platform
import stat
import struct
from typing import TYPE_CHECKING, NamedTuple

from opd.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BYTES_MOST = 256 << 20
_SYMBOLS_MOST = 1 << 20
_MEMBERS_MOST = 65536

_MACHINES = {"x86_64": 62, "aarch64": 183, "ppc64le": 21, "s390x": 22, "riscv64": 243}
_NAMES = {number: name for name, number in _MACHINES.items()} | {3: "i386", 40: "arm"}
_ET_REL, _ET_DYN = 1, 3
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_STB_LOCAL = 0
_STV_DEFAULT, _STV_PROTECTED = 0, 3
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_AR_MAGIC, _AR_HEADER = b"!<arch>\n", 60


class Kind(enum.Enum):
    """How the file is brought into a process."""

    SHARED = "shared library"
    OBJECT = "object file"
    ARCHIVE = "archive"


class Library(NamedTuple):
    """A file that was looked at. ``functions``: all that it defines for others."""

    path: str
    kind: Kind
    functions: frozenset[str]


def read_library(path: str) -> Library:
    """Look at a file. Raises UsageError with what it is instead of a library."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise UsageError(f"{path}: a library is wanted, and it is no file")
        if not 0 < info.st_size <= BYTES_MOST:
            raise UsageError(f"{path}: {info.st_size} bytes are no library (1 to {BYTES_MOST})")
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as data:
            return _read(path, data)
    except (struct.error, IndexError, ValueError) as error:
        raise UsageError(f"{path}: its tables are damaged: {error}") from error
    finally:
        os.close(fd)


def need_functions(library: Library, names: Iterable[str]) -> None:
    """Raises UsageError that names the functions which the library does not define."""
    missing = [name for name in names if name not in library.functions]
    if missing:
        there = sorted({"memcpy", "memmove", "memset", "memcmp"} & library.functions)
        raise UsageError(
            f"{library.path}: the {library.kind.value} defines no {' and no '.join(missing)}",
            hint=f"of the four it defines: {' '.join(there) or 'none'}",
        )


def _read(path: str, data: mmap.mmap) -> Library:
    if data[: len(_AR_MAGIC)] == _AR_MAGIC:
        found: set[str] = set()
        objects = 0
        for begin, size in _members(data):
            if data[begin : begin + 4] != b"\x7fELF":
                continue
            if _type(path, data, begin, size) != _ET_REL:
                raise UsageError(f"{path}: a member of the archive is no relocatable object")
            objects += 1
            found.update(_symbols(data, begin, size, _SHT_SYMTAB))
        if not objects:
            raise UsageError(f"{path}: an archive without any ELF object")
        return Library(path, Kind.ARCHIVE, frozenset(found))
    kind = _type(path, data, 0, len(data))
    if kind == _ET_DYN:
        names = _symbols(data, 0, len(data), _SHT_DYNSYM)
        return Library(path, Kind.SHARED, frozenset(names))
    if kind == _ET_REL:
        return Library(path, Kind.OBJECT, frozenset(_symbols(data, 0, len(data), _SHT_SYMTAB)))
    raise UsageError(f"{path}: ELF, but neither a shared library nor an object file")


def _type(path: str, data: mmap.mmap, begin: int, size: int) -> int:
    """The ELF type, once it is sure that it is of this machine. Raises UsageError."""
    head = data[begin : begin + 64]
    if head[:4] != b"\x7fELF":
        raise UsageError(f"{path}: no ELF file, nor an archive of such")
    if size < 64 or head[4] != 2 or head[5] != 1:
        raise UsageError(f"{path}: ELF, but not of 64 bits, least byte first")
    kind, machine = struct.unpack_from("<HH", head, 16)
    wanted = _MACHINES.get(platform.machine())
    if wanted is not None and machine != wanted:
        name = _NAMES.get(machine, f"machine {machine}")
        raise UsageError(f"{path}: made for {name}, and this is {platform.machine()}")
    return int(kind)


def _members(data: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Where each member of an archive begins, and its size."""
    at, count = len(_AR_MAGIC), 0
    while at + _AR_HEADER <= len(data):
        header = data[at : at + _AR_HEADER]
        if header[58:60] != b"`\n":
            raise ValueError(f"no member of an archive at {at}")
        size = int(header[48:58].decode("ascii").strip() or "0")
        count += 1
        if size < 0 or at + _AR_HEADER + size > len(data) or count > _MEMBERS_MOST:
            raise ValueError(f"a member of {size} bytes at {at}")
        yield at + _AR_HEADER, size
        at += _AR_HEADER + size + size % 2


def _symbols(data: mmap.mmap, base: int, size: int, table: int) -> set[str]:
    """Names that the tables of one ELF image define for others."""
    (sections,) = struct.unpack_from("<Q", data, base + 40)
    entry, count = struct.unpack_from("<HH", data, base + 58)
    if not sections or entry != _SECTION.size or sections + count * entry > size:
        raise ValueError("no table of sections")
    headers = [_SECTION.unpack_from(data, base + sections + at * entry) for at in range(count)]
    found: set[str] = set()
    for header in headers:
        if header[1] != table:
            continue
        where, length, link, each = header[4], header[5], header[6], header[9]
        if each != _SYMBOL.size or where + length > size or link >= count:
            raise ValueError("a table of symbols lies outside of the file")
        texts, texts_size = headers[link][4], headers[link][5]
        if texts + texts_size > size or length // each > _SYMBOLS_MOST:
            raise ValueError("names of symbols lie outside of the file")
        for name, info, other, index, _value, _size in _SYMBOL.iter_unpack(
            data[base + where : base + where + length // each * each]
        ):
            is_seen = table == _SHT_SYMTAB or other & 3 in (_STV_DEFAULT, _STV_PROTECTED)
            if index == 0 or info >> 4 == _STB_LOCAL or not is_seen or not name < texts_size:
                continue
            end = data.find(b"\0", base + texts + name, base + texts + texts_size)
            if end > 0:
                found.add(data[base + texts + name : end].decode(errors="replace"))
    return found

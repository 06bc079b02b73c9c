"""Names of what is counted: by the kernel's list, or by a file's own symbols."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from opd.features.profilebuffer import Symbol
from opd.symbols.files import open_debug_file
from opd_native.demangle import demangle
from opd_native.elf import NAMED, RANGE
from opd_native.errors import NativeError

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

    from opd.features.profilebuffer import Lookup
    from opd_native.elf import Elf, ElfName
    from opd_native.kallsyms import Kallsyms

DEBUG_ROOT = "/usr/lib/debug"


def in_kernel(open_list: Callable[[], Kallsyms]) -> Lookup:
    """Runtime addresses, the kernel's and its modules'; the list is read when first asked."""
    opened: list[Kallsyms] = []

    def lookup(addresses: Sequence[int]) -> tuple[list[Symbol], array[int]]:
        if not opened:
            opened.append(open_list())
        found, which = opened[0].lookup_runs(addresses)
        return [Symbol(one.name, one.start, one.end) for one in found], which

    return lookup


def in_file(elf: Elf, path: str, debug_root: str = DEBUG_ROOT) -> Lookup:
    """ELF addresses, as reports name them; the symbols are read when first asked."""
    image = Path(path).name

    def lookup(addresses: Sequence[int]) -> tuple[list[Symbol], array[int]]:
        if not elf.symbols_loaded:
            _load(elf, debug_root)
        found, which = elf.name_runs(addresses)
        return [Symbol(_spelled(image, one), one.start, one.end) for one in found], which

    return lookup


def _load(elf: Elf, debug_root: str) -> None:
    debug = None if elf.has_symtab else open_debug_file(debug_root, elf.build_id)
    try:
        elf.load_symbols(debug)
    except NativeError as error:
        # Ranges of functions are there all the same.
        if error.errno not in (errno.E2BIG, errno.ENOMEM):
            raise
    finally:
        if debug is not None:
            debug.close()


def _spelled(image: str, found: ElfName) -> str:
    if found.kind == NAMED:
        raw, stub, _ = found.name.decode("utf-8", "backslashreplace").partition("@plt")
        return demangle(raw) + stub
    return f"{image}!{found.start:#x}" if found.kind == RANGE else ""

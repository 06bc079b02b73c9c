"""Names in the running kernel, its modules and its vdso."""

from __future__ import annotations

import errno
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from opd.sampling.kernel import kernel_build_id
from opd.symbols.kallsyms import LIST, MODULES, open_kallsyms
from opd_native.errors import NativeError
from opd_native.kallsyms import Kallsyms, kernel_modules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd_native.kallsyms import KernelSymbol

KERNEL_BASE = 0xFFFFFFFF81000000
"""Where x86-64's _text is linked: kernel addresses are stored relative to it."""

_ADDRESS_MASK = (1 << 64) - 1


def running_kernel_build_id() -> str:
    """Give the build-id of this machine's kernel in hex, "" when it has none."""
    return kernel_build_id()


class KernelSymbols:
    """kallsyms, read when first asked for. Addresses are runtime ones unless it says ELF."""

    def __init__(self, kallsyms: str = LIST, modules: str = MODULES) -> None:
        self._path = kallsyms
        self._modules_path = modules
        self._table: Kallsyms | None = None
        self._failed = ""
        self._text = 0
        self._modules: dict[str, int] | None = None

    @property
    def failed(self) -> str:
        """Why there are no names, as a counter's name: "", kernel_hidden, kernel_unreadable."""
        self._load()
        return self._failed

    @property
    def text(self) -> int:
        """Runtime address of _text, 0 when it is not known."""
        if not self._text:
            self._load()
        return self._text

    @property
    def bytes_held(self) -> int:
        """Memory in use."""
        return self._table.bytes_held if self._table else 0

    def release(self) -> None:
        """Give the memory back; the next lookup reads the list again."""
        if self._table is not None:
            self._table.close()
            self._table = None

    def module_start(self, name: str) -> int:
        """Runtime address of a module's text, 0 when it is not loaded."""
        if self._modules is None or name not in self._modules:
            try:
                found = kernel_modules(self._modules_path)
            except NativeError:
                found = []
            self._modules = {module: start for module, start, _end in found}
        return self._modules.get(name, 0)

    def lookup(self, addresses: Sequence[int]) -> tuple[list[KernelSymbol], array[int]]:
        """Symbols of runtime addresses, and for each address which; none without a list."""
        table = self._load()
        return table.lookup_runs(addresses) if table is not None else ([], array("I"))

    def _load(self) -> Kallsyms | None:
        if self._table is None and not self._failed:
            try:
                self._table = open_kallsyms() if self._path == LIST else Kallsyms(self._path)
            except NativeError as error:
                hidden = error.errno in (errno.EACCES, errno.EPERM)
                self._failed = "kernel_hidden" if hidden else "kernel_unreadable"
            else:
                text = self._table.text
                self._text = text.text or text.stext
        return self._table


def to_elf(runtime: int, text: int) -> int:
    """Turn a runtime address of the kernel into the one stored."""
    return (runtime - text + KERNEL_BASE) & _ADDRESS_MASK


def to_runtime(elf: int, text: int) -> int:
    """Turn a stored address of the kernel into this boot's."""
    return (elf - KERNEL_BASE + text) & _ADDRESS_MASK


def own_vdso() -> bytes:
    """Copy the vdso that the kernel mapped into this process; empty when there is none."""
    try:
        with Path("/proc/self/maps").open("rb") as maps:
            spans = [line.split()[0] for line in maps if line.rstrip().endswith(b"[vdso]")]
        if not spans:
            return b""
        start, _, end = spans[0].partition(b"-")
        first, size = int(start, 16), int(end, 16) - int(start, 16)
        with Path("/proc/self/mem").open("rb", buffering=0) as memory:
            memory.seek(first)
            return memory.read(size)
    except (OSError, ValueError):
        return b""

"""Names of the frames of one run."""

from __future__ import annotations

import socket
from array import array
from collections import OrderedDict
from typing import TYPE_CHECKING, Literal, NamedTuple

from opd.sampling.kernel import boot_id
from opd.sampling.window import RunInfo
from opd.symbols.files import ImageFileError, ImageFiles, open_debug_file
from opd.symbols.identity import canonical, identity
from opd.symbols.kernel import (
    KernelSymbols,
    own_vdso,
    running_kernel_build_id,
    to_elf,
    to_runtime,
)
from opd_native.columns import shifted
from opd_native.demangle import demangle
from opd_native.elf import NAMED, RANGE, Elf
from opd_native.errors import NativeError
from opd_native.process import trim_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.sampling.window import ImageInfo
    from opd_native.elf import ElfName
    from opd_native.kallsyms import KernelSymbol

MEMORY_LIMIT = 16 << 20
# Tables lie among what is kept: their pages go back only when asked for.
_TRIM_BYTES = 4 << 20
OPEN_TABLES = 64


class Name(NamedTuple):
    """``text`` is what reports print, ``raw`` the symbol's own spelling.

    For a ``range`` both are IMAGE!0xSTART, IMAGE being the file's base name,
    which is what fits a line and what a reader looks for.
    """

    text: str
    raw: str
    kind: Literal["named", "range", "unknown"]


UNKNOWN = Name("[unknown]", "[unknown]", "unknown")


class Resolver:
    """Knows the images of one run; used by one thread.

    ``run`` says which kernel it was: a RunInfo, or just the kernel's build-id
    for a live run. ``memory_limit`` bounds the tables kept, in bytes; the one
    in use may exceed it alone. ``counters`` counts images that could not be
    named, by reason.
    """

    def __init__(
        self,
        run: RunInfo | str,
        *,
        kallsyms: str = "/proc/kallsyms",
        modules: str = "/proc/modules",
        debug_root: str = "/usr/lib/debug",
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        self._debug_root = debug_root
        self._memory_limit = memory_limit
        self._files = ImageFiles(trust_inodes=_ours(run))
        self._kernel_name = _kernel_name(run)
        self._imported = isinstance(run, RunInfo) and run.kind == "import"
        self._kernel = KernelSymbols(kallsyms, modules) if _runs_here(run) else None
        self._kernel_text = 0
        self._images: dict[int, ImageInfo] = {}
        self._build_ids: dict[int, str] = {}
        self._failed: set[int] = set()
        self._tables: OrderedDict[str, Elf] = OrderedDict()
        self._freed = 0  # bytes of tables let go since memory was given back
        self._sizes: dict[str, int] = {}
        self._held = 0  # the sum of the sizes
        self.counters: dict[str, int] = {}

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close every file and free every table."""
        if hasattr(self, "_tables"):
            while self._tables:
                self._tables.popitem()[1].close()
            self._files.close()
            if self._kernel is not None:
                self._kernel.release()

    def set_kernel_text(self, address: int) -> None:
        """Tell where _text was in the recording; else this boot's is taken."""
        self._kernel_text = address

    def add_image(self, info: ImageInfo, fd: int | None) -> None:
        """Announce an image. ``fd``, when given, is its open file and ours to close."""
        self._images[info.uid] = info
        self._failed.discard(info.uid)
        self._build_ids.pop(info.uid, None)
        if fd is not None:
            self._files.give(info.uid, fd)

    def image_build_id(self, uid: int) -> str:
        """Give the build-id in hex, of the file when the sampler did not know; "" for none."""
        info = self._images[uid]
        if info.build_id or info.kind not in ("file", "vdso"):
            return info.build_id
        if uid not in self._build_ids:
            elf = self._elf(uid)
            self._build_ids[uid] = elf.build_id if elf is not None else ""
        return self._build_ids[uid]

    def image_identity(self, uid: int) -> bytes:
        """Give the image's identity: 16 bytes, the same on every host."""
        return identity(canonical(self._images[uid], self.image_build_id(uid), self._kernel_name))

    def elf_addresses(self, uid: int, offsets: Sequence[int]) -> array[int]:
        """Turn what the sampler gave (u64) into ELF addresses (u64)."""
        info = self._images[uid]
        if info.kind in {"file", "vdso"}:
            elf = self._elf(uid)
            return array("Q", offsets) if elf is None else elf.addresses(offsets)
        if info.kind == "kernel":
            text = self._kernel_text or self._text_of(info)
            if text:
                return shifted(_u64(offsets), to_elf(0, text))
        if info.kind in ("module", "bpf") and info.start:
            return shifted(_u64(offsets), -info.start)
        return array("Q", offsets)

    def _text_of(self, info: ImageInfo) -> int:
        here = self._kernel.text if self._kernel is not None else 0
        # A recording of another boot has its own place for the kernel.
        return (info.start or here) if self._imported else (here or info.start)

    def names(self, uid: int, elf_addresses: Sequence[int], *, caller: bool = False) -> list[Name]:
        """Name ELF addresses, one answer each. ``caller``: they are return addresses."""
        distinct, which = self.name_runs(uid, elf_addresses, caller=caller)
        return [distinct[index] for index in which]

    def name_runs(
        self, uid: int, elf_addresses: Sequence[int], *, caller: bool = False
    ) -> tuple[list[Name], array[int]]:
        """Name ELF addresses: few names, and for each address which of them.

        Sorted addresses are cheapest: those in one function are named once.
        """
        info = self._images[uid]
        count = len(elf_addresses)
        if caller:  # the call is before the address, and perhaps in another function
            elf_addresses = shifted(_u64(elf_addresses), -1, but_zero=True)
        if info.kind in {"file", "vdso"}:
            return self._elf_names(info, elf_addresses)
        if info.kind in {"kernel", "module"}:
            return self._kernel_names(info, elf_addresses)
        if info.kind in {"bpf", "feature"} and info.symbol:
            return [Name(info.symbol, info.symbol, "named")], array("I", bytes(4 * count))
        return _unnamed(count)

    def _elf_names(
        self, info: ImageInfo, addresses: Sequence[int]
    ) -> tuple[list[Name], array[int]]:
        elf = self._elf(info.uid)
        if elf is None:
            return _unnamed(len(addresses))
        if not elf.symbols_loaded:
            debug = None if elf.has_symtab else open_debug_file(self._debug_root, elf.build_id)
            try:
                elf.load_symbols(debug)
            except NativeError:
                self._count("symbols_too_large")
            finally:
                if debug is not None:
                    debug.close()
            self._shrink()
        image = info.path.rsplit("/", 1)[-1] or info.path

        def spell(found: ElfName) -> Name:
            if found.kind == NAMED:
                raw = _printable(found.name.decode("utf-8", "backslashreplace"))
                symbol, stub, _ = raw.partition("@plt")
                return Name(_printable(demangle(symbol) + stub), raw, "named")
            if found.kind == RANGE:
                text = _printable(f"{image}!{found.start:#x}")
                return Name(text, text, "range")
            return UNKNOWN

        found, which = elf.name_runs(addresses)
        return [spell(one) for one in found], which

    def _kernel_names(
        self, info: ImageInfo, addresses: Sequence[int]
    ) -> tuple[list[Name], array[int]]:
        unknown = _unnamed(len(addresses))
        if self._kernel is None:
            self._fail(info.uid, "kernel_foreign")
            return unknown
        if self._kernel.failed:
            self._fail(info.uid, self._kernel.failed)
            return unknown
        module = ""
        if info.kind == "kernel":
            text = self._kernel.text
            runtime = shifted(_u64(addresses), to_runtime(0, text)) if text else _u64(addresses)
        else:
            module = info.path.strip("[]")
            start = self._kernel.module_start(module) if info.start else 0
            if info.start and not start:
                self._fail(info.uid, "module_gone")
                return unknown
            runtime = shifted(_u64(addresses), start)

        def spell(found: KernelSymbol) -> Name:
            here = found.name and found.module == module
            return Name(found.name, found.name, "named") if here else UNKNOWN

        found, which = self._kernel.lookup(runtime)
        return [spell(one) for one in found], which

    def _elf(self, uid: int) -> Elf | None:
        """Give the image's ELF file, opened and verified; None, counted once, when it is gone."""
        info = self._images[uid]
        key = canonical(info, self._build_ids.get(uid, ""))
        elf = self._tables.get(key)
        if elf is not None:
            self._tables.move_to_end(key)
            return elf
        if uid in self._failed:
            return None
        try:
            elf = self._open_vdso(info) if info.kind == "vdso" else self._files.open_elf(info)
        except ImageFileError as error:
            self._fail(uid, error.reason)
            return None
        self._build_ids[uid] = elf.build_id
        key = canonical(info, elf.build_id)
        known = self._tables.pop(key, None)  # to the end, with its size as it was
        if known is not None:  # the same file by another name
            elf.close()
            elf = known
        self._tables[key] = elf
        self._shrink()
        return elf

    def _open_vdso(self, info: ImageInfo) -> Elf:
        image = own_vdso() if self._kernel is not None else b""
        if not image:
            raise ImageFileError("kernel_foreign")
        try:
            elf = Elf(image)
        except NativeError:
            raise ImageFileError("image_not_elf") from None
        if info.build_id and info.build_id != elf.build_id:
            raise ImageFileError("image_replaced")
        return elf

    def _shrink(self) -> None:
        """Let go of the tables used longest ago; the kernel's list stays, it is dear to read."""
        # The newest alone may have grown: asking them all cost more than what they answer.
        key, newest = next(reversed(self._tables.items()))
        self._held += newest.bytes_held - self._sizes.get(key, 0)
        self._sizes[key] = newest.bytes_held
        kernel = self._kernel.bytes_held if self._kernel is not None else 0
        while len(self._tables) > 1 and (
            self._held + kernel > self._memory_limit or len(self._tables) > OPEN_TABLES
        ):
            oldest, elf = self._tables.popitem(last=False)
            size = self._sizes.pop(oldest, 0)
            self._held -= size
            self._freed += size
            elf.close()
        if self._freed >= _TRIM_BYTES:
            self._freed = 0
            trim_memory()

    def _fail(self, uid: int, reason: str) -> None:
        if uid not in self._failed:
            self._failed.add(uid)
            self._count(reason)

    def _count(self, reason: str) -> None:
        self.counters[reason] = self.counters.get(reason, 0) + 1


def _kernel_name(run: RunInfo | str) -> str:
    if isinstance(run, str):
        return run
    return run.kernel_build_id or run.kernel_release


def _runs_here(run: RunInfo | str) -> bool:
    """Whether the run's kernel is the one that runs now: only then kallsyms is its list."""
    build_id = run if isinstance(run, str) else run.kernel_build_id
    if build_id:
        return build_id == running_kernel_build_id()
    # A kernel without build-id: the same boot is the same kernel.
    return isinstance(run, RunInfo) and bool(run.boot) and run.boot == boot_id()


def _ours(run: RunInfo | str) -> bool:
    return isinstance(run, str) or run.kind == "live" or run.host == socket.gethostname()


def _printable(text: str) -> str:
    """Keep a name on one line: control characters are escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _unnamed(count: int) -> tuple[list[Name], array[int]]:
    return [UNKNOWN], array("I", bytes(4 * count))


def _u64(numbers: Sequence[int]) -> array[int]:
    return numbers if isinstance(numbers, array) else array("Q", numbers)

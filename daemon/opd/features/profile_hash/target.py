"""What is counted: the kernel's code, a module's, or that of one file, and its names."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Protocol

from opd.config.nearest import did_you_mean
from opd.features.declared import UnavailableError
from opd.features.profile_hash.names import in_file, in_kernel
from opd.features.profile_hash.options import address_of, split_range
from opd.features.profilebuffer import BINARY, KERNEL, MODULE
from opd.symbols.kallsyms import MODULES, open_kallsyms
from opd_native.elf import Elf
from opd_native.errors import NativeError
from opd_native.kallsyms import Kallsyms, kernel_modules
from opd_native.pc_hash import SEGMENTS_MOST, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opd.features.profile_hash.options import ProfileHashOptions
    from opd.features.profilebuffer import Lookup


class Named(Protocol):
    """What is counted, and who names it."""

    what: str
    target: Target

    kind: str  # of KERNEL, MODULE, BINARY

    def lookup(self) -> Lookup:
        """Who names addresses, of use after this was closed too. Raises NativeError."""

    def close(self) -> None:
        """Let go of what it holds."""


class KernelCode:
    """The kernel's code or a module's, by runtime addresses."""

    def __init__(self, what: str, target: Target, open_list: Callable[[], Kallsyms]) -> None:
        self.kind = KERNEL if what == "[kernel]" else MODULE
        self.what = what
        self.target = target
        self._open = open_list

    def lookup(self) -> Lookup:
        """By /proc/kallsyms."""
        return in_kernel(self._open)

    def close(self) -> None:
        """Nothing is held."""


class FileCode:
    """The code of an ELF file as it was when counting began, by ELF addresses."""

    kind = BINARY

    def __init__(self, path: str, fd: int, target: Target) -> None:
        self.what = path
        self.target = target
        self._fd = fd

    def lookup(self) -> Lookup:
        """By the file's own symbols, or the ranges of its functions."""
        return in_file(Elf(self._fd), self.what)

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def find_code(
    options: ProfileHashOptions,
    *,
    open_list: Callable[[], Kallsyms] = open_kallsyms,
    modules: str = MODULES,
) -> Named:
    """What the options ask to count. Raises UnavailableError: this machine has none such."""
    if options.binary:
        return _find_file(options)
    try:
        if options.module:
            what = f"[{options.module}]"
            start, end = _module_range(options.module, modules)
        else:
            what = "[kernel]"
            with open_list() as table:
                start, end = table.text.stext or table.text.text, table.text.etext
    except NativeError as error:
        raise UnavailableError(_hidden(error)) from error
    if not start or end <= start:
        raise UnavailableError("the kernel's symbol list has no _stext and _etext")

    def of_symbol(name: str) -> int:
        with open_list() as table:
            return next((first for first, _ in table.ranges([name])), 0)

    start, end = _narrowed(options, what, start, end, of_symbol)
    return KernelCode(what, Target(start, end, options.shift), open_list)


def _hidden(error: NativeError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            "the kernel hides its addresses from this user (kernel.kptr_restrict):"
            " run opd as root, or with CAP_SYSLOG"
        )
    return f"the kernel's symbol list cannot be read: {error.strerror}"


def _module_range(name: str, path: str) -> tuple[int, int]:
    found = kernel_modules(path)
    for module, start, end in found:
        if module == name.replace("-", "_"):
            return start, end
    there = [module for module, _, _ in found]
    if not there:
        raise UnavailableError(f"no module {name!r} is loaded: this kernel has no modules")
    raise UnavailableError(f"no module {name!r} is loaded{did_you_mean(name, there)}")


def _narrowed(
    options: ProfileHashOptions,
    what: str,
    start: int,
    end: int,
    of_symbol: Callable[[str], int],
) -> tuple[int, int]:
    """The part of [start, end) that ``range`` asks for."""
    if not options.range:
        return start, end
    ends = []
    for text in split_range(options.range):
        address = address_of(text)
        # A name may look like a number.
        if address is None or not start <= address <= end:
            address = of_symbol(text) or address
        if address is None:
            raise UnavailableError(f"range: {what} has no symbol {text!r}")
        ends.append(address)
    if ends[1] <= ends[0]:
        raise UnavailableError(
            f"range {options.range} ({ends[0]:#x}-{ends[1]:#x}) has no code: its end is not"
            " above its start"
        )
    if ends[0] < start or ends[1] > end:
        raise UnavailableError(
            f"range {options.range} ({ends[0]:#x}-{ends[1]:#x}) is not inside of {what},"
            f" which is {start:#x}-{end:#x}"
        )
    return ends[0], ends[1]


def _find_file(options: ProfileHashOptions) -> FileCode:
    path = options.binary
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(fd)
        try:
            with Elf(fd) as elf:
                code, build_id = tuple(elf.code()), elf.build_id
                start, end = _code_range(path, code)

                def of_symbol(name: str) -> int:
                    try:
                        return int(elf.addresses([elf.find_function(name)])[0])
                    except NativeError:
                        return 0

                start, end = _narrowed(options, path, start, end, of_symbol)
        except NativeError as error:
            raise UnavailableError(f"{path} {_unusable(error)}") from error
        target = Target(
            start,
            end,
            options.shift,
            segments=code,
            build_id=build_id,
            major=os.major(status.st_dev),
            minor=os.minor(status.st_dev),
            inode=status.st_ino,
        )
        return FileCode(path, fd, target)
    except BaseException:
        os.close(fd)
        raise


def _unusable(error: NativeError) -> str:
    if error.errno == errno.ENOEXEC:
        return "is no ELF file"
    if error.errno == errno.E2BIG:
        return "is damaged, or has more parts than can be used"
    return f"cannot be used: {error.strerror}"


def _code_range(path: str, code: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    if not code:
        raise UnavailableError(f"{path} has no code")
    if len(code) > SEGMENTS_MOST:
        raise UnavailableError(f"{path} has {len(code)} segments of code, at most {SEGMENTS_MOST}")
    return min(at for _, _, at in code), max(at + size for _, size, at in code)

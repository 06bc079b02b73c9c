"""The profile buffer of ``profile-hash`` as it travels: slots that have ticks, with names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from opd.errors import OperationFailedError
from opd.features.profilebuffer import BINARY
from opd.query import tables
from opd_native.demangle import demangle
from opd_native.elf import NAMED, RANGE, Elf
from opd_native.errors import NativeError

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

    from opd.features.profilebuffer import Buffer

    Lookup = Callable[[Sequence[int]], tuple[list["Symbol"], array[int]]]

_CHUNK = 1 << 16  # addresses that are named at a time
_DEBUG_ROOT = "/usr/lib/debug"


class Symbol(NamedTuple):
    """A function of [start, end); ``name`` is "" where nothing names the addresses."""

    name: str
    start: int
    end: int


def readprofile_answer(buffer: Buffer, params: dict[str, Any]) -> dict[str, Any]:
    """``readprofile``: the slots with ticks; with ``names`` of what, with ``all`` every symbol.

    Raises OperationFailedError when names are asked for and cannot be had.
    """
    columns = [
        tables.numbers("slot", "u64", buffer.slots),
        tables.numbers("ticks", "u64", buffer.ticks),
    ]
    answer: dict[str, Any] = {
        "what": buffer.what,
        "image": buffer.image,
        "start": buffer.start,
        "step": 1 << buffer.shift,
        "length": buffer.length,
        "ticks": sum(buffer.ticks),
        "outside": buffer.outside,
    }
    if params.get("names") or params.get("all"):
        lookup = _lookup_of(buffer)
        columns += _symbol_columns(symbols_of(buffer, lookup))
        if params.get("all"):
            every = every_symbol(buffer, lookup)
            answer["symbols"] = tables.table(len(every), _symbol_columns(every))
    return answer | {"rows": tables.table(len(buffer.slots), columns)}


def symbols_of(buffer: Buffer, lookup: Lookup) -> list[Symbol]:
    """The symbol of each slot with ticks: of its first byte, else of its last."""
    addresses = buffer.addresses()
    found, which = lookup(addresses)
    symbols = [found[index] for index in which]
    # A function may begin within a slot, behind bytes that are nobody's.
    bare = [at for at, symbol in enumerate(symbols) if not symbol.name]
    last = (1 << buffer.shift) - 1
    found, which = lookup([addresses[at] + last for at in bare])
    for at, index in zip(bare, which, strict=True):
        symbols[at] = found[index]
    return symbols


def every_symbol(buffer: Buffer, lookup: Lookup) -> list[Symbol]:
    """All symbols in the buffer's range, by address; those within one slot count as its first."""
    every: dict[tuple[int, str], Symbol] = {}
    step = 1 << buffer.shift
    for first in range(0, buffer.length, _CHUNK):
        slots = range(first, min(first + _CHUNK, buffer.length))
        found, which = lookup([buffer.start + slot * step for slot in slots])
        for symbol in (found[index] for index in set(which)):
            if symbol.name:
                every.setdefault((symbol.start, symbol.name), symbol)
    return sorted(every.values(), key=lambda symbol: symbol.start)


def _symbol_columns(symbols: Sequence[Symbol]) -> list[dict[str, Any]]:
    return [
        tables.strings("symbol", [symbol.name for symbol in symbols]),
        tables.numbers("symbol_start", "u64", [symbol.start for symbol in symbols]),
        tables.numbers("symbol_end", "u64", [symbol.end for symbol in symbols]),
    ]


def _lookup_of(buffer: Buffer) -> Lookup:
    return _in_elf(buffer.image) if buffer.what == BINARY else _in_kernel()


def _in_kernel() -> Lookup:
    from opd.symbols.kallsyms import open_kallsyms

    try:
        table = open_kallsyms()
    except NativeError as error:
        raise OperationFailedError(
            f"no names: {error}", hint="--raw and --mapfile do without those of the daemon"
        ) from error

    def lookup(addresses: Sequence[int]) -> tuple[list[Symbol], array[int]]:
        found, which = table.lookup_runs(addresses)
        return [Symbol(one.name, one.start, one.end) for one in found], which

    return lookup


def _in_elf(path: str) -> Lookup:
    from opd.symbols.files import open_debug_file

    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            elf = Elf(fd)
        finally:
            os.close(fd)
    except (OSError, NativeError) as error:
        raise OperationFailedError(f"no names: {path}: {error}") from error
    debug = None if elf.has_symtab else open_debug_file(_DEBUG_ROOT, elf.build_id)
    try:
        elf.load_symbols(debug)
    except NativeError as error:
        raise OperationFailedError(f"no names: {path}: {error}") from error
    finally:
        if debug is not None:
            debug.close()
    image = os.path.basename(path)  # noqa: PTH119 - a path as told, not one to open

    def lookup(addresses: Sequence[int]) -> tuple[list[Symbol], array[int]]:
        found, which = elf.name_runs(addresses)
        symbols = []
        for one in found:
            name = f"{image}!{one.start:#x}" if one.kind == RANGE else ""
            if one.kind == NAMED:
                raw, stub, _ = one.name.decode("utf-8", "backslashreplace").partition("@plt")
                name = demangle(raw) + stub
            symbols.append(Symbol(name, one.start, one.end))
        return symbols, which

    return lookup

"""The profile buffer of ``profile-hash`` as it travels: slots that have ticks, with names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.errors import OperationFailedError
from opd.query import tables
from opd_native.errors import NativeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.features.profilebuffer import Buffer, Symbol

_CHUNK = 1 << 16  # addresses that are named at a time


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
        try:
            columns += _symbol_columns(symbols_of(buffer))
            if params.get("all"):
                every = every_symbol(buffer)
                answer["symbols"] = tables.table(len(every), _symbol_columns(every))
        except NativeError as error:
            raise OperationFailedError(
                f"no names of {buffer.image}: {error}", hint="--raw and --mapfile need none"
            ) from error
    return answer | {"rows": tables.table(len(buffer.slots), columns)}


def symbols_of(buffer: Buffer) -> list[Symbol]:
    """The symbol of each slot with ticks: of its first byte, else of its last."""
    addresses = buffer.addresses()
    found, which = buffer.lookup(addresses)
    symbols = [found[index] for index in which]
    # A function may begin within a slot, behind bytes that are nobody's.
    bare = [at for at, symbol in enumerate(symbols) if not symbol.name]
    last = (1 << buffer.shift) - 1
    found, which = buffer.lookup([addresses[at] + last for at in bare])
    for at, index in zip(bare, which, strict=True):
        symbols[at] = found[index]
    return symbols


def every_symbol(buffer: Buffer) -> list[Symbol]:
    """All symbols in the buffer's range, by address; those within one slot count as its first."""
    every: dict[tuple[int, str], Symbol] = {}
    step = 1 << buffer.shift
    for first in range(0, buffer.length, _CHUNK):
        end = min(first + _CHUNK, buffer.length)
        addresses = range(buffer.start + first * step, buffer.start + end * step, step)
        found, which = buffer.lookup(addresses)
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

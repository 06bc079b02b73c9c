"""Whether an implementation of memcpy and its like is right (opd/dto_functional.h)."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from opd_native._core import ffi, lib
from opd_native.dto import Op
from opd_native.errors import check

if TYPE_CHECKING:
    from opd_native.dto import Functions

_TEXT = 512


class Part(enum.IntEnum):
    """What is tried: tables of cases first, then random ones in company."""

    SIZES = 0
    OFFSETS = 1
    OVERLAP = 2
    EDGES = 3
    THREADS = 4
    SIGNALS = 5
    FORKS = 6


class Functional(NamedTuple):
    """Cases that were run, and differences from libc; ``first`` is the first in words, or empty."""

    cases: int
    differences: int
    by_part: dict[str, int]
    by_op: dict[str, int]
    first: str


def functional(
    functions: Functions,
    *,
    threshold: int,
    largest: int,
    threads: int = 4,
    random: int = 200,
    parts: frozenset[Part] = frozenset(Part),
    seed: int = 0,
    limit: float = 60.0,
) -> Functional:
    """Run the suite: sizes around ``threshold`` and up to ``largest`` bytes.

    ``random`` cases of each thread, handler and child; ``limit`` seconds after
    which a part counts as hung. Each part has a process of its own, so what
    crashes is a difference too. Raises NativeError.
    """
    options = ffi.new("struct opd_dto_functional_options *")
    options.functions = functions.pointer[0]
    options.threshold, options.largest = threshold, largest
    options.threads, options.random, options.seed = threads, random, seed
    options.parts = sum(1 << part for part in parts)
    options.limit_ns = int(limit * 1e9)
    out = ffi.new("struct opd_dto_functional *")
    check(lib.opd_dto_functional(options, out), "the functional suite")
    text = ffi.new("char[]", _TEXT)
    lib.opd_dto_functional_text(out, text, _TEXT)
    return Functional(
        out.cases,
        out.differences,
        {part.name.lower(): out.by_part[part] for part in Part if part in parts},
        {op.name.lower(): out.by_op[op] for op in Op},
        ffi.string(text).decode(errors="replace") if out.differences else "",
    )

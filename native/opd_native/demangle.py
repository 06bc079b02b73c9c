"""C++ and Rust names as people read them (contract: opd/demangle.h)."""

from __future__ import annotations

from functools import lru_cache

from opd_native._core import ffi, lib

_CAPACITY = 16384


@lru_cache(maxsize=2048)
def demangle(raw: str) -> str:
    """Give the function's name without parameters, as perf prints it; else ``raw`` itself."""
    if not raw.startswith(("_Z", "_R")):
        return raw
    text = ffi.new("char[]", _CAPACITY)
    length = lib.opd_demangle(raw.encode("utf-8", "surrogateescape"), text, _CAPACITY)
    if length <= 0:
        return raw
    return bytes(ffi.buffer(text, length)).decode("utf-8", "backslashreplace")

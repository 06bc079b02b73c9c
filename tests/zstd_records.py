"""zstd-compressed records of a recording, as ``perf record -z`` writes them."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Self

from perfdata_writer import record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COMPRESSED, COMPRESSED2, FINISHED_ROUND = 81, 83, 68
FEATURE = struct.pack("<5I", 1, 1, 1, 4, 1 << 19)  # version, zstd, level, ratio, mmap size
_FLUSH = 1
_CHUNK = 48 << 10  # a record is shorter than 64 KiB


class _Buffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("pos", ctypes.c_size_t))


class Compressor:
    """One stream through all compressed records, as perf keeps it."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL("libzstd.so.1")
        self._lib.ZSTD_createCCtx.restype = ctypes.c_void_p
        self._lib.ZSTD_freeCCtx.argtypes = (ctypes.c_void_p,)
        stream = self._lib.ZSTD_compressStream2
        stream.restype = ctypes.c_size_t
        pointer = ctypes.POINTER(_Buffer)
        stream.argtypes = (ctypes.c_void_p, pointer, pointer, ctypes.c_int)
        self._stream = stream
        self._context = self._lib.ZSTD_createCCtx()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._lib.ZSTD_freeCCtx(self._context)

    def flush(self, data: bytes) -> bytes:
        """Compress all of ``data`` so that a reader gets it whole."""
        room = ctypes.create_string_buffer(len(data) + (1 << 16))
        source = ctypes.create_string_buffer(data, len(data))
        output = _Buffer(ctypes.addressof(room), len(room), 0)
        input_ = _Buffer(ctypes.addressof(source), len(data), 0)
        left = self._stream(self._context, ctypes.byref(output), ctypes.byref(input_), _FLUSH)
        assert left == 0
        assert input_.pos == len(data)
        return room.raw[: output.pos]


def compressed(records: Sequence[bytes], kind: int) -> Iterator[bytes]:
    """Give the records in compressed ones of type ``kind``; rounds end outside of them."""
    with Compressor() as compressor:
        waiting: list[bytes] = []
        for packed in (*records, record(FINISHED_ROUND, 0, b"")):
            ends = struct.unpack_from("<I", packed)[0] == FINISHED_ROUND
            if waiting and (ends or sum(map(len, waiting)) + len(packed) > _CHUNK):
                body = compressor.flush(b"".join(waiting))
                if kind == COMPRESSED2:
                    size = struct.pack("<Q", len(body))
                    body = size + body + bytes(-len(body) % 8)
                yield record(kind, 0, body)
                waiting = []
            if ends:
                yield packed
            else:
                waiting.append(packed)

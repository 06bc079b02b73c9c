"""Files that clients send in pieces: spooled without a name, bounded, expiring."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from opd.errors import OperationFailedError, StoreError, UsageError
from opd.query.protocol import CHUNK_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from opd.query.endpoint import Peer

PER_PEER = 2
ALTOGETHER = 8
IDLE_SECONDS = 60.0
YIELD_SECONDS = 5.0
SIZE_LIMIT_BYTES = 8 << 30
_NAME_LIMIT = 255


class Transfer:
    """One file on its way. ``received`` bytes are in ``file`` so far."""

    def __init__(
        self,
        owner: tuple[bytes, Peer | None],
        file: BinaryIO,
        *,
        name: str,
        origin: str,
        mtime_ns: int | None,
    ) -> None:
        self.owner = owner
        self.name = name
        self.origin = origin
        self.mtime_ns = mtime_ns
        self.file = file
        self.received = 0
        self.busy = False
        self.touched = time.monotonic()


class Transfers:
    """All transfers of a server. Every method may be called from any thread.

    A transfer belongs to the connection that began it; another's is unknown.
    The spooled bytes never have a name, so a crash leaves nothing behind.
    """

    def __init__(
        self,
        directory: str,
        *,
        size_limit_bytes: int = SIZE_LIMIT_BYTES,
        idle_seconds: float = IDLE_SECONDS,
        yield_seconds: float = YIELD_SECONDS,
    ) -> None:
        self._directory = directory
        self._size_limit_bytes = size_limit_bytes
        self._idle_seconds = idle_seconds
        self._yield_seconds = yield_seconds
        self._lock = threading.Lock()
        self._open: dict[str, Transfer] = {}

    def begin(self, owner: tuple[bytes, Peer | None], params: dict[str, Any]) -> dict[str, Any]:
        """Open a transfer. Raises UsageError, OperationFailedError at a limit, StoreError."""
        name, origin = params.get("name", ""), params.get("origin", "")
        if len(name) > _NAME_LIMIT or any(not char.isprintable() or char == "/" for char in name):
            raise UsageError(f"import: the name {name[:100]!r} is not one printable word")
        import tempfile  # seldom needed, and start-up has a budget

        self._check_size(params.get("size", 0))
        self.expire()
        try:
            file = tempfile.TemporaryFile(dir=self._directory, prefix="import-")  # noqa: SIM115
        except OSError as error:
            raise StoreError(f"cannot spool in {self._directory}: {error.strerror}") from error
        with self._lock:
            if len(self._open) >= ALTOGETHER:
                self._make_room()
            mine = sum(transfer.owner == owner for transfer in self._open.values())
            if mine >= PER_PEER or len(self._open) >= ALTOGETHER:
                file.close()
                raise OperationFailedError(
                    f"import: {len(self._open)} transfers are open, {mine} of them yours",
                    hint=f"at most {PER_PEER} a connection and {ALTOGETHER} altogether",
                )
            key = os.urandom(8).hex()
            self._open[key] = Transfer(
                owner, file, name=name, origin=origin, mtime_ns=params.get("mtime_ns")
            )
        return {"transfer": key, "chunk_bytes": CHUNK_LIMIT_BYTES}

    def chunk(self, owner: tuple[bytes, Peer | None], params: dict[str, Any]) -> dict[str, Any]:
        """Append bytes at ``offset``, which is what was received so far. Ends it on failure."""
        data, offset = params["data"], params["offset"]
        with self._held(owner, params["transfer"]) as transfer:
            if len(data) > CHUNK_LIMIT_BYTES:
                raise UsageError(f"import: a chunk of {len(data)} bytes, over {CHUNK_LIMIT_BYTES}")
            if offset != transfer.received:
                raise UsageError(f"import: offset {offset}, but {transfer.received} bytes are here")
            try:
                self._check_size(offset + len(data))
                transfer.file.write(data)
                transfer.file.flush()
            except (OSError, OperationFailedError) as error:
                self._drop(params["transfer"])
                if isinstance(error, OSError):
                    raise _spool_error(self._directory, error) from error
                raise
            transfer.received += len(data)
            return {"received": transfer.received}

    @contextlib.contextmanager
    def end(self, owner: tuple[bytes, Peer | None], params: dict[str, Any]) -> Iterator[Transfer]:
        """Take the whole file, rewound; it is gone when the context ends."""
        with self._held(owner, params["transfer"]) as transfer:
            if params["size"] != transfer.received:
                raise UsageError(f"import: {transfer.received} of {params['size']} bytes are here")
            with self._lock:
                del self._open[params["transfer"]]
            with transfer.file:
                transfer.file.seek(0)
                if transfer.mtime_ns is not None:
                    # A recording without wall-clock times is dated by its file.
                    os.utime(transfer.file.fileno(), ns=(transfer.mtime_ns, transfer.mtime_ns))
                yield transfer

    def abort(self, owner: tuple[bytes, Peer | None], params: dict[str, Any]) -> dict[str, Any]:
        """Forget a transfer and its bytes."""
        with self._held(owner, params["transfer"]) as transfer:
            self._drop(params["transfer"])
            return {"received": transfer.received}

    def any_open(self) -> bool:
        """Whether a transfer is under way, which may expire."""
        return bool(self._open)

    def expire(self) -> None:
        """Forget the transfers that nobody fed for a minute."""
        oldest = time.monotonic() - self._idle_seconds
        with self._lock:
            for key, transfer in list(self._open.items()):
                if not transfer.busy and transfer.touched < oldest:
                    del self._open[key]
                    transfer.file.close()

    def close(self) -> None:
        """Forget all."""
        with self._lock:
            for transfer in self._open.values():
                transfer.file.close()
            self._open.clear()

    @contextlib.contextmanager
    def _held(self, owner: tuple[bytes, Peer | None], key: str) -> Iterator[Transfer]:
        with self._lock:
            transfer = self._open.get(key)
            if transfer is None or transfer.owner != owner:
                raise UsageError(
                    f"import: no transfer {key[:40]!r} of yours is open",
                    hint=f"one that is idle for {self._idle_seconds:g} s is forgotten",
                )
            if transfer.busy:
                raise UsageError("import: wait for the answer before the next chunk")
            transfer.busy = True
        try:
            yield transfer
        finally:
            transfer.touched = time.monotonic()
            transfer.busy = False

    def _make_room(self) -> None:
        """Forget the one that rests longest, if for a few seconds: its client may be gone."""
        oldest = time.monotonic() - self._yield_seconds
        resting = [
            (transfer.touched, key)
            for key, transfer in self._open.items()
            if not transfer.busy and transfer.touched < oldest
        ]
        if resting:
            self._open.pop(min(resting)[1]).file.close()

    def _drop(self, key: str) -> None:
        with self._lock:
            transfer = self._open.pop(key, None)
        if transfer is not None:
            with contextlib.suppress(OSError):
                transfer.file.close()

    def _check_size(self, size: int) -> None:
        if size > self._size_limit_bytes:
            raise OperationFailedError(
                f"import: {size} bytes, over the limit of {self._size_limit_bytes}",
                hint="import it into a store of its own: opctl --session-dir DIR import FILE",
            )


def _spool_error(directory: str, error: OSError) -> StoreError:
    hint = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else None
    return StoreError(f"cannot spool in {directory}: {os.strerror(error.errno or 0)}", hint=hint)

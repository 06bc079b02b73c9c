"""Libraries that were built, kept by what they were built from, in a directory of bounded size.

An entry is there whole or not at all, and is looked through before it is used.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opd.errors import OperationFailedError
from opd.features.dto.leftovers import remove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opd.features.dto.revisions import Revision, Source

    Tell = Callable[[str], None]

CACHE_BYTES_MOST = 512 << 20
CACHE_ENTRIES_MOST = 128
FORMAT = 1
# A build that is used again this soon is not in the way of anything.
_FRESH_SECONDS = 600.0


def cache_place(wanted: str) -> Path:
    """A directory of this user's alone for what was built: ``wanted``, else below /tmp.

    Raises OperationFailedError: others could change what is run from there.
    """
    refused = "this user has no cache"
    for place in (wanted, f"{tempfile.gettempdir()}/opd-dto-{os.geteuid()}"):
        if not place:
            continue
        try:
            Path(place).mkdir(mode=0o700, parents=True, exist_ok=True)
            info = os.lstat(place)
        except OSError as error:
            refused = f"{place}: {error.strerror}"
            continue
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
            raise OperationFailedError(
                f"{place} is not this user's alone, and libraries in it would be run",
                hint=f"it should be a directory of uid {os.geteuid()} with mode 0700",
            )
        return Path(place)
    raise OperationFailedError(f"there is no place for what is built: {refused}")


@contextlib.contextmanager
def turn(place: Path, limit: float, tell: Tell) -> Iterator[int]:
    """One build at a time. A process that is given the lock, which this gives, holds the turn too.

    Raises OperationFailedError when another takes too long.
    """
    fd = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        until = time.monotonic() + limit
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > until:
                    raise OperationFailedError(
                        f"another build in {place} has gone on for {limit:g} s"
                    ) from error
                tell("waiting for another build")
                time.sleep(0.2)
        yield fd
    finally:
        os.close(fd)


def find(place: Path, key: str) -> str:
    """The path of a whole entry; "" when there is none."""
    entry = place / key
    try:
        told = json.loads((entry / "entry.json").read_bytes())
        path = entry / told["file"]
        if told["format"] != FORMAT or _digest(path) != told["sha256"]:
            return ""
        os.utime(entry)
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def keep(
    made: Path, place: Path, key: str, *, source: Source, revision: Revision, seconds: float
) -> str:
    """Put the library where it is found again: whole, or not at all."""
    fresh = Path(tempfile.mkdtemp(prefix="new-", dir=place))
    target = place / key
    try:
        name = made.name
        shutil.copyfile(made, fresh / name)
        told: dict[str, Any] = {
            "format": FORMAT,
            "file": name,
            "sha256": _digest(fresh / name),
            "commit": revision.commit,
            "tree": revision.tree,
            "source": msgspec.to_builtins(source),
            "seconds": seconds,
        }
        (fresh / "entry.json").write_text(json.dumps(told), encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)  # damaged, or it would have been used
        fresh.rename(target)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise OperationFailedError(f"{place}: the build cannot be kept: {error}") from error
    return str(target / made.name)


def clear(place: Path) -> None:
    """Take away what builds that were killed left; only with the turn."""
    for left in place.glob("new-*"):
        remove(left)


def bound(place: Path, newest: str) -> None:
    """Delete entries that were not used for longest, until the rest fits."""
    entries = []
    for entry in place.iterdir():
        if not (entry / "entry.json").is_file():
            continue
        with contextlib.suppress(OSError):
            size = sum(file.stat().st_size for file in entry.iterdir())
            entries.append((entry.stat().st_mtime, size, entry))
    held = 0
    for number, (used, size, entry) in enumerate(sorted(entries, reverse=True), 1):
        held += size
        # What is used now is spared, but twice the bounds hold for all.
        room = 1 if time.time() - used > _FRESH_SECONDS else 2
        is_over = held > room * CACHE_BYTES_MOST or number > room * CACHE_ENTRIES_MOST
        if is_over and entry.name != newest:
            shutil.rmtree(entry, ignore_errors=True)

"""A revision of a source tree built by a command, kept by what it was built from.

The sources are written out anew from git's objects: nothing of the user's tree
is touched, and what is not committed has no part in it unless ``worktree`` is
asked for. All of it runs as the process's user.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from opd.errors import OperationFailedError, UsageError
from opd.features.dto import keeper, kept
from opd.features.dto.leftovers import OBJECTS, clear_left, own_directory, remove
from opd.features.dto.libraries import read_library
from opd.features.dto.revisions import (
    WORKTREE,
    Revision,
    Source,
    environment,
    find_revision,
    git,
    objects_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Tell = Callable[[str], None]

TAIL_BYTES = 4096
_TAIL_LINES = 20
_TELL_SECONDS = 1.0
_GRACE_SECONDS = 5.0


class Built(NamedTuple):
    """A library that was built, and from what. ``seconds`` 0: it was built before."""

    path: str
    revision: Revision
    seconds: float


def built(source: Source, place: Path, tell: Tell) -> Built:
    """The library of a revision: from the cache, or built now.

    ``place`` is of cache_place. ``tell`` is called now and then with how far it
    is. Raises UsageError, OperationFailedError with the end of the build's output.
    """
    clear_left(place)
    with contextlib.ExitStack() as stack:
        objects = ""
        if source.ref == WORKTREE:
            objects = str(stack.enter_context(own_directory(OBJECTS, place)))
        revision = find_revision(source, objects=objects)
        key = _key(source, revision)
        if path := kept.find(place, key):
            return Built(path, revision, 0.0)
        with kept.turn(place, source.limit, tell) as lock:
            if path := kept.find(place, key):
                return Built(path, revision, 0.0)
            kept.clear(place)
            began = time.monotonic()
            fresh = Path(tempfile.mkdtemp(prefix="new-", dir=place))
            try:
                made = _build(source, revision, fresh / "tree", tell, lock)
                seconds = time.monotonic() - began
                path = kept.keep(
                    made, place, key, source=source, revision=revision, seconds=seconds
                )
            finally:
                remove(fresh)
            kept.bound(place, key)
            return Built(path, revision, seconds)


def _key(source: Source, revision: Revision) -> str:
    """A name for all that makes a difference to the library."""
    parts = [
        kept.FORMAT,
        revision.tree,
        revision.prefix,
        source.build,
        source.artifact,
        platform.machine(),
        _compiler(),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


def _compiler() -> str:
    """Which compiler there is: one build by an old and one by a new one do not compare."""
    name = os.environ.get("CC") or "cc"
    try:
        done = subprocess.run(
            ["sh", "-c", f"{name} --version"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    flags = " ".join(f"{key}={os.environ.get(key, '')}" for key in ("CFLAGS", "LDFLAGS"))
    return f"{name} {done.stdout.partition(chr(10))[0]} {flags}"


def _build(source: Source, revision: Revision, place: Path, tell: Tell, lock: int) -> Path:
    """Write the sources out and run the command; the artifact's path."""
    place.mkdir()
    extra = {"GIT_INDEX_FILE": f"{place}.index"}
    if revision.objects:
        extra |= objects_of(source, revision.git_directory, revision.objects)
    words = [f"--git-dir={revision.git_directory}", f"--work-tree={place}"]
    git(str(place), *words, "read-tree", revision.tree, extra=extra)
    git(str(place), *words, "checkout-index", "--all", "--force", extra=extra)
    top = place / revision.prefix
    if not top.is_dir():
        raise UsageError(f"git:{source.ref} has no {revision.prefix} in it")
    name = _name(source, revision)
    tell(f"building {name}")
    ended = _run(source, revision, top, lambda line: tell(f"building {name}: {line}"), lock)
    if ended:
        raise OperationFailedError(f"{name} does not build: {ended}", hint=_submodules(place))
    made = (top / source.artifact).resolve()
    if not made.is_file():
        raise OperationFailedError(
            f"{name}: `{source.build}` made no {source.artifact}",
            hint=f"libraries it made: {' '.join(_libraries(top)) or 'none'}",
        )
    if not made.is_relative_to(place.resolve()):
        raise OperationFailedError(f"{name}: {source.artifact} leads out of the tree, to {made}")
    try:
        read_library(str(made))
    except UsageError as error:
        raise OperationFailedError(f"{name}: {source.artifact}: {error.message}") from error
    return made


def _name(source: Source, revision: Revision) -> str:
    what = "the tree as it stands" if source.ref == WORKTREE else f"git:{source.ref}"
    return f"{what} ({revision.short})"


def _submodules(place: Path) -> str | None:
    if (place / ".gitmodules").exists():
        return "its submodules are not written out: a build that needs them cannot work"
    return None


def _libraries(top: Path) -> list[str]:
    """Files that a user may have meant."""
    found = [
        str(path.relative_to(top))
        for pattern in ("*.so", "*.so.*", "*.a", "*.o")
        for path in sorted(top.rglob(pattern))
    ]
    return found[:12]


def _run(source: Source, revision: Revision, top: Path, tell: Tell, lock: int) -> str:
    """Run the command; how it ended when not well, with the end of its output.

    All that it started ends with it, with its time and with this process (opd.features.dto.keeper),
    and until then ``lock`` is held.
    """
    extra = {"OPD_REF": source.ref, "OPD_SHA": revision.commit or revision.tree}
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", keeper.__file__, "sh", "-c", source.build],
        cwd=top,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(extra),
        start_new_session=True,
        pass_fds=[lock],
    )
    try:
        tail, is_late = _listen(process, source.limit, tell)
    finally:
        status = _ended(process)
    if is_late:
        left = ", and some of its processes do not end" if status == keeper.LEFT else ""
        return f"it took longer than build_limit, {source.limit:g} s{left}{_quoted(tail)}"
    if status == 0:
        return ""
    how = (
        f"`{source.build}` ended with status {status}"
        if status > 0
        else f"`{source.build}` was killed by {signal.Signals(-status).name}"
    )
    return how + _quoted(tail)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Have the keeper end what is left of a build, and itself; its status."""
    assert process.stdin is not None  # noqa: S101 - for mypy; it is a pipe
    process.stdin.close()
    try:
        return process.wait(keeper.SWEEP_SECONDS + _GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _listen(process: subprocess.Popen[bytes], limit: float, tell: Tell) -> tuple[bytearray, bool]:
    """The end of its output once it has ended, or its time is over, which is told."""
    assert process.stdout is not None  # noqa: S101 - for mypy; it is a pipe
    tail = bytearray()
    until = time.monotonic() + limit
    told = 0.0
    fd = process.stdout.fileno()
    is_over = False
    with process.stdout:
        while not is_over and (now := time.monotonic()) < until:
            if select.select([fd], [], [], min(until - now, _TELL_SECONDS))[0]:
                data = os.read(fd, 65536)
                is_over = not data
                tail += data
                del tail[:-TAIL_BYTES]
            else:
                # Something that it left behind may hold its output open.
                is_over = process.poll() is not None
            if now - told >= _TELL_SECONDS:
                told = now
                tell((_lines(tail) or ["…"])[-1])
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return tail, True
    return tail, False


def _lines(tail: bytes | bytearray) -> list[str]:
    text = bytes(tail).decode(errors="replace")
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _quoted(tail: bytes | bytearray) -> str:
    lines = _lines(tail)[-_TAIL_LINES:]
    return "; its output ends:\n" + "\n".join(f"  | {line}" for line in lines) if lines else ""

"""A revision of a source tree built by a command, kept by what it was built from.

The sources are written out anew from git's objects: nothing of the user's tree
is touched, and what is not committed has no part in it unless ``worktree`` is
asked for. All of it runs as the process's user.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import select
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from opd.config.nearest import did_you_mean
from opd.errors import OperationFailedError, UsageError
from opd.features.dto.libraries import read_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Tell = Callable[[str], None]

WORKTREE = "worktree"
CACHE_BYTES_MOST = 512 << 20
CACHE_ENTRIES_MOST = 128
TAIL_BYTES = 4096
_TAIL_LINES = 20
_GIT_SECONDS = 60.0
_TELL_SECONDS = 1.0
_FORMAT = 1
_REFS_SHOWN = 200
# A build that is used again this soon is not in the way of anything.
_FRESH_SECONDS = 600.0


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """What is built: ``ref`` of the tree, or ``worktree``: the tree as it stands.

    ``build``: a command for sh, in the place that corresponds to ``tree``.
    ``artifact``: the library, a path from there. ``limit``: seconds.
    """

    tree: str
    ref: str
    build: str
    artifact: str
    limit: float = 600.0

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        if not self.tree or not os.path.isabs(self.tree):  # noqa: PTH117 - text
            raise UsageError(
                f"tree={self.tree}: a git revision needs tree=DIRECTORY, from / on",
                hint="opctl makes it whole when it begins with . or ..",
            )
        for name, value in (("build", self.build), ("artifact", self.artifact)):
            if not value.strip():
                raise UsageError(
                    f"{name}: a git revision needs it",
                    hint=r"such as tree=/src/lib,build=make libx.so,artifact=libx.so",
                )
        parts = Path(self.artifact).parts
        if self.artifact.startswith("/") or ".." in parts:
            raise UsageError(f"artifact={self.artifact}: a path within the tree is wanted")
        if self.ref.startswith("-") or not self.ref or "\0" in self.ref:
            raise UsageError(f"git:{self.ref} is no revision")


class Revision(NamedTuple):
    """A revision as it was found: SHAs of the commit (none for ``worktree``) and its tree.

    ``objects``: where the tree's objects are, when not in the repository.
    """

    commit: str
    tree: str
    git_directory: str
    prefix: str
    objects: str = ""

    @property
    def short(self) -> str:
        """Twelve digits that tell it from others."""
        return (self.commit or self.tree)[:12]


class Built(NamedTuple):
    """A library that was built, and from what. ``seconds`` 0: it was built before."""

    path: str
    revision: Revision
    seconds: float


def find_revision(source: Source, *, objects: str = "") -> Revision:
    """Ask git what the revision is. Raises UsageError: no repository, no such revision.

    ``objects``: a directory for objects of a tree as it stands.
    """
    if not Path(source.tree).is_dir():
        raise UsageError(f"tree={source.tree}: no such directory")
    places = _git(source.tree, "rev-parse", "--absolute-git-dir", "--show-prefix").split("\n")
    directory, prefix = places[0], places[1] if len(places) > 1 else ""
    if source.ref == WORKTREE:
        tree = _tree_as_it_stands(source, directory, objects)
        return Revision("", tree, directory, prefix, objects)
    found = _git(
        source.tree, "rev-parse", "--verify", "--quiet", f"{source.ref}^{{commit}}", may_fail=True
    )
    if not found:
        known = _git(
            source.tree,
            "for-each-ref",
            f"--count={_REFS_SHOWN}",
            "--format=%(refname:short)",
            may_fail=True,
        ).split()
        raise UsageError(
            f"git:{source.ref}: {source.tree} has no such revision"
            f"{did_you_mean(source.ref, known)}",
            hint=f"some there are: {' '.join(known[:12]) or 'none'}",
        )
    tree = _git(source.tree, "rev-parse", "--verify", f"{found}^{{tree}}")
    return Revision(found, tree, directory, prefix)


def has_changes(source: Source) -> bool:
    """Whether the tree holds changes to what is in git that are not committed."""
    return bool(
        _git(source.tree, "status", "--porcelain", "--untracked-files=no", may_fail=True).strip()
    )


def _tree_as_it_stands(source: Source, directory: str, objects: str) -> str:
    """Write the tree's objects, with those of files not ignored, and give its SHA."""
    top = _git(source.tree, "rev-parse", "--show-toplevel", may_fail=True)
    if not top:
        raise UsageError(f"tree={source.tree} is a repository without a tree of files")
    with tempfile.TemporaryDirectory(prefix="opd-dto-index-") as place:
        own = {"GIT_INDEX_FILE": f"{place}/index"}
        if objects:
            own["GIT_OBJECT_DIRECTORY"] = objects
            own["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = f"{_common(source, directory)}/objects"
        else:
            # Only the SHA is wanted: what is written goes with the directory.
            own["GIT_OBJECT_DIRECTORY"] = f"{place}/objects"
            own["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = f"{_common(source, directory)}/objects"
            Path(place, "objects").mkdir()
        _git(top, "add", "--all", ".", extra=own)
        return _git(top, "write-tree", extra=own)


def _common(source: Source, directory: str) -> str:
    """Where the repository's objects are, also of one of several work trees."""
    common = _git(source.tree, "rev-parse", "--git-common-dir", may_fail=True)
    if not common:
        return directory
    return common if common.startswith("/") else os.path.normpath(f"{source.tree}/{common}")


def _environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, without what would have git look elsewhere."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    plain |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    return plain | dict(extra or {})


def _git(
    tree: str, *words: str, may_fail: bool = False, extra: Mapping[str, str] | None = None
) -> str:
    """What git prints, without its last line's end. Raises UsageError with git's words."""
    try:
        done = subprocess.run(
            ["git", "-C", tree, *words],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            check=False,
            timeout=_GIT_SECONDS,
            env=_environment(extra),
        )
    except FileNotFoundError as error:
        raise OperationFailedError(
            "git is not installed: a revision cannot be read", hint="install git"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise OperationFailedError(
            f"git {words[0]} in {tree} took longer than {_GIT_SECONDS:g} s"
        ) from error
    if done.returncode == 0:
        return done.stdout.rstrip("\n")
    if may_fail:
        return ""
    said = " ".join(done.stderr.strip().splitlines()[:2])
    raise UsageError(f"tree={tree}: git {words[0]}: {said or f'status {done.returncode}'}")


def built(source: Source, place: Path, tell: Tell) -> Built:
    """The library of a revision: from the cache, or built now.

    ``place`` is of cache_place. ``tell`` is called now and then with how far it
    is. Raises UsageError, OperationFailedError with the end of the build's output.
    """
    with contextlib.ExitStack() as stack:
        objects = ""
        if source.ref == WORKTREE:
            objects = stack.enter_context(tempfile.TemporaryDirectory(prefix="objects-", dir=place))
        revision = find_revision(source, objects=objects)
        key = _key(source, revision)
        if path := _kept(place, key):
            return Built(path, revision, 0.0)
        with _turn(place, source.limit, tell):
            if path := _kept(place, key):
                return Built(path, revision, 0.0)
            _clear(place)
            began = time.monotonic()
            fresh = Path(tempfile.mkdtemp(prefix="new-", dir=place))
            try:
                made = _build(source, revision, fresh / "tree", tell)
                seconds = time.monotonic() - began
                path = _keep(made, place, key, source=source, revision=revision, seconds=seconds)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
            _bound(place, key)
            return Built(path, revision, seconds)


def is_built(source: Source, place: Path) -> bool:
    """Whether the cache has it. Raises as find_revision."""
    return bool(_kept(place, _key(source, find_revision(source))))


def _key(source: Source, revision: Revision) -> str:
    """A name for all that makes a difference to the library."""
    parts = [
        _FORMAT,
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


# ---- the build


def _build(source: Source, revision: Revision, place: Path, tell: Tell) -> Path:
    """Write the sources out and run the command; the artifact's path."""
    place.mkdir()
    extra = {"GIT_INDEX_FILE": f"{place}.index"}
    if revision.objects:
        extra["GIT_OBJECT_DIRECTORY"] = revision.objects
        extra["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = (
            f"{_common(source, revision.git_directory)}/objects"
        )
    words = [f"--git-dir={revision.git_directory}", f"--work-tree={place}"]
    _git(str(place), *words, "read-tree", revision.tree, extra=extra)
    _git(str(place), *words, "checkout-index", "--all", "--force", extra=extra)
    top = place / revision.prefix
    if not top.is_dir():
        raise UsageError(f"git:{source.ref} has no {revision.prefix} in it")
    name = _name(source, revision)
    tell(f"building {name}")
    ended = _run(source, revision, top, lambda line: tell(f"building {name}: {line}"))
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


def _run(source: Source, revision: Revision, top: Path, tell: Tell) -> str:
    """Run the command; how it ended when not well, with the end of its output.

    Its processes are a group that ends with it, with its time and with this process.
    """
    extra = {"OPD_REF": source.ref, "OPD_SHA": revision.commit or revision.tree}
    with _group() as group:
        process = subprocess.Popen(
            ["sh", "-c", source.build],
            cwd=top,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(extra),
            process_group=group,
        )
        tail, is_late = _listen(process, source.limit, tell)
    status = process.wait()
    if is_late:
        return f"it took longer than build_limit, {source.limit:g} s{_quoted(tail)}"
    if status == 0:
        return ""
    how = (
        f"`{source.build}` ended with status {status}"
        if status > 0
        else f"`{source.build}` was killed by {signal.Signals(-status).name}"
    )
    return how + _quoted(tail)


@contextlib.contextmanager
def _group() -> Iterator[int]:
    """A group of processes, that ends with the block, or with this process however that ends."""
    guard = subprocess.Popen(
        ["sh", "-c", "read -r _; kill -9 0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        yield guard.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(guard.pid, signal.SIGKILL)
        guard.communicate()


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


# ---- the cache


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
def _turn(place: Path, limit: float, tell: Tell) -> Iterator[None]:
    """One build at a time. Raises OperationFailedError when another takes too long."""
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
        yield
    finally:
        os.close(fd)


def _kept(place: Path, key: str) -> str:
    """The path of a whole entry; "" when there is none."""
    entry = place / key
    try:
        told = json.loads((entry / "entry.json").read_bytes())
        path = entry / told["file"]
        if told["format"] != _FORMAT or _digest(path) != told["sha256"]:
            return ""
        os.utime(entry)
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _keep(
    made: Path, place: Path, key: str, *, source: Source, revision: Revision, seconds: float
) -> str:
    """Put the library where it is found again: whole, or not at all."""
    fresh = Path(tempfile.mkdtemp(prefix="new-", dir=place))
    target = place / key
    try:
        name = made.name
        shutil.copyfile(made, fresh / name)
        told: dict[str, Any] = {
            "format": _FORMAT,
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


def _clear(place: Path) -> None:
    """Take away what builds that were killed left; only with the turn."""
    for left in place.glob("new-*"):
        shutil.rmtree(left, ignore_errors=True)


def _bound(place: Path, newest: str) -> None:
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
        is_over = held > CACHE_BYTES_MOST or number > CACHE_ENTRIES_MOST
        if is_over and entry.name != newest and time.time() - used > _FRESH_SECONDS:
            shutil.rmtree(entry, ignore_errors=True)

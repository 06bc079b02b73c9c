"""What is compared, as it is asked for: libc, our own kernels, libraries, revisions of a tree.

``check`` looks without running anything; ``find_both`` builds what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from opd.config.nearest import did_you_mean
from opd.errors import OperationFailedError, UsageError
from opd.features.dto import building, kept
from opd.features.dto.libraries import Kind, need_functions, read_library
from opd.features.dto.linking import missing_tools
from opd.features.dto.revisions import WORKTREE, Source, find_revision, has_changes
from opd_native.dto import KERNELS, Op, kernels
from opd_native.errors import NativeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from opd.features.dto.libraries import Library
    from opd.features.dto.revisions import Revision
    from opd_native.dto import Functions

    Tell = Callable[[str], None]

GIT = "git:"
SIDES = ("baseline", "current")


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides as asked for, and how revisions are built.

    A side is the name of a kernel, a library's path, ``git:REVISION`` or
    ``worktree``. ``current_build``: another command for the current one.
    ``link``: words for the linker, by blanks.
    """

    baseline: str = "libc"
    current: str = "libc"
    tree: str = ""
    build: str = ""
    current_build: str = ""
    artifact: str = ""
    link: str = ""
    build_limit: float = 600.0

    def sides(self) -> tuple[str, str]:
        """Baseline and current."""
        return self.baseline, self.current

    def source(self, at: int) -> Source | None:
        """What is to be built for a side; None: nothing. Raises UsageError."""
        side = self.sides()[at]
        if side != WORKTREE and not side.startswith(GIT):
            return None
        build = self.current_build if at and self.current_build else self.build
        return Source(
            tree=self.tree,
            ref=side.removeprefix(GIT),
            build=build,
            artifact=self.artifact,
            limit=self.build_limit,
        )


def sources_of(options: Any) -> Sources:
    """The sources that a probe's options name."""
    names = Sources.__struct_fields__
    return Sources(**{name: getattr(options, name) for name in names if hasattr(options, name)})


def runs_code(sources: Sources) -> str:
    """What the asker has run, in words; "" when it is opd's own alone."""
    for at, side in enumerate(sources.sides()):
        if side in KERNELS:
            continue
        if sources.source(at) is not None:
            return f"{SIDES[at]}={side} runs a build command and what it makes"
        return f"{SIDES[at]}={side} runs a library's code"
    return ""


def check(sources: Sources, needed: Sequence[str]) -> list[str]:
    """Make sure that both sides can be had, as far as that shows without running them.

    Notes for the reader. Raises UsageError, OperationFailedError.
    """
    notes: list[str] = []
    for at, side in enumerate(sources.sides()):
        source = sources.source(at)
        if side in KERNELS:
            own = own_kernel(side)
            missing = [name for name in needed if not own.has(Op[name.upper()])]
            if missing:
                raise UsageError(f"{side} has no {' and no '.join(missing)}")
        elif source is not None:
            find_revision(source)
            if source.ref != WORKTREE and has_changes(source):
                note = f"{sources.tree} has changes that are not committed: no part of git:"
                notes += [note] if note not in notes else []
        elif "/" in side:
            if not side.startswith("/"):
                raise UsageError(
                    f"{SIDES[at]}={side}: a path from / on is wanted",
                    hint="opctl makes it whole when it begins with ./ or ../",
                )
            library = read_library(side)
            need_functions(library, needed)
            _need_linker(library)
        else:
            raise UsageError(
                f"{SIDES[at]}={side} is none{did_you_mean(side, KERNELS)};"
                f" there are: {' '.join(KERNELS)}",
                hint="or a library's path, git:REVISION, worktree",
            )
    return notes


def own_kernel(name: str) -> Functions:
    """One of KERNELS. Raises OperationFailedError: not on this CPU."""
    try:
        return kernels(name)
    except NativeError as error:
        raise OperationFailedError(f"{name}: this CPU does not have it, by its CPUID") from error


def _need_linker(library: Library) -> None:
    if library.kind is not Kind.SHARED and (missing := missing_tools()):
        raise UsageError(
            f"{library.path}: an {library.kind.value} has to be linked, and"
            f" {' and '.join(missing)} are not installed",
            hint="install binutils, or give a shared library",
        )


class Found(NamedTuple):
    """A side as it was found: a kernel's name, or a library; how it was built."""

    name: str
    library: Library | None
    revision: Revision | None = None
    seconds: float = 0.0

    def described(self) -> dict[str, Any]:
        """For the result's details."""
        own = "libc" if self.name == "libc" else "kernel"
        told: dict[str, Any] = {"name": self.name, "kind": own}
        if self.library is not None:
            told |= {"file": self.library.path, "kind": self.library.kind.value}
        if self.revision is not None:
            told |= {"commit": self.revision.commit or None, "tree": self.revision.tree}
            told |= {"built_seconds": round(self.seconds, 3)}
        return told


def find_both(sources: Sources, needed: Sequence[str], tell: Tell) -> tuple[Found, Found]:
    """Both sides with what had to be built for them. Raises OpdError."""
    first, second = (_find(sources, at, needed, tell) for at in range(2))
    return first, second


def _find(sources: Sources, at: int, needed: Sequence[str], tell: Tell) -> Found:
    side = sources.sides()[at]
    if side in KERNELS:
        return Found(side, None)
    source = sources.source(at)
    if source is None:
        library = read_library(side)
        need_functions(library, needed)
        return Found(side, library)
    built = building.built(source, cache(), tell)
    library = read_library(built.path)
    try:
        need_functions(library, needed)
    except UsageError as error:
        words = error.message.removeprefix(f"{library.path}: ")
        raise OperationFailedError(
            f"{side} ({built.revision.short}): {source.artifact}: {words}", hint=error.hint
        ) from error
    return Found(side, library, built.revision, built.seconds)


def cache() -> Path:
    """Where builds are kept."""
    from opd.service.paths import cache_dir

    own = cache_dir()
    return kept.cache_place(f"{own}/dto" if own else "")

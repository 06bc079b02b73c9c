"""Revisions of a source tree, as git has them, or the tree as it stands.

Nothing of the user's tree is touched: its index and its objects are read, and
what is written goes elsewhere. All of it runs as the process's user.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from opd.config.nearest import did_you_mean
from opd.errors import OperationFailedError, UsageError
from opd.features.dto.leftovers import INDEX, own_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKTREE = "worktree"
_GIT_SECONDS = 60.0
_REFS_SHOWN = 200


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


def find_revision(source: Source, *, objects: str = "") -> Revision:
    """Ask git what the revision is. Raises UsageError: no repository, no such revision.

    ``objects``: a directory for objects of a tree as it stands.
    """
    if not Path(source.tree).is_dir():
        raise UsageError(f"tree={source.tree}: no such directory")
    places = git(source.tree, "rev-parse", "--absolute-git-dir", "--show-prefix").split("\n")
    directory, prefix = places[0], places[1] if len(places) > 1 else ""
    if source.ref == WORKTREE:
        tree = _tree_as_it_stands(source, directory, objects)
        return Revision("", tree, directory, prefix, objects)
    found = git(
        source.tree, "rev-parse", "--verify", "--quiet", f"{source.ref}^{{commit}}", may_fail=True
    )
    if not found:
        known = git(
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
    tree = git(source.tree, "rev-parse", "--verify", f"{found}^{{tree}}")
    return Revision(found, tree, directory, prefix)


def has_changes(source: Source) -> bool:
    """Whether the tree holds changes to what is in git that are not committed."""
    return bool(
        git(source.tree, "status", "--porcelain", "--untracked-files=no", may_fail=True).strip()
    )


def _tree_as_it_stands(source: Source, directory: str, objects: str) -> str:
    """Write the tree's objects, with those of files not ignored, and give its SHA."""
    top = git(source.tree, "rev-parse", "--show-toplevel", may_fail=True)
    if not top:
        raise UsageError(f"tree={source.tree} is a repository without a tree of files")
    with own_directory(INDEX) as place:
        if not objects:
            # Only the SHA is wanted: what is written goes with the directory.
            objects = f"{place}/objects"
            Path(objects).mkdir()
        own = {"GIT_INDEX_FILE": f"{place}/index"} | objects_of(source, directory, objects)
        git(top, "add", "--all", ".", extra=own)
        return git(top, "write-tree", extra=own)


def objects_of(source: Source, directory: str, objects: str) -> dict[str, str]:
    """Variables by which git writes to ``objects`` what the repository has not, and reads both."""
    return {
        "GIT_OBJECT_DIRECTORY": objects,
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{_common(source, directory)}/objects",
    }


def _common(source: Source, directory: str) -> str:
    """Where the repository's objects are, also of one of several work trees."""
    common = git(source.tree, "rev-parse", "--git-common-dir", may_fail=True)
    if not common:
        return directory
    return common if common.startswith("/") else os.path.normpath(f"{source.tree}/{common}")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, without what would have git look elsewhere."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    plain |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    return plain | dict(extra or {})


def git(
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
            env=environment(extra),
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

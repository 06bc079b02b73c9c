"""What is compared: both sides by the texts that name them, and their functions."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import msgspec

from opd.config.nearest import did_you_mean
from opd.errors import OperationFailedError, UsageError
from opd.features.arguments import shown
from opd_native.dto import KERNELS, Functions, Op, kernels
from opd_native.errors import NativeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SIDES = ("baseline", "current")


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides as asked for."""

    baseline: str = "libc"
    current: str = "libc"

    def sides(self) -> tuple[str, str]:
        """Baseline and current."""
        return self.baseline, self.current


def sources_of(options: Any) -> Sources:
    """The sources that a probe's options name."""
    names = Sources.__struct_fields__
    return Sources(**{name: getattr(options, name) for name in names if hasattr(options, name)})


def check(sources: Sources, needed: Sequence[str]) -> list[str]:
    """Make sure that both sides can be had; notes for the reader.

    ``needed``: names of the functions that will be called. Raises UsageError,
    OperationFailedError.
    """
    for text in sources.sides():
        _kernel(text, needed)
    return []


class Pair:
    """Both sides in this process. ``layouts``: in how many ways they lie in memory."""

    def __init__(self, sources: Sources, needed: Sequence[str]) -> None:
        self.layouts = 1
        self._names = sources.sides()
        first, second = (_kernel(text, needed) for text in self._names)
        self._functions = first, second

    def functions(self, _layout: int) -> tuple[Functions, Functions]:
        """Baseline and current in one of the layouts, from 0."""
        return self._functions

    def details(self) -> dict[str, Any]:
        """What was compared, for the result."""
        sides = {side: {"name": name} for side, name in zip(_SIDES, self._names, strict=True)}
        return sides | {"layouts": self.layouts}

    def close(self) -> None:
        """Nothing: kernels stay."""


def open_pair(
    sources: Sources,
    needed: Sequence[str],
    *,
    layouts: int = 1,
    tell: Callable[[str], None] | None = None,
) -> Pair:
    """Bring both sides into this process. Raises OpdError.

    ``layouts``: of builds that are linked; others have one.
    """
    del layouts, tell  # nothing is linked
    return Pair(sources, needed)


def _kernel(text: str, needed: Sequence[str]) -> Functions:
    try:
        functions = kernels(text)
    except NativeError as error:
        if error.errno == errno.EOPNOTSUPP:
            raise OperationFailedError(f"{text}: this CPU does not have it") from error
        there = " ".join(KERNELS)
        raise UsageError(
            f"no implementation {shown(text)}{did_you_mean(text, KERNELS)}; there are: {there}"
        ) from error
    for name in needed:
        if not functions.has(Op[name.upper()]):
            raise UsageError(f"{text} has no {name}")
    return functions

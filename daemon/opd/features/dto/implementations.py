"""What is compared: an implementation by the text that names it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, NamedTuple

from opd.config.nearest import did_you_mean
from opd.errors import OperationFailedError, UsageError
from opd.features.arguments import shown
from opd_native.dto import KERNELS, Functions, Op, kernels
from opd_native.errors import NativeError

if TYPE_CHECKING:
    from opd.features.dto.options import DtoOptions


class Implementation(NamedTuple):
    """An implementation, loaded in this process.

    ``layouts``: its functions; of several, the same code at other places, which
    are measured in turn and are the topmost level of the verdict's bootstrap.
    ``facts``: what it is, for whoever reads the result later (JSON's types).
    """

    name: str
    layouts: tuple[Functions, ...]
    facts: dict[str, Any]


def resolve(text: str, options: DtoOptions) -> Implementation:
    """The implementation that ``text`` names. Raises UsageError, OperationFailedError."""
    op = Op[options.op.upper()]
    try:
        functions = kernels(text)
    except NativeError as error:
        if error.errno == errno.EOPNOTSUPP:
            raise OperationFailedError(f"{text}: this CPU does not have it") from error
        there = " ".join(KERNELS)
        raise UsageError(
            f"no implementation {shown(text)}{did_you_mean(text, KERNELS)}; there are: {there}"
        ) from error
    if not functions.has(op):
        raise UsageError(f"{text} has no {options.op}")
    return Implementation(text, (functions,), {"kind": "libc" if text == "libc" else "kernel"})

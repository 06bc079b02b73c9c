"""What is compared: both sides as they are asked for (``sides``), and loaded (``pairs``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.features.dto.pairs import Pair, open_pair
from opd.features.dto.sides import Sources, check, runs_code, sources_of

if TYPE_CHECKING:
    from opd.features.dto.options import DtoOptions

__all__ = ["Pair", "Sources", "check", "layouts_of", "open_pair", "runs_code", "sources_of"]

LAYOUTS = 8
# Larger operations wait for memory, not for instructions.
_LAID_OUT_MOST = 1 << 20


def layouts_of(options: DtoOptions) -> int:
    """How many layouts are wanted: as asked, else 8 where they show."""
    return options.layouts or (LAYOUTS if options.size <= _LAID_OUT_MOST else 1)

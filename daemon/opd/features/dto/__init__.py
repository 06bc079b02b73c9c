"""``dto``: two implementations of memcpy, memmove, memset, memcmp, and a verdict.

``options``, ``implementations`` (``sides`` as asked for; ``revisions``, by ``building``, as
``kept``; told apart by ``linking`` and ``pairs``, of ``libraries``), ``modes`` and ``cells`` say
what is measured, ``measure`` does it in the probe's process; the cell's loops are C (opd/dto.h).
"""

from __future__ import annotations

from opd.features.dto.hooks import opd_ext_features

__all__ = ["opd_ext_features"]

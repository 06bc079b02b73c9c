"""``pchase``: what memory accesses cost. ``options``, ``placement``, ``levels`` of a curve.

``measure`` runs in the probe's process; chains and loops are C (opd/pchase.h).
"""

from __future__ import annotations

from opd.features.pchase.hooks import opd_ext_features

__all__ = ["opd_ext_features"]

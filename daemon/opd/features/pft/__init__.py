"""``pft``: what page faults cost. ``kinds`` there are, ``options``, ``machine`` what it must have.

``measure`` runs in the probe's process; the loops are C (opd/pft.h).
"""

from __future__ import annotations

from opd.features.pft.hooks import opd_ext_features

__all__ = ["opd_ext_features"]

"""``ibs_fetch`` and ``ibs_op``: AMD's Instruction-Based Sampling, live and replayed.

``options`` what can be asked, ``pmu`` what sysfs says of this machine,
``requests`` what is asked of perf_event_open, ``hooks`` the plugin, ``replay``
a recording instead of the machine. Records are decoded in C (opd/ibs.h).
"""

from __future__ import annotations

from opd.features.ibs.hooks import (
    opd_ext_deinit,
    opd_ext_features,
    opd_ext_init,
    opd_ext_print_stats,
)

__all__ = ["opd_ext_deinit", "opd_ext_features", "opd_ext_init", "opd_ext_print_stats"]

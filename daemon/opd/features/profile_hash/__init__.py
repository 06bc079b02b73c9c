"""A histogram of program counters, counted in tables of each CPU; docs/profile-hash.md."""

from opd.features.profile_hash.hooks import (
    opd_ext_deinit,
    opd_ext_features,
    opd_ext_init,
    opd_ext_print_stats,
)

__all__ = ["opd_ext_deinit", "opd_ext_features", "opd_ext_init", "opd_ext_print_stats"]

"""A plugin whose records can come from a recording, and whose machine lacks something."""

from __future__ import annotations

from opd.plugin import Feature, ReplayOptions, hookimpl

FEATURE = Feature(
    name="recorded",
    summary="of a test",
    options=ReplayOptions,
    unavailable=lambda: "this machine has no such PMU",
)


@hookimpl
def opd_ext_features():
    """One."""
    return [FEATURE]

"""Typed settings: files, drop-ins, environment and flags merged, errors with file and key."""

from opd.config.layers import DEFAULT_PATH, Override, changed_keys, load, reload
from opd.config.problems import Problem, raise_problems
from opd.config.settings import (
    Config,
    DaemonSettings,
    Origin,
    SamplingSettings,
    StoreSettings,
)

__all__ = [
    "DEFAULT_PATH",
    "Config",
    "DaemonSettings",
    "Origin",
    "Override",
    "Problem",
    "SamplingSettings",
    "StoreSettings",
    "changed_keys",
    "load",
    "raise_problems",
    "reload",
]

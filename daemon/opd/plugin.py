"""All that a plugin may import. docs/plugins.md walks through one."""

from __future__ import annotations

from opd.features.context import Context
from opd.features.declared import (
    Column,
    Event,
    Feature,
    Options,
    Probe,
    ReplayOptions,
    Stats,
    UnavailableError,
    about,
)
from opd.features.hookspecs import hookimpl
from opd.features.samplefile import SampleFile, SampleWindow

__all__ = [
    "Column",
    "Context",
    "Event",
    "Feature",
    "Options",
    "Probe",
    "ReplayOptions",
    "SampleFile",
    "SampleWindow",
    "Stats",
    "UnavailableError",
    "about",
    "hookimpl",
]

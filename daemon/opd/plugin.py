"""All that a plugin may import. docs/plugins.md walks through one."""

from __future__ import annotations

from opd.events.request import EventRequest
from opd.features.context import Context
from opd.features.declared import (
    Column,
    Event,
    Feature,
    Metric,
    Need,
    Options,
    Probe,
    ProbeOptions,
    ReplayOptions,
    Stats,
    Suite,
    UnavailableError,
    about,
)
from opd.features.hookspecs import hookimpl
from opd.features.samplefile import SampleFile, SampleWindow
from opd.probes.measuring import Measuring, VoidRunError
from opd.stats.verdict import Margins, Verdict, judge

__all__ = [
    "Column",
    "Context",
    "Event",
    "EventRequest",
    "Feature",
    "Margins",
    "Measuring",
    "Metric",
    "Need",
    "Options",
    "Probe",
    "ProbeOptions",
    "ReplayOptions",
    "SampleFile",
    "SampleWindow",
    "Stats",
    "Suite",
    "UnavailableError",
    "Verdict",
    "VoidRunError",
    "about",
    "hookimpl",
    "judge",
]

"""A probe measured in the test's own process, with what it says put in order."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from opd.probes.measuring import WHOLE, Measuring
from opd.probes.wire import Detail, Note, Samples

if TYPE_CHECKING:
    from opd.features.declared import Probe

Measured = tuple[dict[str, list[float]], dict[str, object], list[str]]


def measured(probe: Probe, options: object, cpus: tuple[int, ...] = ()) -> Measured:
    """Samples of the whole by metric, details and notes; on ``cpus``, else all allowed."""
    sent: list[object] = []
    cpus = cpus or tuple(sorted(os.sched_getaffinity(0)))
    probe.measure(options, Measuring(probe.metrics, cpus, sent.append))
    values: dict[str, list[float]] = {}
    for message in sent:
        if isinstance(message, Samples) and message.worker == WHOLE:
            values.setdefault(message.metric, []).extend(memoryview(message.values).cast("d"))
    details = {m.name: msgspec.json.decode(m.json) for m in sent if isinstance(m, Detail)}
    return values, details, [m.text for m in sent if isinstance(m, Note)]

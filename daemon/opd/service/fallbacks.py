"""Says in the log what was asked for and could not be had."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from opd.service.refusals import explain_open_failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opd.sampling.live import LadderStep, LiveSampling
    from opd.service.log import Logger


# What the one draining thread carries with room for a burst: half of a core, on
# 512 CPUs whose processes come and go (docs/benchmarks.md, scale).
DRAIN_SAMPLES_A_SECOND = 400_000


def log_load(log: Logger, samples_a_second: float) -> None:
    """Warn when busy CPUs would give more samples than one draining thread carries."""
    if samples_a_second > DRAIN_SAMPLES_A_SECOND:
        log.warning(
            "drain.overloaded",
            samples_a_second=round(samples_a_second),
            carries=DRAIN_SAMPLES_A_SECOND,
            reason="one thread drains all CPUs; what it cannot follow is lost, and told so",
            remedy="a lower rate in --event, or fewer CPUs in --cpus",
        )


def log_limits(log: Logger, sampling: LiveSampling, *, asked_ring_bytes: int) -> None:
    """One warning for each: whose processes, how large the rings, which events."""
    if sampling.scope == "own":
        error = explain_open_failure(sampling.refused, sampling.events[0].name)
        log.warning(
            "sampling.own_processes",
            uid=os.geteuid(),
            reason=error.message,
            remedy=str(error.hint),
        )
    if sampling.ring_bytes != asked_ring_bytes:
        log.warning(
            "rings.smaller",
            asked_kib=asked_ring_bytes >> 10,
            have_kib=sampling.ring_bytes >> 10,
            reason="locked memory is limited",
            remedy="LimitMEMLOCK= in opd.service, CAP_IPC_LOCK, or a smaller sampling.ring_kib",
        )
    # The first step of the own processes' ladder is what was just said.
    log_steps(log, sampling.ladder[1 if sampling.scope == "own" else 0 :])


def log_steps(log: Logger, steps: Iterable[LadderStep]) -> None:
    """One warning for each step down: what was refused, with its errno, and what came instead."""
    for step in steps:
        log.warning(
            "event.fallback",
            asked=step.asked,
            refused=step.refused,
            errno=errno.errorcode.get(step.errno, str(step.errno)),
            reason=os.strerror(step.errno),
            instead=step.instead,
        )

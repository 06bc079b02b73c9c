"""The CPUs that opctl itself was put on: a probe that a daemon runs for it stays on them."""

from __future__ import annotations

import os

_INIT = 1


def own_cpus() -> str:
    """The ``cpus`` of a probe asked for under taskset or in a cpuset; "" anywhere else."""
    from opd.events.cpus import format_cpu_list

    mine = os.sched_getaffinity(0)
    try:
        usual = os.sched_getaffinity(_INIT)
    except OSError:
        return ""  # of another pid namespace: what is usual is not known
    return format_cpu_list(tuple(sorted(mine))).replace(",", "+") if mine < usual else ""


def with_own_cpus(options: str) -> str:
    """Options of a probe, with ``cpus`` where opctl may not run on all of them.

    What was asked for in options wins; a schedule is no matter of this moment.
    """
    keys = {pair.partition("=")[0].strip() for pair in options.split(",")}
    if keys & {"cpus", "every"} or not (cpus := own_cpus()):
        return options
    return f"{options},cpus={cpus}" if options else f"cpus={cpus}"


def measure_with_own_cpus(text: str) -> str:
    """The same of ``PROBE[:OPTIONS]``; the number of a run stays."""
    probe, _, options = text.partition(":")
    if probe.strip().isdigit():
        return text
    options = with_own_cpus(options)
    return f"{probe}:{options}" if options else probe

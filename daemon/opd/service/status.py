"""What opd says of itself: its own CPU, memory and losses."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from opd.service import processes
from opd.service.cost import total_cpu_ns

if TYPE_CHECKING:
    from opd.sampling.live import LiveSampling

NS = 1_000_000_000


def status_of(
    *,
    started: float,
    sampling: LiveSampling | None,
    link: dict[str, Any],
    quality: dict[str, Any],
    governor: dict[str, Any],
) -> dict[str, Any]:
    """Give the ``status`` answer of DESIGN's contract, less ``messages``.

    ``started`` is CLOCK_MONOTONIC in seconds; ``link`` the worker link's
    statistics. Times are in the unit of their name.
    """
    worker_cpu, worker_pss = float(link["cpu_seconds"]), int(link["pss_bytes"])
    cpu = total_cpu_ns() / NS
    pss = sum(map(processes.pss_bytes, (os.getpid(), *processes.descendants())))
    answer: dict[str, Any] = {
        "pid": os.getpid(),
        "uptime_seconds": time.monotonic() - started,
        "sampling": sampling is not None and not sampling.paused,
        "events": [],
        "features": {},
        "cpu_seconds": cpu,
        "pss_bytes": pss,
        "ns_per_sample": None,
        "samples": 0,
        "quality": quality,
        "worker": {"pid": link["pid"], "cpu_seconds": worker_cpu, "pss_bytes": worker_pss}
        | {
            name: link[name]
            for name in ("waiting", "waiting_bytes", "windows_stored", "windows_dropped")
        },
        "store": {**link["store"], "held": link["held"]},
        "ladder": [],
        "governor": governor,
        "scope": "machine",
    }
    if sampling is not None:
        stats = sampling.stats()
        samples = int(stats["samples"])
        answer |= {
            "events": [
                {
                    "name": event.name,
                    "source": event.source,
                    "unit": event.unit,
                    "hz": event.hz,
                    "period": event.period,
                }
                for event in sampling.events
            ],
            "scope": sampling.scope,
            **({"own": sampling.own.stats()} if sampling.own is not None else {}),
            "samples": samples,
            "ns_per_sample": cpu * NS / samples if samples else None,
            "ladder": [
                f"{step.asked}: {step.refused} refused ({os.strerror(step.errno)}), "
                f"took {step.instead}"
                for step in sampling.ladder
            ],
            "drain": {
                "cpu_seconds": stats["drain_cpu_ns"] / NS,
                "records": stats["records"],
                "wakes": stats["wakes"],
                "least_running": stats["least_running"],
                "late": stats["late"],
                "bad_records": stats["bad_records"],
                "sideband_lost": stats["lost_sideband"],
                "cpus": stats["cpus"],
                "ring_bytes": stats["ring_bytes"],
                "processes": stats["pipeline"]["spaces"]["processes"],
                "threads": stats["pipeline"]["spaces"]["threads"],
                "images": stats["pipeline"]["images"]["live"],
                "refused": {
                    "processes": stats["pipeline"]["spaces"]["refused_processes"],
                    "threads": stats["pipeline"]["spaces"]["refused_threads"],
                    "mappings": stats["pipeline"]["spaces"]["refused_mappings"],
                    "images": stats["pipeline"]["images"]["refused"],
                    "image_files": stats["pipeline"]["images"]["fds_refused"],
                },
            },
        }
    return answer


def published_stats(link: dict[str, Any]) -> dict[str, Any]:
    """Give what subscribers of ``stats`` get with each window stored."""
    names = (
        *("windows_stored", "windows_dropped", "samples_stored", "samples_dropped"),
        *("bytes_stored", "waiting", "waiting_bytes"),
    )
    worker = {"pid": link["pid"], "cpu_seconds": link["cpu_seconds"]}
    return {name: link[name] for name in names} | {
        "cpu_seconds": total_cpu_ns() / NS,
        "worker": worker | {"pss_bytes": link["pss_bytes"]},
    }


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Give nested values under dotted names, for one log line."""
    line: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            line |= flat(value, f"{prefix}{key}.")
        else:
            line[f"{prefix}{key}"] = value
    return line

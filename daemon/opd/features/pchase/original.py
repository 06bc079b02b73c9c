"""Results as pChase prints them: one row of comma-separated values an experiment."""

from __future__ import annotations

import struct
from typing import Any

COLUMNS = (
    "pointer size (bytes)",
    "cache line size (bytes)",
    "page size (bytes)",
    "chain size (bytes)",
    "thread size (bytes)",
    "test size (bytes)",
    "chains per thread",
    "number of threads",
    "iterations",
    "loop length",
    "prefetch hint",
    "experiments",
    "access pattern",
    "stride",
    "numa placement",
    "offset or mask",
    "numa domains",
    "domain map",
    "operations per chain",
    "total operations",
    "elapsed time (seconds)",
    "elapsed time (timer ticks)",
    "clock resolution (ns)",
    "memory latency (ns)",
    "memory bandwidth (MB/s)",
)


def header(_results: list[dict[str, Any]]) -> str:
    """The names of the columns alone."""
    return ",".join(COLUMNS) + "\n"


def rows_alone(results: list[dict[str, Any]]) -> str:
    """As ``as_csv`` without its header."""
    return as_csv(results).split("\n", 1)[1]


def as_csv(results: list[dict[str, Any]]) -> str:
    """The header and one row an experiment; MB are 10^6 bytes, of whole lines.

    A void result, and one that is no chase, is a line that begins with ``#``.
    """
    lines = [",".join(COLUMNS)]
    for result in results:
        if result["void"] is not None:
            lines.append(f"# void: {result['void']}")
        elif result["parameters"]["mode"] != "chase":
            lines.append(f"# mode={result['parameters']['mode']} has no such columns")
        else:
            lines += _rows(result)
    return "\n".join(lines) + "\n"


def _rows(result: dict[str, Any]) -> list[str]:
    asked = result["parameters"]
    nodes = result["details"]["chain"]["nodes"] // asked["laps"]
    resolution = 1 / result["details"]["chain"]["ticks_per_ns"]
    kind, _, number = asked["numa"].partition(":")
    thread = asked["chain"] * asked["chains"]
    page = min(asked["page"] or asked["chain"], asked["chain"])
    rows = []
    for one in result["details"]["experiments"]:
        steps = max(one["steps"])
        values = (
            struct.calcsize("P"),
            asked["line"],
            page,
            asked["chain"],
            thread,
            thread * asked["threads"],
            asked["chains"],
            asked["threads"],
            round(steps / nodes, 3),
            asked["work"],
            asked["hint"],
            asked["experiments"],
            asked["access"],
            asked["stride"],
            kind,
            number if kind in {"xor", "add"} else 0,
            result["machine"].get("numa_nodes") or 1,
            f'"{number if kind == "map" else ""}"',
            nodes,
            sum(one["steps"]) * asked["chains"],
            f"{one['elapsed_seconds']:.6f}",
            one["elapsed_ticks"],
            f"{resolution:.3f}",
            f"{one['latency_ns']:.3f}",
            f"{one['bandwidth_bytes_per_second'] * 1e-6:.3f}",
        )
        rows.append(",".join(map(str, values)))
    return rows

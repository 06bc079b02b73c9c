"""Results as pft prints them, and as xmgrace reads sweeps."""

from __future__ import annotations

import os
from statistics import median
from typing import Any

HEADER = "    Gb   Rep  Thr CLine   User     System     Wall    flt/cpu/s fault/wsec"
_MARKS = (("PLOTID", "plotid"), ("TITLE", "title"), ("SUBTITLE", "subtitle"), ("LEGEND", "legend"))


def _metric(result: dict[str, Any], name: str) -> float | None:
    for metric in result["metrics"]:
        if metric["name"] == name:
            return float(metric["median"])
    return None


def _workers(parameters: dict[str, Any]) -> int:
    return int(parameters["processes"] or parameters["threads"])


def tag_of(parameters: dict[str, Any]) -> str:
    """The TAG line: kind of memory, policy and locks in words, and the tag given."""
    policy = "sys-default" if parameters["policy"] == "none" else "vma-policy"
    locked = "-mlocked" if parameters["mlock"] or parameters["kind"] == "mlock" else ""
    locked += "-shm_locked" if parameters["shm_lock"] else ""
    kind = "shmem" if parameters["kind"] in ("shm", "shmem") else parameters["kind"]
    return f"TAG pft:{kind}-{policy}{locked}:{_one_line(parameters['tag'])}"


def _one_line(text: str) -> str:
    # Nothing in a name moves a terminal's cursor.
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def as_pft(results: list[dict[str, Any]]) -> str:
    """Pft's columns, one line a result: medians over its repeats, faults as measured.

    ``Gb`` has decimals. A void result is a line that begins with ``#``.
    """
    lines: list[str] = []
    marked = None
    for result in results:
        parameters = result["parameters"]
        marks = [f"{word} {_one_line(parameters[key])}" for word, key in _MARKS if parameters[key]]
        if parameters["tag"]:
            marks.append(tag_of(parameters))
        if marks != marked:
            # An empty line ends a series.
            lines += [*([""] if lines else []), *marks, HEADER]
            marked = marks
        lines.append(_line(result))
    return "\n".join(lines) + "\n"


def _line(result: dict[str, Any]) -> str:
    parameters = result["parameters"]
    if result["void"] is not None:
        return f"# void: {result['void']}"
    repeats = result["details"].get("repeats", [])
    user, system, wall = (
        median(row[name] for row in repeats) if repeats else 0.0
        for name in ("user_seconds", "system_seconds", "wall_seconds")
    )
    page = os.sysconf("SC_PAGESIZE")
    size = (_metric(result, "pages") or 0) * page / (1 << 30)
    lines = page // (parameters["line"] or 64) if parameters["clear"] else parameters["cachelines"]
    return (
        f" {size:7.3f} {len(repeats):4d} {_workers(parameters):4d} {lines:3d}"
        f" {user:8.2f}s {system:8.2f}s {wall:8.2f}s "
        f" {_metric(result, 'faults_per_cpu_second') or 0:10.3f}"
        f" {_metric(result, 'faults_per_wall_second') or 0:10.3f}"
    )


def as_agr(results: list[dict[str, Any]]) -> str:
    """An xmgrace project: measured faults a wall second against workers, a set a kind of run."""
    sets: dict[str, list[tuple[int, float]]] = {}
    titles = {"title": "page faults", "subtitle": ""}
    for result in results:
        parameters = result["parameters"]
        rate = _metric(result, "faults_per_wall_second")
        if result["void"] is not None or rate is None:
            continue
        titles.update({key: parameters[key] for key in titles if parameters[key]})
        how = "processes" if parameters["processes"] else "threads"
        node = f" node {parameters['node']}" if parameters["node"] >= 0 else ""
        node += f" cpus of {parameters['cpu_node']}" if parameters["cpu_node"] >= 0 else ""
        name = parameters["legend"] or f"{parameters['kind']} {how}{node}"
        sets.setdefault(name, []).append((_workers(parameters), rate))
    lines = [
        "@version 50123",
        f'@title "{_quoted(titles["title"])}"',
        f'@subtitle "{_quoted(titles["subtitle"])}"',
        '@xaxis label "workers"',
        '@yaxis label "faults a second"',
    ]
    lines += [f'@s{i} legend "{_quoted(name)}"' for i, name in enumerate(sets)]
    for i, points in enumerate(sets.values()):
        lines += [f"@target G0.S{i}", "@type xy"]
        lines += [f"{workers} {rate:.3f}" for workers, rate in sorted(points)]
        lines.append("&")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return _one_line(text).replace("\\", "\\\\").replace('"', "'")

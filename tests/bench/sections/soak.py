"""50 execs a second for an hour at 99 Hz: memory, store, CPU, and whether they grow."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from bench.harness.accounting import process_name, pss_bytes, ring_bytes
from bench.harness.figures import Plot, Series, fit_line
from bench.harness.loads import python_load, running
from bench.harness.opd import Opd
from bench.harness.section import Context, Section

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.harness.accounting import Account

RATE_HZ, EXECS = 99, 50
POINT_S = 30.0
STATUS_EVERY = 4  # points; an answer costs the daemon CPU that a budget counts
WARM_UP_S = 600.0
HOUR_S = 3600.0
MB = 1e6


def run(context: Context) -> None:
    """Sample the standard load and watch; saved after every point."""
    seconds = context.seconds(3600, 120)
    account, others = context.account("opd"), context.account("load")
    with Opd(account, "-e", f"cpu-clock:{RATE_HZ}hz", governed=True) as opd:
        count = opd.directory / "execs"
        load = python_load("standard.py", str(EXECS), str(count))
        points: list[dict[str, Any]] = []
        with running(others, load):
            for point in _points(opd, account, seconds, count):
                points.append(point)
                context.progress(f"soak, of {seconds / 60:.0f} min {_brief(point)}")
                context.findings.clear()
                context.note(f"so far {point['seconds']:.0f} of {seconds:.0f} s", quiet=True)
                _figures(context, points)
                context.save()
        status = opd.ask("status")
        stop_s = opd.stop()
        files = opd.store_files()
        offline = opd.ask_store("report", "--sort", "event", "--top", "0")
        errors = [line for line in opd.log_lines() if line.get("level") in ("error", "critical")]
    context.findings.notes.clear()
    _conclude(context, points)
    final = int(status["samples"])
    per = sum(files.values()) / max(offline["total"], 1)
    context.figure("soak.end.bytes_a_sample", per, "B/sample", note="after a clean end")
    if points[-1]["seconds"] >= HOUR_S - POINT_S:
        context.figure("soak.hour.bytes_a_sample", per, "B/sample")
    context.figure("soak.end.samples_not_stored", final - offline["total"], "samples")
    context.figure("soak.end.lost", sum(offline["quality"]["lost"].values()), "samples")
    context.figure("soak.end.windows_missing", offline["quality"]["windows"]["missing"], "windows")
    context.figure("soak.end.stop_seconds", stop_s, "s")
    context.figure("soak.end.exit_status", opd.status, "")
    context.figure("soak.end.errors_logged", len(errors), "lines")
    for line in errors[:5]:
        context.note(f"logged: {line}")
    largest = sorted(files.items(), key=lambda item: -item[1])[:8]
    context.table(
        "Files of the store at the end",
        ["file", "MB"],
        [[name, f"{size / MB:.2f}"] for name, size in largest],
    )
    context.note(f"quality at the end: {offline['quality']}")


def _points(opd: Opd, account: Account, seconds: float, count: Path) -> Iterator[dict[str, Any]]:
    """Look at everything every so often until the time is over."""
    began = time.monotonic()
    step = min(POINT_S, seconds / 12)
    turn = 0
    while (now := time.monotonic() - began) < seconds + step / 2:
        if opd.ended:
            raise RuntimeError(f"opd ended by itself:\n{opd.log_path.read_text()[-2000:]}")
        point = _point(opd, account, now, with_status=turn % STATUS_EVERY == 0)
        point["execs"] = int(count.read_text() or 0) if count.exists() else 0
        yield point
        turn += 1
        time.sleep(max(0.0, began + turn * step - time.monotonic()))


def _point(opd: Opd, account: Account, now: float, *, with_status: bool) -> dict[str, Any]:
    point: dict[str, Any] = {"seconds": now, "load": os.getloadavg()[0]}
    if with_status:
        asked = time.monotonic()
        status = opd.ask("status")
        point["status_ms"] = 1e3 * (time.monotonic() - asked)
        point["samples"] = int(status["samples"])
        point["store_bytes"] = sum(opd.store_files().values())
        point["hz"] = status["quality"].get("hz_effective") or 0
        point["governor"] = status.get("governor")
        point["lost"] = sum(status["quality"].get("lost", {}).values())
    point["cpu_seconds"] = account.cpu_seconds()
    kernel = account.kernel_bytes()
    point["kernel"] = kernel
    point["processes"] = {}
    point["rings"] = 0
    for pid in account.pids():
        name = process_name(pid)
        point["processes"][name] = point["processes"].get(name, 0) + pss_bytes(pid)
        point["rings"] += ring_bytes(pid)
    point["pss"] = sum(point["processes"].values())
    point["total"] = point["pss"] + point["rings"] + (kernel or 0)
    return point


def _brief(point: dict[str, Any]) -> str:
    parts = {**point["processes"], "rings": point["rings"], "kernel": point["kernel"] or 0}
    memory = ", ".join(f"{name} {size / MB:.1f}" for name, size in parts.items())
    total, cpu = point["total"] / MB, point["cpu_seconds"]
    return f"{point['seconds'] / 60:.1f}: {total:.1f} MB ({memory}), CPU {cpu:.2f} s"


def _figures(context: Context, points: list[dict[str, Any]]) -> None:
    """Everything that can be said of the points so far."""
    end = points[-1]["seconds"]
    warm = min(WARM_UP_S, end / 3)
    late = [point for point in points if point["seconds"] >= warm]
    last = points[-1]
    figure = context.figure
    figure("soak.seconds", last["seconds"], "s")
    figure("soak.execs", last["execs"], "programs", note=f"{EXECS} a second asked")
    figure("soak.memory.total", last["total"] / MB, "MB", note="PSS + rings + kernel, at the end")
    figure("soak.memory.peak", max(point["total"] for point in points) / MB, "MB")
    for part in ("pss", "rings", "kernel"):
        if last[part] is not None:
            figure(f"soak.memory.{part}", last[part] / MB, "MB")
    for name, size in last["processes"].items():
        figure(f"soak.memory.process.{name}", size / MB, "MB")
    line_total = None
    for part in ("total", "pss", "kernel"):
        line = fit_line([(p["seconds"] / 3600, p[part] / MB) for p in late if p[part] is not None])
        if line is not None:
            note = f"95 % interval ±{line.half_width:.2f}, n={line.n}, after {warm:.0f} s"
            figure(f"soak.slope.{part}", line.slope, "MB/h", note=note)
            line_total = line if part == "total" else line_total
    line = fit_line([(p["seconds"], p["cpu_seconds"]) for p in late])
    if line is not None:
        figure("soak.cpu_percent", 100 * line.slope, "% of one core", note=f"after {warm:.0f} s")
    _store_figures(context, points, warm)
    if end >= HOUR_S - POINT_S:
        # What the budgets ask for; a shorter soak cannot tell.
        figure("soak.hour.memory", last["total"] / MB, "MB")
        if line_total is not None:
            low = line_total.slope - line_total.half_width
            figure("soak.hour.slope_low", low, "MB/h", note="lower end of the 95 % interval")
    _plots(context, points)


def _store_figures(context: Context, points: list[dict[str, Any]], warm: float) -> None:
    told = [point for point in points if "samples" in point]
    last = told[-1]
    if last["samples"]:
        context.figure("soak.samples", last["samples"], "samples")
        per = last["store_bytes"] / last["samples"]
        context.figure("soak.store.bytes_a_sample", per, "B/sample", note="all files, all so far")
        cpu = last["cpu_seconds"] - told[0]["cpu_seconds"]
        if len(told) > 1:
            ns = 1e9 * cpu / max(last["samples"] - told[0]["samples"], 1)
            context.figure("soak.cpu_ns_a_sample", ns, "ns", note="all-in, start-up left out")
    late = [point for point in told if point["seconds"] >= warm]
    line = fit_line([(float(p["samples"]), float(p["store_bytes"])) for p in late])
    if line is not None:
        context.figure("soak.store.slope", line.slope, "B/sample", note="of the late part")
    context.median("soak.status_ms", [point["status_ms"] for point in told], "ms")
    context.figure("soak.lost", last["lost"], "samples")
    context.figure("soak.hz_effective", last["hz"], "Hz", note=f"governor: {last['governor']}")


def _plots(context: Context, points: list[dict[str, Any]]) -> None:
    minutes = [point["seconds"] / 60 for point in points]
    names = sorted({name for point in points for name in point["processes"]})
    series = [
        Series(
            f"PSS {name}",
            [[m, p["processes"].get(name, 0) / MB] for m, p in zip(minutes, points, strict=True)],
        )
        for name in names
    ]
    for part in ("rings", "kernel", "total"):
        values = [[m, (p[part] or 0) / MB] for m, p in zip(minutes, points, strict=True)]
        series.append(Series(part, values))
    context.plot(Plot("Memory over the soak", "minutes", "MB", series, limit=64))
    told = [point for point in points if point.get("samples")]
    values = [[p["seconds"] / 60, p["store_bytes"] / p["samples"]] for p in told]
    series = [Series("all files", values)]
    context.plot(Plot("Store, bytes a sample so far", "minutes", "B", series, limit=5))
    cpu = [[m, p["cpu_seconds"]] for m, p in zip(minutes, points, strict=True)]
    context.plot(Plot("CPU of all processes", "minutes", "s", [Series("opd", cpu)]))
    status = [[p["seconds"] / 60, p["status_ms"]] for p in points if "status_ms" in p]
    context.plot(Plot("opctl status, wall time", "minutes", "ms", [Series("opctl", status)]))


def _conclude(context: Context, points: list[dict[str, Any]]) -> None:
    chosen = points[:: max(1, len(points) // 12)]
    if chosen[-1] is not points[-1]:
        chosen.append(points[-1])
    rows = [
        [
            f"{point['seconds'] / 60:.1f}",
            *(f"{point[part] / MB:.2f}" for part in ("total", "pss", "rings")),
            "-" if point["kernel"] is None else f"{point['kernel'] / MB:.2f}",
            f"{point['cpu_seconds']:.2f}",
            str(point.get("samples", "")),
            f"{point['store_bytes'] / MB:.2f}" if "store_bytes" in point else "",
            f"{point['load']:.1f}",
        ]
        for point in chosen
    ]
    context.table(
        f"{EXECS} execs/s, {RATE_HZ} Hz",
        ["min", "total MB", "PSS", "rings", "kernel", "CPU s", "samples", "store MB", "load"],
        rows,
    )


SECTION = Section(
    "soak",
    "an hour of 50 execs/s at 99 Hz: memory, store bytes a sample, CPU, and their slopes",
    run,
    by_default=False,
)

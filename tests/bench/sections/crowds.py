"""Crowds: 10,000 processes, 2,000 threads, a process that maps and unmaps 100,000 times."""

from __future__ import annotations

import subprocess
import time

from bench.harness.loads import Builder, builder, running
from bench.harness.opd import Opd
from bench.harness.section import Context, Section
from bench.harness.told import losses
from bench.harness.watch import MemoryWatch

RATE_HZ = 999


def run(context: Context) -> None:
    """Each crowd under a daemon of its own; some work goes on beside it."""
    processes, threads, maps = context.choose((10_000, 2_000, 100_000), (1_000, 200, 10_000))
    rows: list[list[str]] = []
    with builder() as loads:
        sleepers = [str(loads.build("sleepers.c")), str(processes)]
        rows.append(_crowd(context, loads, "processes", sleepers))
        rows.append(_crowd(context, loads, "processes_there", sleepers, there_before=True))
        idle = [str(loads.build("idle_threads.c")), str(threads)]
        rows.append(_crowd(context, loads, "threads", idle))
        remap = [str(loads.build("remap.c")), str(maps)]
        rows.append(_crowd(context, loads, "maps", remap))
    header = ["crowd", "CPU s", "before MB", "peak MB", "after MB", "samples", "lost", "seconds"]
    context.table(f"Crowds under opd at {RATE_HZ} Hz", header, rows)
    context.note(
        f"{processes} processes, {threads} threads, {maps} mappings; 'after' is 10 s later"
    )


def _crowd(
    context: Context,
    loads: Builder,
    name: str,
    command: list[str],
    *,
    there_before: bool = False,
) -> list[str]:
    context.progress(f"crowd: {name}")
    key = f"crowds.{name}"
    account, others = context.account("opd"), context.account("load")
    spin = [str(loads.build("spin.c"))]
    arguments = ("-e", f"cpu-clock:{RATE_HZ}hz", "--interval", "5")

    def gather() -> subprocess.Popen[bytes]:
        crowd = others.start(command, stdout=subprocess.PIPE)
        assert crowd.stdout is not None
        word = crowd.stdout.readline()
        if word not in (b"ready\n", b"done\n"):
            raise RuntimeError(f"{command} said {word!r}")
        return crowd

    with running(others, spin):
        crowd = gather() if there_before else None
        try:
            with Opd(account, *arguments, governed=True) as opd, MemoryWatch(account) as watch:
                began = time.monotonic()
                crowd = crowd or gather()
                time.sleep(context.choose(20, 3))
                _end(crowd)
                took = time.monotonic() - began
                time.sleep(context.choose(10, 3))
                opd.ask("dump")
                status = opd.ask("status")
        finally:
            if crowd is not None:
                _end(crowd)
    watch.figures(context, key)
    losses(context, key, status)
    cpu = account.cpu_seconds()
    context.figure(f"{key}.cpu", cpu, "s CPU", "start and stop included")
    context.close_account(account)
    totals = [point["total"] / 1e6 for _, point in watch.points[:-1]]  # the last: after the end
    lost = sum(status["quality"]["lost"].values())
    cells = [f"{totals[0]:.1f}", f"{max(totals):.1f}", f"{totals[-1]:.1f}"]
    return [name, f"{cpu:.2f}", *cells, str(status["samples"]), str(lost), f"{took:.1f}"]


def _end(crowd: subprocess.Popen[bytes]) -> None:
    if crowd.poll() is None:
        crowd.kill()
        crowd.wait()


SECTION = Section("crowds", "10,000 processes, 2,000 threads, 100,000 mappings of one process", run)

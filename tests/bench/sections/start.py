"""Start-up and shutdown: CPU, and how long until the first sample, with 1,000 processes running.

Both CPUs are busy, so samples come at a known rate and their number tells for
how long was sampled; the rest of the time passed before the first one.
Contenders run before all others (SCHED_FIFO): on a machine that is busy a
daemon waits for its turn, and that wait is not its own.
"""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

from bench.harness import contenders
from bench.harness.loads import builder, running
from bench.harness.section import Context, Section

if TYPE_CHECKING:
    from bench.harness.contenders import Contender

RATE_HZ = 999
SAMPLED_S = 3.0
AT_ONCE = ["chrt", "--fifo", "1"]


def run(context: Context) -> None:
    """Start and stop with few and with many processes running."""
    chosen, absent = contenders.present(context.options.contenders)
    for line in absent:
        context.note(line)
    chosen = [contender for contender in chosen if contender.fixed_rate is None]
    rows = []
    with builder() as loads:
        spins = [[str(loads.build("spin.c")), str(cpu)] for cpu in range(os.cpu_count() or 1)]
        sleepers = str(loads.build("sleepers.c"))
        for processes in (0, 1000):
            others = context.account("load")
            latency: dict[str, list[float]] = {c.name: [] for c in chosen}
            cpu: dict[str, list[float]] = {c.name: [] for c in chosen}
            with running(others, *spins):
                crowd = _crowd(context, sleepers, processes)
                for turn in range(context.repeat(5, 2)):
                    for contender in chosen if turn % 2 == 0 else chosen[::-1]:
                        context.progress(f"start {contender.name}, {processes} processes")
                        cpu[contender.name].append(_start_stop(context, contender))
                        latency[contender.name].append(_first_sample(context, contender))
                if crowd is not None:
                    crowd.kill()
                    crowd.wait()
            suffix = "" if processes else ".few"
            for contender in chosen:
                name = contender.name
                context.median(f"start.{name}{suffix}.cpu", cpu[name], "s CPU")
                context.median(f"start.{name}{suffix}.first_sample", latency[name], "s")
                known = {figure.key: figure for figure in context.findings.figures}
                cells = [known[f"start.{name}{suffix}.{what}"] for what in ("cpu", "first_sample")]
                rows.append(
                    [
                        f"{processes} more" if processes else "as they were",
                        name,
                        *(f"{f.value:.3f} ({f.low:.3f}..{f.high:.3f})" for f in cells),
                    ]
                )
    context.table(
        f"Start and stop at once (CPU), and start to first sample (wall), {RATE_HZ} Hz",
        ["processes", "who", "start+stop CPU s", "first sample after s"],
        rows,
    )


def _crowd(context: Context, program: str, count: int) -> subprocess.Popen[bytes] | None:
    if not count:
        return None
    crowd = context.account("crowd").start([program, str(count)], stdout=subprocess.PIPE)
    assert crowd.stdout is not None
    if crowd.stdout.readline() != b"ready\n":
        raise RuntimeError(f"{count} processes could not be started")
    return crowd


def _start_stop(context: Context, contender: type[Contender]) -> float:
    account = context.account(contender.name)
    account.prefix = AT_ONCE
    runner = contender(account, RATE_HZ)
    try:
        runner.start()
        runner.stop()
        return account.cpu_seconds()
    finally:
        runner.close()
        context.close_account(account)


def _first_sample(context: Context, contender: type[Contender]) -> float:
    account = context.account(contender.name)
    account.prefix = AT_ONCE
    runner = contender(account, RATE_HZ)
    try:
        launched = time.monotonic()
        runner.start()
        time.sleep(SAMPLED_S)
        ended = time.monotonic()
        runner.stop()
        samples = runner.examine().samples
        return ended - launched - samples / RATE_HZ / (os.cpu_count() or 1)
    finally:
        runner.close()
        context.close_account(account)


SECTION = Section("start", "start-up and shutdown CPU, first sample with 1,000 processes", run)

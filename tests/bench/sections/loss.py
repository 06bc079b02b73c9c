"""10 kHz on every CPU: expected, taken, lost by reason; also with the worker stopped."""

from __future__ import annotations

import os
import signal
import time

from bench.harness import machine
from bench.harness.accounting import memory_of
from bench.harness.loads import python_load
from bench.harness.opd import Opd
from bench.harness.section import Context, Section


def run(context: Context) -> None:
    """Both cases at each rate."""
    seconds = context.choose(30.0, 5.0)
    for rate in context.rates([10000], [10000]):
        rows = [_case(context, seconds, rate, stop_worker=stopped) for stopped in (False, True)]
        context.table(
            f"{rate} Hz on every CPU for {seconds:g} s, mixed load",
            ["worker", "expected", "taken", "share", "lost", "throttled s", "CPU s", "memory"],
            rows,
        )


def _case(context: Context, seconds: float, rate: int, *, stop_worker: bool) -> list[str]:
    name = "stopped" if stop_worker else "running"
    account, others = context.account("opd"), context.account("load")
    with Opd(account, "-e", f"cpu-clock:{rate}hz") as opd:
        begin = opd.ask("status")
        worker, before = begin["worker"]["pid"], machine.moment()
        load = others.start(python_load("mixed.py", str(seconds)))
        if stop_worker:
            os.kill(worker, signal.SIGSTOP)
        time.sleep(seconds)
        load.wait()
        memory = memory_of(account)
        if stop_worker:
            os.kill(worker, signal.SIGCONT)
        opd.ask("dump")
        # Sampling goes on until here, and so does what should have been sampled.
        status = opd.ask("status")
        busy = machine.moment().busy - before.busy
    quality = status["quality"]
    taken, expected = int(status["samples"]) - int(begin["samples"]), busy * rate
    suffix = "" if rate == 10000 else f".{rate}"
    lost = sum(quality["lost"].values())
    context.figure(f"loss{suffix}.{name}.lost", lost, "samples")
    context.figure(f"loss{suffix}.{name}.taken", 100 * taken / expected, "% of expected")
    context.figure(f"loss{suffix}.{name}.throttled", quality["throttled_seconds"], "s")
    context.figure(f"loss{suffix}.{name}.memory", memory["total"] / 1e6, "MB")
    return [
        name,
        f"{expected:.0f}",
        str(taken),
        f"{100 * taken / expected:.1f} %",
        str(quality["lost"]),
        f"{quality['throttled_seconds']:.3f}",
        f"{account.cpu_seconds():.2f}",
        f"{memory['total'] / 1e6:.1f} MB",
    ]


SECTION = Section("loss", "10 kHz on every CPU, worker running and stopped: what is lost", run)

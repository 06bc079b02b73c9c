"""10 kHz on every CPU: expected, taken, lost by reason; also with the worker stopped."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from harness import Opd, start_load, table


def run(seconds: float, rate: int, *, stop_worker: bool) -> list[str]:
    """Sample the load; one row of the table."""
    with Opd("-e", f"cpu-clock:{rate}hz") as opd:
        worker = opd.ask("status")["worker"]["pid"]
        busy_before = busy_seconds()
        load = start_load(seconds)
        if stop_worker:
            os.kill(worker, signal.SIGSTOP)
        time.sleep(seconds)
        load.wait()
        busy = busy_seconds() - busy_before
        if stop_worker:
            os.kill(worker, signal.SIGCONT)
        opd.ask("dump")
        status = opd.ask("status")
    quality = status["quality"]
    taken = int(status["samples"])
    return [
        "stopped" if stop_worker else "running",
        f"{busy * rate:.0f}",
        str(taken),
        f"{100 * taken / (busy * rate):.1f} %",
        str(quality["lost"]),
        f"{quality['throttled_seconds']:.3f}",
        str(quality["windows"]),
        f"{status['cpu_seconds']:.2f}",
        f"{status['pss_bytes'] / 1e6:.1f} MB",
    ]


def busy_seconds() -> float:
    """Give busy CPU seconds of the machine by /proc/stat: what should be sampled."""
    line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    fields = [int(word) for word in line.split()[1:]]
    # user nice system irq softirq; not idle, iowait, steal, guest (in user)
    ticks = fields[0] + fields[1] + fields[2] + fields[5] + fields[6]
    return ticks / os.sysconf("SC_CLK_TCK")


def main(seconds: float = 30.0, rate: int = 10000) -> None:
    """Both cases."""
    rows = [run(seconds, rate, stop_worker=stopped) for stopped in (False, True)]
    table(
        f"{rate} Hz on every CPU for {seconds:g} s, mixed load",
        ["worker", "expected", "taken", "share", "lost", "throttled s", "windows", "CPU s", "PSS"],
        rows,
    )

"""A fork storm: whether processes that live a millisecond are named, and memory stays."""

from __future__ import annotations

import subprocess
import time

from bench.harness.accounting import memory_of
from bench.harness.opd import Opd
from bench.harness.section import Context, Section

STORM = ("bash", "true")


def run(context: Context) -> None:
    """Run /bin/true many times and look what was named."""
    processes, rate = context.choose(5000, 1000), context.rates([999], [999])[0]
    account = context.account("opd")
    with Opd(account, "-e", f"cpu-clock:{rate}hz") as opd:
        before = memory_of(account)
        started = time.monotonic()
        script = f"for i in $(seq {processes}); do /bin/true; done"
        subprocess.run(["bash", "-c", script], check=True)
        wall = time.monotonic() - started
        opd.ask("dump")
        answer = opd.ask("report", "--sort", "comm,image,symbol,mode", "--top", "0")
        status = opd.ask("status")
        after = memory_of(account)
    user = [row for row in answer["rows"] if row["mode"] == "user"]
    rows = []
    for title, chosen in (
        ("all user samples", user),
        ("of bash and true", [row for row in user if row["comm"] in STORM]),
    ):
        total = sum(row["samples"] for row in chosen)
        image = sum(row["samples"] for row in chosen if row["image"] != "[unknown]")
        ranged = sum(row["samples"] for row in chosen if "!0x" in row["symbol"])
        named = sum(row["samples"] for row in chosen if _is_named(row["symbol"]))
        counts = [image, named, ranged]
        rows.append([title, str(total), *(f"{100 * n / max(total, 1):.2f} %" for n in counts)])
    context.table(
        f"{processes} x /bin/true in {wall:.1f} s, {rate} Hz",
        ["", "samples", "with image", "leaf by symbol", "leaf by function range"],
        rows,
    )
    everything = answer["rows"]
    total = sum(row["samples"] for row in everything)
    with_image = sum(row["samples"] for row in everything if row["image"] != "[unknown]")
    # bash and libc of Debian are stripped: their functions are told apart by
    # range. What has names is the kernel, and what is not stripped.
    told = sum(row["samples"] for row in everything if row["symbol"] != "[unknown]")
    context.figure("storm.image_named", 100 * with_image / max(total, 1), "%")
    context.figure(
        "storm.leaf_told", 100 * told / max(total, 1), "%", note="by symbol or function range"
    )
    kernel = [row for row in everything if row["mode"] == "kernel"]
    of_kernel = sum(row["samples"] for row in kernel)
    named = sum(row["samples"] for row in kernel if _is_named(row["symbol"]))
    context.figure(
        "storm.leaf_named", 100 * named / max(of_kernel, 1), "%", note="kernel leaf frames"
    )
    context.figure("storm.samples", total, "samples")
    context.figure("storm.lost", sum(answer["quality"]["lost"].values()), "samples")
    context.figure("storm.cpu", status["cpu_seconds"], "s")
    context.figure("storm.memory.before", before["total"] / 1e6, "MB")
    context.figure("storm.memory.after", after["total"] / 1e6, "MB")
    context.note(f"quality: {answer['quality']}")


def _is_named(symbol: str) -> bool:
    return symbol != "[unknown]" and "!0x" not in symbol


SECTION = Section("storm", "a fork storm: processes that live a millisecond have names", run)

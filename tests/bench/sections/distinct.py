"""Without bound: 5,000 different executables, then stacks that never come twice."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING

from bench.harness.figures import Plot, Series
from bench.harness.loads import STATIC, Builder, builder, running
from bench.harness.opd import Opd
from bench.harness.section import Context, Section
from bench.harness.told import losses
from bench.harness.watch import MemoryWatch

if TYPE_CHECKING:
    from pathlib import Path

MOST_SECONDS = 600.0


def run(context: Context) -> None:
    """Both, each under a daemon of its own."""
    with builder() as loads:
        _executables(context, loads, context.choose(5_000, 300))
        _stacks(context, loads, context.choose(1_000_000, 40_000))


def _executables(context: Context, loads: Builder, count: int) -> None:
    account, others = context.account("opd"), context.account("load")
    programs = loads.distinct("tiny.c", count, *STATIC, "-DROUNDS=4000000")
    storm = [str(loads.build("fork_storm.c")), "1", *map(str, programs)]
    storm[1] = str(2 * count)
    context.progress(f"{count} distinct executables")
    arguments = ("-e", "cpu-clock:999hz", "--interval", "5")
    with Opd(account, *arguments, governed=True) as opd, MemoryWatch(account) as watch:
        began = time.monotonic()
        others.start(storm).wait()
        took = time.monotonic() - began
        opd.ask("dump")
        status = opd.ask("status")
        rows = opd.ask("report", "--sort", "image,symbol", "--top", "0")["rows"]
        cpu = account.cpu_seconds()
    ours = [row for row in rows if row["image"].startswith(f"{loads.folder}/tiny-")]
    images = {row["image"] for row in ours}
    samples = sum(row["samples"] for row in ours)
    named = sum(row["samples"] for row in ours if row["symbol"].startswith("tiny_"))
    key = "distinct.executables"
    context.figure(f"{key}.seen", len(images), "images", f"of {count}, run twice each")
    context.figure(f"{key}.named", 100 * named / max(samples, 1), "%", "of their samples")
    context.figure(f"{key}.cpu", cpu, "s CPU")
    watch.figures(context, key)
    losses(context, key, status)
    context.note(f"{2 * count} runs of {count} executables in {took:.0f} s")
    context.plot(Plot(f"Memory, {count} executables", "s", "MB", [Series("opd", watch.series())]))
    context.save()


def _stacks(context: Context, loads: Builder, count: int) -> None:
    account, others = context.account("opd"), context.account("load")
    program = str(loads.build("stacks.c"))
    commands = [[program, "24", "1"], [program, "24", "2"]]
    arguments = ("-e", "cpu-clock:10000hz", "--interval", "5")
    with Opd(account, *arguments, governed=True) as opd, MemoryWatch(account) as watch:
        began = time.monotonic()
        samples = 0
        with running(others, *commands):
            while samples < count and time.monotonic() - began < MOST_SECONDS:
                time.sleep(5)
                samples = int(opd.ask("status")["samples"])
                context.progress(f"{samples} of {count} samples of distinct stacks")
        opd.ask("dump")
        status = opd.ask("status")
        cpu = account.cpu_seconds()
        stacks = _stored_stacks(opd.store)
        size = sum(opd.store_files().values())
    key = "distinct.stacks"
    context.figure(f"{key}.stored", stacks, "stacks", "in the store")
    context.figure(f"{key}.cpu_ns", 1e9 * cpu / max(samples, 1), "ns/sample", "all-in")
    context.figure(f"{key}.bytes", size / max(samples, 1), "B/sample", "of the open store")
    watch.figures(context, key)
    losses(context, key, status)
    context.plot(Plot(f"Memory, {count} stacks", "s", "MB", [Series("opd", watch.series())]))


def _stored_stacks(store: Path) -> int:
    connection = sqlite3.connect(f"file:{store / 'opd.db'}?mode=ro", uri=True)
    (count,) = connection.execute("SELECT total(count) FROM stacks").fetchone()
    connection.close()
    return int(count)


SECTION = Section(
    "distinct", "5,000 distinct executables, 1,000,000 distinct stacks: bounded?", run
)

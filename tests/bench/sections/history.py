"""Questions about a varied day: sixty programs in thirty units and ten containers.

Each is asked from the shell with the store out of the page cache and in it
(`opctl --session-dir`, run before all others), and of a reader that is open,
as the daemon's would be.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness.opd import BIN, store_files
from bench.harness.section import Context, Section
from bench.loads.day import HZ, write_day

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE = ["chrt", "--fifo", "1"]
DAY_NS = 86_400_000_000_000

# Its name, what the shell is asked, and the same of a reader.
QUESTIONS: tuple[tuple[str, list[str], dict[str, Any]], ...] = (
    ("top20", [], {}),
    ("unit", ["--sort", "unit"], {"sort": ("unit",)}),
    ("per_hour", ["--per", "hour"], {"per_s": 3600}),
    ("where", ["--where", "comm=web*"], {"where": "comm=web*"}),
    ("per_minute", ["--per", "minute"], {"per_s": 60}),
    ("pid", ["--sort", "pid"], {"sort": ("pid",)}),
)


def run(context: Context) -> None:
    """Write the day and ask."""
    hours = context.choose(24.0, 1.0)
    with tempfile.TemporaryDirectory(prefix="opd-bench-history-") as folder:
        store = Path(folder) / "store"
        began = time.monotonic()
        windows = write_day(store, time.time_ns(), hours=hours, progress=context.progress)
        samples = _samples(store)
        size = sum(store_files(store).values())
        context.note(
            f"{hours:g} h at {HZ} Hz: {windows} windows, {samples} samples,"
            f" written in {time.monotonic() - began:.0f} s"
        )
        context.figure("history.size", size / 1e6, "MB")
        context.figure("history.bytes_a_sample", size / samples, "B/sample")
        context.table(
            f"Answers over {hours:g} h, ms: median",
            ["question", "shell, cold", "shell, warm", "reader, warm"],
            [_ask(context, store, *question) for question in QUESTIONS],
        )


def _samples(store: Path) -> int:
    from opd.store.queries import open_reader

    with open_reader(store) as reader:
        return sum(session.samples for session in reader.sessions())


def _ask(
    context: Context, store: Path, name: str, words: list[str], asked: dict[str, Any]
) -> list[str]:
    context.progress(name)
    command = [*AT_ONCE, str(BIN / "opctl"), "--session-dir", str(store)]
    command += ["report", "--since", "24h", "--format", "json", *words]

    def shell() -> None:
        subprocess.run(command, capture_output=True, check=True)

    def cold() -> None:
        _forget(store)

    from opd.store.queries import ReportQuery, open_reader

    with open_reader(store) as reader:

        def warm() -> None:
            reader.report(ReportQuery(since_ns=time.time_ns() - DAY_NS, **asked))

        values = {
            "cold": _times(shell, context.repeat(5, 2), before=cold),
            "shell": _times(shell, context.repeat(7, 2)),
            "warm": _times(warm, context.repeat(9, 2)),
        }
    for what, times in values.items():
        context.median(f"history.{name}.{what}", times, "ms")
    found = {figure.key: figure.value for figure in context.findings.figures}
    cells = [found[f"history.{name}.{what}"] for what in values]
    return [name, *("-" if cell is None else f"{cell:.0f}" for cell in cells)]


def _times(
    call: Callable[[], None], count: int, *, before: Callable[[], None] | None = None
) -> list[float]:
    times = []
    for _ in range(count):
        if before is not None:
            before()
        began = time.monotonic()
        call()
        times.append(1e3 * (time.monotonic() - began))
    return times


def _forget(store: Path) -> None:
    """Drop the store's files from the page cache, and nobody else's."""
    for name in store_files(store):
        file = os.open(store / name, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


SECTION = Section(
    "history", "questions about a varied day: by unit, per hour, filtered", run, by_default=False
)

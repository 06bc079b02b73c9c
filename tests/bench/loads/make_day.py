"""Fills a store with a day: real windows of this machine, over and over, until now.

usage: make_day.py STORE HOURS [SECONDS_SAMPLED]

Samples the machine under the mixed load for a minute at 99 Hz and appends
those windows with the times of the last HOURS, each with a little less or more
than the one before. Prints windows, samples and seconds.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from array import array
from pathlib import Path

from msgspec import structs

from opd.events import parse_events, select_cpus
from opd.sampling.kernel import boot_id, kernel_build_id
from opd.sampling.live import LiveSampling, this_host
from opd.sampling.window import RunInfo, Window
from opd.service.refusals import explain_open_failure
from opd.store.writer import StoreWriter
from opd.symbols.resolver import Resolver

WINDOW_S = 10
NS = 1_000_000_000


def main() -> None:
    """Sample, then write."""
    store, hours = Path(sys.argv[1]), float(sys.argv[2])
    sampled = float(sys.argv[3]) if len(sys.argv) > 3 else 60.0
    began = time.monotonic()
    sampling = LiveSampling(
        parse_events(("cpu-clock:99hz",), idle="exclude"),
        select_cpus(""),
        callchain=True,
        separate_thread=False,
        separate_cpu=False,
        ring_bytes=512 << 10,
        explain=explain_open_failure,
    )
    load = subprocess.Popen([sys.executable, Path(__file__).parent / "mixed.py", str(sampled)])
    sampling.start()
    windows, images = [], []
    for _ in range(max(1, int(sampled / WINDOW_S))):
        time.sleep(WINDOW_S)
        window = sampling.cut(flush=True)
        if window is not None:
            windows.append(window)
        images += sampling.take_images()
    load.wait()
    written = _write(store, hours, sampling, windows, images)
    sampling.close()
    print(*written, f"{time.monotonic() - began:.1f}")


def _write(store, hours, sampling, windows, images):
    host, release = this_host()
    count = int(hours * 3600 / WINDOW_S)
    start = time.time_ns() - count * WINDOW_S * NS
    run = RunInfo(
        run=os.urandom(16).hex(),
        boot=boot_id(),
        kind="live",
        session="live",
        origin="",
        kernel_release=release,
        kernel_build_id=kernel_build_id(),
        host=host,
        cpus=os.cpu_count() or 1,
        started_ns=start,
        events=sampling.events,
    )
    chance = random.Random(1)
    store.mkdir(parents=True, exist_ok=True)
    writer = StoreWriter(store, Resolver(run), exclusive=True)
    samples = 0
    try:
        writer.open_run(run)
        writer.add_images(images)
        for number in range(count):
            at = start + number * WINDOW_S * NS
            window = _vary(windows[number % len(windows)], chance)
            moved = structs.replace(window, sequence=number, start_ns=at, end_ns=at + WINDOW_S * NS)
            samples += writer.append(moved).samples
    finally:
        writer.close()
    return count, samples


def _vary(window: Window, chance: random.Random) -> Window:
    """Give the window with other numbers of hits: no two minutes are alike."""
    factor = chance.uniform(0.5, 1.5)
    hits, weights = array("Q", window.row_hits), array("Q", window.row_weight)
    for i, count in enumerate(hits):
        more = max(1, round(count * factor * chance.uniform(0.5, 1.5)))
        weights[i] = weights[i] // count * more
        hits[i] = more
    quality = window.quality | {"samples": sum(hits)}
    events = [counts | {"samples": sum(hits)} for counts in window.event_quality]
    return structs.replace(
        window,
        row_hits=hits.tobytes(),
        row_weight=weights.tobytes(),
        quality=quality,
        event_quality=events,
    )


if __name__ == "__main__":
    main()

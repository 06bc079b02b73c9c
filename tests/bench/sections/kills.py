"""Kill -9 at random moments, under load: what is missing, what is there twice, what is unreadable.

A daemon that is killed takes with it the window that it collects, and at most
one that had ended and was on its way to the store. A worker that is killed
loses nothing. Checked in the store's own tables, not by asking opd.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from bench.harness.loads import python_load, running
from bench.harness.opd import Opd
from bench.harness.section import Context, Section

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 20
INTERVAL_S = 1.0
SEED = 20261129
NS = 1e9
WHO = ("daemon", "worker", "both")


@dataclass
class Kill:
    """One kill and what it did."""

    who: str
    after_s: float  # since the daemon was ready
    at: float = 0.0  # wall clock
    back_s: float = 0.0  # until the next window was stored


def run(context: Context) -> None:
    """Kill, start again, and at the end read the store."""
    count = context.choose(KILLS, 6)
    chance = random.Random(SEED)
    account, others = context.account("opd"), context.account("load")
    arguments = ("-e", "cpu-clock:999hz", "--interval", str(INTERVAL_S))
    kills: list[Kill] = []
    with (
        running(others, python_load("mixed.py", "1e9")),
        Opd(account, *arguments, governed=True) as opd,
    ):
        for number in range(count):
            kill = Kill(WHO[number % len(WHO)], chance.uniform(0.2, 4.5) * INTERVAL_S)
            context.progress(f"kill {number + 1} of {count}: {kill.who}")
            _kill(opd, kill)
            kills.append(kill)
        time.sleep(2 * INTERVAL_S)
        opd.ask("dump")
        status = opd.ask("status")
        opd.stop()
        restarts = [line for line in opd.log_lines() if line.get("event", "").startswith("worker")]
        _examine(context, opd.store, kills)
        report = opd.ask_store("report", "--sort", "comm,image,symbol", "--top", "0")
    context.figure("kills.damaged", report.get("damaged", 0), "windows")
    context.figure("kills.exit_status", opd.status, "")
    context.figure("kills.lines_about_worker", len(restarts), "lines of the log")
    context.note(f"the last daemon's quality: {status['quality']}")


def _kill(opd: Opd, kill: Kill) -> None:
    time.sleep(kill.after_s)
    worker = opd.ask("status")["worker"]["pid"] if kill.who != "daemon" else 0
    kill.at = time.time()
    if worker:
        os.kill(worker, signal.SIGKILL)
    if kill.who != "worker":
        os.kill(opd.pid, signal.SIGKILL)
        assert opd.process is not None
        opd.process.wait()
        opd.process = None
        opd.start()
    # Every kill is one of its own: it is over when a window is stored again.
    opd.ask("dump")
    kill.back_s = time.time() - kill.at


def _examine(context: Context, store: Path, kills: list[Kill]) -> None:
    database = store / "opd.db"
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    runs = connection.execute("SELECT id, run, started_ns FROM runs ORDER BY started_ns").fetchall()
    windows = connection.execute(
        "SELECT run, sequence, start_ns, end_ns, samples FROM windows ORDER BY run, sequence"
    ).fetchall()
    integrity = connection.execute("PRAGMA integrity_check").fetchone()[0]
    connection.close()
    gaps = twice = overlapping = 0
    by_run: dict[int, list[tuple[int, int, int]]] = {row[0]: [] for row in runs}
    for number, sequence, start, end, _ in windows:
        by_run[number].append((sequence, start, end))
    for found in by_run.values():
        sequences = [sequence for sequence, _, _ in found]
        twice += len(sequences) - len(set(sequences))
        gaps += (max(sequences) + 1 - len(set(sequences))) if sequences else 0
        overlapping += sum(later[1] < earlier[2] for earlier, later in pairwise(found))
    rows, worst, lost_s = [], 0, []
    for kill in kills:
        before = [run for run in runs if run[2] / NS <= kill.at]
        found = by_run[before[-1][0]] if before else []
        ended = [end / NS for _, _, end in found if end / NS <= kill.at + 5 * INTERVAL_S]
        if kill.who == "worker":
            unstored, whole = 0.0, 0
        else:
            # Without any window the run began when it said it did.
            last = max(ended) if ended else before[-1][2] / NS
            unstored = kill.at - last
            whole = max(0, int(unstored / INTERVAL_S))
            lost_s.append(unstored)
            worst = max(worst, whole)
        rows.append(
            [
                kill.who,
                f"{kill.after_s:.2f}",
                str(len(found)),
                "-" if kill.who == "worker" else f"{unstored:.2f}",
                str(whole),
                f"{kill.back_s:.2f}",
            ]
        )
    context.table(
        f"Kills at random moments (seed {SEED}), windows of {INTERVAL_S:g} s, 999 Hz, mixed load",
        [
            "killed",
            "after s",
            "windows of the run",
            "not stored s",
            "whole windows lost",
            "stored again s",
        ],
        rows,
    )
    context.figure("kills.count", len(kills), "kills")
    context.figure("kills.worst_windows_lost", worst, "windows", note="that had ended, of one kill")
    context.median("kills.stored_again", [kill.back_s for kill in kills], "s", note="wall")
    context.median("kills.not_stored", lost_s, "s", note="of a killed daemon, with the open window")
    context.figure("kills.gaps", gaps, "windows", note="missing inside a run")
    context.figure("kills.twice", twice, "windows")
    context.figure("kills.overlapping", overlapping, "windows")
    context.figure("kills.windows", len(windows), "windows")
    context.figure("kills.integrity", float(integrity == "ok"), "", note=f"SQLite: {integrity}")
    unreadable = [path.name for path in store.rglob("*.parquet") if not _is_parquet(path)]
    context.figure("kills.unreadable_files", len(unreadable), "files", note=" ".join(unreadable))
    leftover = [path.name for path in store.rglob("*") if path.name.startswith(".")]
    context.figure("kills.temporary_files", len(leftover), "files", note=" ".join(leftover))


def _is_parquet(path: Path) -> bool:
    data = path.read_bytes()
    return data[:4] == b"PAR1" and data[-4:] == b"PAR1"


SECTION = Section("kills", "kill -9 of daemon, worker and both at random moments, under load", run)

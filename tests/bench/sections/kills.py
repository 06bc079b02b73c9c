"""Kill -9 at random moments, under load: what is missing, what is there twice, what is unreadable.

A daemon that is killed takes with it the window that it collects, and those
that had ended and were on their way to the store: at most one, where the
worker keeps up (how many waited is asked just before). A worker that is
killed loses nothing. Checked in the store's own tables, not by asking opd.
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
SEED = 20261129
NS = 1e9
WHO = ("daemon", "worker", "both")


@dataclass
class Kill:
    """One kill and what it did."""

    who: str
    after_s: float  # since the daemon was ready
    at: float = 0.0  # wall clock
    waiting: int = 0  # windows that had ended and were not stored, just before
    back_s: float = 0.0  # until the next window was stored


def run(context: Context) -> None:
    """Kill, start again, and at the end read the store."""
    count = context.choose(KILLS, 6)
    interval_s = context.choose(10.0, 1.0)  # usually that of opd as it ships
    chance = random.Random(SEED)
    account, others = context.account("opd"), context.account("load")
    arguments = ("-e", "cpu-clock:999hz", "--interval", str(interval_s))
    kills: list[Kill] = []
    with (
        running(others, python_load("mixed.py", "1e9")),
        Opd(account, *arguments, governed=True) as opd,
    ):
        for number in range(count):
            kill = Kill(WHO[number % len(WHO)], chance.uniform(0.1, 2.0) * interval_s)
            context.progress(f"kill {number + 1} of {count}: {kill.who}")
            _kill(opd, kill)
            kills.append(kill)
        time.sleep(2 * interval_s)
        opd.ask("dump")
        status = opd.ask("status")
        opd.stop()
        restarts = [line for line in opd.log_lines() if line.get("event", "").startswith("worker")]
        _examine(context, opd.store, kills, interval_s)
        report = opd.ask_store("report", "--sort", "comm,image,symbol", "--top", "0")
    context.figure("kills.damaged", report.get("damaged", 0), "windows")
    context.figure("kills.exit_status", opd.status, "")
    context.figure("kills.lines_about_worker", len(restarts), "lines of the log")
    context.note(f"the last daemon's quality: {status['quality']}")


def _kill(opd: Opd, kill: Kill) -> None:
    time.sleep(kill.after_s)
    worker = opd.ask("status")["worker"]
    kill.waiting, kill.at = int(worker["waiting"]), time.time()
    if kill.who != "daemon":
        os.kill(worker["pid"], signal.SIGKILL)
    if kill.who != "worker":
        os.kill(opd.pid, signal.SIGKILL)
        assert opd.process is not None
        opd.process.wait()
        opd.process = None
        opd.start()
    # Every kill is one of its own: it is over when a window is stored again.
    opd.ask("dump")
    kill.back_s = time.time() - kill.at


def _examine(context: Context, store: Path, kills: list[Kill], interval_s: float) -> None:
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
    rows, worst, beyond, lost_s = [], 0, 0, []
    for kill in kills:
        before = [run for run in runs if run[2] / NS <= kill.at]
        found = by_run[before[-1][0]] if before else []
        ended = [end / NS for _, _, end in found if end / NS <= kill.at + 5 * interval_s]
        if kill.who == "worker":
            unstored, whole = 0.0, 0
        else:
            # Without any window the run began when it said it did.
            last = max(ended) if ended else before[-1][2] / NS
            unstored = kill.at - last
            whole = max(0, int(unstored / interval_s))
            lost_s.append(unstored)
            worst = max(worst, whole)
            beyond = max(beyond, whole - max(kill.waiting, 1))
        rows.append(
            [
                kill.who,
                f"{kill.after_s:.2f}",
                str(len(found)),
                str(kill.waiting),
                "-" if kill.who == "worker" else f"{unstored:.2f}",
                str(whole),
                f"{kill.back_s:.2f}",
            ]
        )
    context.table(
        f"Kills at random moments (seed {SEED}), windows of {interval_s:g} s, 999 Hz, mixed load",
        [
            "killed",
            "after s",
            "windows of the run",
            "waiting",
            "not stored s",
            "whole windows lost",
            "stored again s",
        ],
        rows,
    )
    context.figure("kills.count", len(kills), "kills")
    context.figure("kills.worst_windows_lost", worst, "windows", note="that had ended, of one kill")
    context.figure("kills.beyond_waiting", max(beyond, 0), "windows", note="lost beyond those")
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

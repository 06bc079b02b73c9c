"""A 64 MB file system as the store, full for a while: what was lost, and what opd said."""

from __future__ import annotations

import collections
import contextlib
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness.loads import python_load, running
from bench.harness.opd import Opd
from bench.harness.section import Context, Section
from bench.harness.told import losses
from bench.harness.watch import MemoryWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = "64m"
RATE_HZ, INTERVAL_S = 999, 5


def run(context: Context) -> None:
    """Some windows with room, some without, some with room again."""
    seconds = context.seconds(300, 20)
    account, others = context.account("opd"), context.account("load")
    arguments = ("-e", f"cpu-clock:{RATE_HZ}hz", "--interval", str(INTERVAL_S))
    with (
        _file_system(context) as folder,
        running(others, python_load("mixed.py", "1e9")),
        Opd(account, *arguments, store=folder / "store", governed=True) as opd,
        MemoryWatch(account) as watch,
    ):
        time.sleep(3 * INTERVAL_S)
        opd.ask("dump")
        before = opd.ask("status")
        _fill(folder / "ballast")
        context.note(f"full with {before['samples']} samples taken; for {seconds:.0f} s")
        answers = _while_full(context, opd, seconds)
        during = opd.ask("status")
        (folder / "ballast").unlink()
        recovered = _recover(opd)
        time.sleep(2 * INTERVAL_S)
        opd.ask("dump")
        after = opd.ask("status")
        report = opd.ask("report", "--sort", "comm", "--top", "0", "--since", "1h")
        lines = [line for line in opd.log_lines() if line.get("level") not in ("info", "debug")]
        opd.stop()
        status = opd.status
        stored = opd.ask_store("report", "--sort", "comm", "--top", "0")
    losses(context, "fullsize", after)
    watch.figures(context, "fullsize")
    taken = int(after["samples"])
    lost = sum(after["quality"]["lost"].values())
    share = 100 * lost / max(taken + lost, 1)
    context.figure("fullsize.lost_share", share, "%", "of all samples")
    context.figure("fullsize.recovery", recovered, "s", "from room to the first dump that worked")
    context.figure("fullsize.exit_status", status, "")
    context.figure("fullsize.damaged", stored.get("damaged", 0), "windows")
    unaccounted = taken - report["total"] - lost
    context.figure("fullsize.unaccounted", unaccounted, "samples", "taken, not stored, not lost")
    context.figure("fullsize.answered", answers["ok"], "answers", f"{answers['failed']} failed")
    waiting = int(during["worker"]["waiting"])
    context.figure("fullsize.waiting", waiting, "windows", "kept in memory at the end of it")
    context.note(f"status while full: problem {during.get('problem', '')!r}, {during['worker']}")
    for text, count in collections.Counter(map(_said, lines)).most_common(8):
        context.note(f"said {count} times: {text}")
    for problem in answers["problems"]:
        context.note(f"a client was told: {problem}")


@contextlib.contextmanager
def _file_system(context: Context) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="opd-bench-full-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0750", "opd-bench", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        folder.rmdir()
        raise RuntimeError(f"a file system of its own cannot be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        unmounted = subprocess.run(["umount", str(folder)], check=False, capture_output=True)
        if unmounted.returncode:
            context.note(f"{folder} is still mounted: {unmounted.stderr.decode().strip()}")
        else:
            folder.rmdir()


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            with contextlib.suppress(OSError):
                while True:
                    os.write(file.fileno(), b"\xff" * size)


def _while_full(context: Context, opd: Opd, seconds: float) -> dict[str, Any]:
    """Ask now and then; a full disk must not keep it from answering."""
    answers: dict[str, Any] = {"ok": 0, "failed": 0, "problems": []}
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        context.progress(f"full for {left:.0f} s more")
        for asked in (("status",), ("report", "--top", "5")):
            done = opd.run_opctl(*asked)
            if done.returncode == 0:
                answers["ok"] += 1
                continue
            answers["failed"] += 1
            problem = f"{asked[0]}: {done.stderr.decode().strip()}"
            if len(answers["problems"]) < 5 and problem not in answers["problems"]:
                answers["problems"].append(problem)
        time.sleep(min(INTERVAL_S, max(0.0, until - time.monotonic())))
    return answers


def _recover(opd: Opd) -> float:
    began = time.monotonic()
    while opd.run_opctl("dump").returncode:
        if time.monotonic() - began > 120:
            raise RuntimeError(f"it did not recover: {opd.log_path.read_text()[-1000:]}")
        time.sleep(0.2)
    return time.monotonic() - began


def _said(line: dict[str, Any]) -> str:
    kept = {key: line[key] for key in ("event", "detail", "error", "reason", "text") if key in line}
    return str(kept)[:300]


SECTION = Section(
    "fullsize",
    "a 64 MB file system as the store, full for minutes: what is lost and said",
    run,
    by_default=False,
)

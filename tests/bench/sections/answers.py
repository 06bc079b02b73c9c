"""How long an answer takes: top-20 over a day warm and cold, status, and the query child's memory.

Wall times are of processes that run before all others (SCHED_FIFO): on a busy
machine the wait for a CPU would be most of them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness.accounting import process_name, pss_bytes
from bench.harness.loads import python_load
from bench.harness.opd import BIN, Opd, store_files
from bench.harness.section import Context, Section

if TYPE_CHECKING:
    from bench.harness.accounting import Account

AT_ONCE = ["chrt", "--fifo", "1"]
DAY = ("report", "--top", "20", "--since", "24h", "--format", "json")
SQL = "SELECT image, sum(samples) AS n FROM samples GROUP BY image ORDER BY n DESC LIMIT 20"


def run(context: Context) -> None:
    """Make a day, ask for it without a daemon, then with one."""
    hours = context.choose(24.0, 1.0)
    with tempfile.TemporaryDirectory(prefix="opd-bench-day-") as folder:
        store = Path(folder) / "store"
        context.progress(f"making {hours:g} h of history")
        command = python_load("make_day.py", str(store), str(hours), context.choose("60", "10"))
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        windows, samples, took = done.stdout.split()
        size = sum(store_files(store).values())
        context.note(f"{hours:g} h: {windows} windows, {samples} samples, made in {took} s")
        context.figure("answers.day.hours", hours, "h")
        context.figure("answers.day.bytes_a_sample", size / int(samples), "B/sample")
        context.figure("answers.day.size", size / 1e6, "MB")
        _offline(context, store)
        account = context.account("opd")
        account.prefix = AT_ONCE
        with Opd(account, "-e", "cpu-clock:99hz", store=store) as opd:
            _live(context, opd)
            _sql(context, opd, account)


def _key(context: Context, name: str) -> str:
    """Only a whole day answers for the budget."""
    return f"answers.opd.{'hour' if context.quick else 'day'}.{name}"


def _timed(command: list[str]) -> tuple[float, float, subprocess.CompletedProcess[bytes]]:
    """Wall and CPU in ms of one command from the shell."""
    began, before = time.monotonic(), os.times()
    done = subprocess.run([*AT_ONCE, *command], capture_output=True, check=False)
    wall, after = time.monotonic() - began, os.times()
    cpu = after.children_user + after.children_system - before.children_user
    return 1e3 * wall, 1e3 * (cpu - before.children_system), done


def _repeat(context: Context, key: str, command: list[str], count: int) -> None:
    walls, cpus = [], []
    for _ in range(count):
        wall, cpu, done = _timed(command)
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stderr.decode()}")
        walls.append(wall)
        cpus.append(cpu)
    context.median(key, walls, "ms", note="from the shell")
    context.median(f"{key}_cpu", cpus, "ms CPU", note="of opctl")


def _offline(context: Context, store: Path) -> None:
    command = [str(BIN / "opctl"), "--session-dir", str(store), *DAY]
    walls = []
    for _ in range(context.repeat(5, 2)):
        _forget(store)
        walls.append(_timed(command)[0])
    context.median(_key(context, "cold"), walls, "ms", note="no daemon, the store not in memory")
    _repeat(context, _key(context, "offline_warm"), command, context.repeat(7, 2))


def _forget(store: Path) -> None:
    """Drop the store's files from the page cache, and nobody else's."""
    for name in store_files(store):
        file = os.open(store / name, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def _live(context: Context, opd: Opd) -> None:
    base = [str(BIN / "opctl"), "--endpoint", opd.endpoint]
    time.sleep(2)
    _repeat(context, _key(context, "shell_warm"), [*base, *DAY], context.repeat(7, 2))
    _repeat(context, "answers.opd.status", [*base, "status"], context.repeat(15, 3))
    # The answer alone: a client that is connected.
    asked = [sys.executable, "-c", _CLIENT, opd.endpoint, str(context.repeat(15, 3))]
    done = subprocess.run([*AT_ONCE, *asked], capture_output=True, text=True, check=True)
    values = [float(word) for word in done.stdout.split()]
    context.median(_key(context, "warm"), values, "ms", note="a connected client's request")
    context.note(
        f"first of those answers {values[0]:.1f} ms, median {statistics.median(values):.1f}"
    )


_CLIENT = """
import sys, time, msgpack, zmq
socket = zmq.Context().socket(zmq.REQ)
socket.connect(sys.argv[1])
params = {"sort": "comm,image,symbol", "top": 20, "since": "24h"}
for i in range(int(sys.argv[2])):
    began = time.monotonic()
    request = {"jsonrpc": "2.0", "id": i, "method": "report", "params": params}
    socket.send(msgpack.packb(request))
    answer = msgpack.unpackb(socket.recv())
    print(1e3 * (time.monotonic() - began))
    if "error" in answer or not answer["result"]["total"]:
        sys.exit(f"no answer: {answer}")
"""


def _sql(context: Context, opd: Opd, account: Account) -> None:
    done = opd.run_opctl("sql", SQL)
    if done.returncode:
        context.note(f"opctl sql: {done.stderr.decode().strip().splitlines()[0]}")
        return
    children = {pid: process_name(pid) for pid in account.pids()}
    known = {opd.pid, opd.ask("status")["worker"]["pid"]}
    sizes = {name: pss_bytes(pid) for pid, name in children.items() if pid not in known}
    if sizes:
        context.figure(
            "answers.query_child.memory", max(sizes.values()) / 1e6, "MB", note=str(sizes)
        )
    base = [str(BIN / "opctl"), "--endpoint", opd.endpoint]
    _repeat(context, "answers.opd.sql", [*base, "sql", SQL], context.repeat(5, 2))


SECTION = Section("answers", "top-20 over a day warm and cold, status, sql: wall times", run)

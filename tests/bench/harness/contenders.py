"""Who is compared: each samples the whole machine between ``start`` and ``stop``."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bench.harness.accounting import memory_of, process_name
from bench.harness.bus import PrivateBus, missing_parts
from bench.harness.opd import Opd, ask_store

if TYPE_CHECKING:
    from bench.harness.accounting import Account

STOP_TIMEOUT_S = 120.0
SETTLE_S = 0.7  # those that do not say when they are ready get this long


@dataclass
class Taken:
    """What a contender took; None where it does not tell."""

    samples: int
    bytes: int
    lost: int | None = None
    image_named: float | None = None  # share of samples, 0 to 1
    leaf_named: float | None = None  # a symbol, not a range or an address
    answer_s: float | None = None  # from the recording to a table on the screen, wall
    answer_cpu_s: float | None = None
    parts: dict[str, float] = field(default_factory=dict)  # CPU seconds by part of opd


class Contender:
    """One that samples. A new object for each run; ``stop`` leaves nothing behind but files."""

    name = ""
    fixed_rate: int | None = None  # Hz, of one that cannot be told

    def __init__(self, account: Account, rate: int) -> None:
        self.account = account
        self.rate = rate
        self.folder = Path(tempfile.mkdtemp(prefix=f"opd-bench-{self.name}-"))

    @classmethod
    def absent(cls) -> str:
        """Say why it cannot take part here; empty when it can."""
        return ""

    def start(self) -> None:
        """Begin to sample; returns when it does."""
        raise NotImplementedError

    def stop(self) -> None:
        """End, and end all children."""
        raise NotImplementedError

    def examine(self) -> Taken:
        """Look at what was taken, outside of the account."""
        raise NotImplementedError

    def memory(self) -> dict[str, int]:
        """Give its memory now."""
        return memory_of(self.account)

    def close(self) -> None:
        """End what still runs, as after a failure, and remove its files."""
        self.account.end_all()
        shutil.rmtree(self.folder, ignore_errors=True)


class OpdContender(Contender):
    """opd as it is: names and storage included."""

    name = "opd"
    arguments: tuple[str, ...] = ()
    _parts: dict[str, float]

    def start(self) -> None:
        """Begin to sample."""
        event = ("-e", f"cpu-clock:{self.rate}hz")
        self._opd = Opd(self.account, *event, *self.arguments, store=self.folder / "store")
        self._opd.start()

    def stop(self) -> None:
        """End."""
        # Its last moments count too: look on until it is gone.
        with PartsWatch(self._opd.pid, self.account) as watch:
            self._opd.stop()
        self._parts = watch.parts()
        if self._opd.status:
            said = self._opd.log_path.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"opd ended with status {self._opd.status}: {said}")

    def examine(self) -> Taken:
        """Look at what was taken."""
        began, cpu = time.monotonic(), os.times()
        ask_store(self.folder / "store", "report", "--top", "20")
        took, used = time.monotonic() - began, os.times()
        keys = "comm,image,symbol,mode"
        answer = ask_store(self.folder / "store", "report", "--sort", keys, "--top", "0")
        rows, total = answer["rows"], max(answer["total"], 1)
        return Taken(
            samples=answer["total"],
            bytes=sum(self._opd.store_files().values()),
            lost=sum(answer["quality"]["lost"].values()),
            image_named=sum(r["samples"] for r in rows if r["image"] != "[unknown]") / total,
            leaf_named=sum(r["samples"] for r in rows if _is_name(r["symbol"])) / total,
            answer_s=took,
            answer_cpu_s=_children_cpu(used) - _children_cpu(cpu),
            parts=self._parts,
        )

    def close(self) -> None:
        """Remove its files."""
        with contextlib.suppress(AttributeError):
            self._opd.__exit__()
        super().close()


def _is_name(symbol: str) -> bool:
    return symbol != "[unknown]" and "!0x" not in symbol


def _children_cpu(times: os.times_result) -> float:
    return times.children_user + times.children_system


class PartsWatch:
    """CPU of opd by part: the drain thread, the daemon's rest, each other process.

    Looks every few milliseconds, because a thread's account goes with it.
    """

    _EVERY_S = 0.005

    def __init__(self, daemon: int, account: Account) -> None:
        self._daemon = daemon
        self._account = account
        self._seen: dict[tuple[int, str], tuple[str, float]] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def parts(self) -> dict[str, float]:
        """Give CPU seconds by part."""
        sums: dict[str, float] = {}
        for name, seconds in self._seen.values():
            sums[name] = sums.get(name, 0.0) + seconds
        return sums

    def _watch(self) -> None:
        while not self._end.wait(self._EVERY_S):
            self._look()

    def _look(self) -> None:
        for pid in self._account.pids():
            for task in Path(f"/proc/{pid}/task").glob("*"):
                try:
                    seconds = int((task / "schedstat").read_text().split()[0]) / 1e9
                    thread = (task / "comm").read_text().strip()
                except (OSError, IndexError):
                    continue  # it has just ended
                name = process_name(pid)
                if pid == self._daemon:
                    name = "drain" if thread == "opd-drain" else "daemon"
                self._seen[pid, task.name] = (name, seconds)


class Perf(Contender):
    """perf record, all CPUs, call chains by frame pointer; perf report answers."""

    name = "perf"
    arguments: tuple[str, ...] = ("-g",)

    @classmethod
    def absent(cls) -> str:
        """Say why it cannot take part here."""
        return "" if shutil.which("perf") else "perf is not installed"

    def start(self) -> None:
        """Begin to sample."""
        self._output = self.folder / "perf.data"
        command = ["perf", "record", "-a", *self.arguments, "-F", str(self.rate)]
        command += ["-e", "cpu-clock:I", "-o", str(self._output)]
        self._process = self.account.start(command, stderr=subprocess.PIPE)
        time.sleep(SETTLE_S)

    def stop(self) -> None:
        """End."""
        self._process.send_signal(signal.SIGINT)
        _, err = self._process.communicate(timeout=STOP_TIMEOUT_S)
        self._text = err.decode(errors="replace")

    def examine(self) -> Taken:
        """Look at what was taken."""
        found = re.search(r"\((\d+) samples\)", self._text)
        if found is None:
            raise RuntimeError(f"perf record says: {self._text}")
        report = ["perf", "report", "-i", str(self._output), "--stdio", "--no-inline", "-g", "none"]
        began, cpu = time.monotonic(), os.times()
        subprocess.run(report, capture_output=True, check=True)
        took, used = time.monotonic() - began, os.times()
        columns = ["--sort", "dso,sym", "-F", "sample,dso,sym", "-t", "|"]
        done = subprocess.run([*report, *columns], capture_output=True, check=True)
        total = image = leaf = 0
        for line in done.stdout.decode(errors="replace").splitlines():
            cells = [cell.strip() for cell in line.split("|")]
            if len(cells) < 3 or not cells[0].isdigit():
                continue
            samples = int(cells[0])
            total += samples
            image += samples * (cells[1] != "[unknown]")
            leaf += samples * (re.search(r"0x[0-9a-f]{6,}|\[unknown\]", cells[2]) is None)
        stats = ["perf", "report", "-i", str(self._output), "--stats", "--stdio"]
        text = subprocess.run(stats, capture_output=True, check=True).stdout.decode()
        lost = [int(n) for n in re.findall(r"LOST(?:_SAMPLES)? events:\s+(\d+)", text)]
        return Taken(
            samples=int(found[1]),
            bytes=self._output.stat().st_size,
            lost=sum(lost),
            image_named=image / total if total else None,
            leaf_named=leaf / total if total else None,
            answer_s=took,
            answer_cpu_s=_children_cpu(used) - _children_cpu(cpu),
        )


class Sysprof(Contender):
    """sysprof-cli, its perf source alone, with a message bus and a sysprofd of its own."""

    name = "sysprof"
    fixed_rate = 1000

    @classmethod
    def absent(cls) -> str:
        """Say why it cannot take part here."""
        if shutil.which("sysprof-cli") is None:
            return "sysprof-cli is not installed"
        return missing_parts()

    def start(self) -> None:
        """Begin to sample."""
        self._output = self.folder / "out.syscap"
        self._bus = PrivateBus(self.account, self.folder)
        self._bus.start()
        off = [f"--no-{part}" for part in ("battery", "cpu", "disk", "memory", "network")]
        command = ["sysprof-cli", *off, "-f", str(self._output)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = self.account.start(command, env=os.environ | self._bus.environment, **quiet)
        time.sleep(SETTLE_S)

    def stop(self) -> None:
        """End."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(STOP_TIMEOUT_S)
        self._bus.stop()

    def examine(self) -> Taken:
        """Look at what was taken."""
        data = self._output.read_bytes()
        return Taken(samples=_count_frames(data, kind=2), bytes=len(data))


def _count_frames(data: bytes, *, kind: int) -> int:
    """Count a capture's frames of one kind: each begins with its length, and has a kind."""
    head = struct.Struct("<HhiqB")
    offset, count = 256, 0
    while offset + head.size <= len(data):
        length, _, _, _, found = head.unpack_from(data, offset)
        if length < head.size:
            raise RuntimeError(f"a frame of {length} bytes at {offset}")
        count += found == kind
        offset += length
    return count


class Bpftrace(Contender):
    """bpftrace counting stacks in the kernel; it prints them with names when it ends."""

    name = "bpftrace"

    @classmethod
    def absent(cls) -> str:
        """Say why it cannot take part here."""
        return "" if shutil.which("bpftrace") else "bpftrace is not installed"

    def start(self) -> None:
        """Begin to sample."""
        program = f"profile:hz:{self.rate} {{ @[kstack, ustack, comm, pid] = count(); }}"
        self._output, self._errors = self.folder / "out", self.folder / "errors"
        environment = os.environ | {"BPFTRACE_CACHE_USER_SYMBOLS": "1"}
        with self._output.open("wb") as out, self._errors.open("wb") as err:
            self._process = self.account.start(
                ["bpftrace", "-e", program], stdout=out, stderr=err, env=environment
            )
        until = time.monotonic() + 30
        while b"Attaching" not in self._output.read_bytes() and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(SETTLE_S)

    def stop(self) -> None:
        """End."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise RuntimeError(f"bpftrace did not end in {STOP_TIMEOUT_S:g} s") from None

    def examine(self) -> Taken:
        """Look at what was taken."""
        text = self._output.read_text(errors="replace")
        counts = [int(n) for n in re.findall(r"^.*, \d+\]: (\d+)$", text, re.MULTILINE)]
        # A stack that could not be kept: its samples are there, without frames.
        failed = self._errors.read_text(errors="replace").count("failed to look up stack")
        return Taken(samples=sum(counts), bytes=len(text), lost=failed)


KNOWN: dict[str, type[Contender]] = {
    contender.name: contender for contender in (OpdContender, Perf, Sysprof, Bpftrace)
}


def present(asked: list[str] | None) -> tuple[list[type[Contender]], list[str]]:
    """Give who can take part here, and a line for each who cannot."""
    chosen, lines = [], []
    for name in asked or KNOWN:
        if name not in KNOWN:
            raise ValueError(f"no contender {name!r}; there are: {' '.join(KNOWN)}")
        reason = KNOWN[name].absent()
        if reason:
            lines.append(f"absent: {name}: {reason}")
        else:
            chosen.append(KNOWN[name])
    return chosen, lines


def describe(contender: type[Contender]) -> dict[str, Any]:
    """Give a contender's version for the report."""
    programs = {"perf": "perf", "sysprof": "sysprof-cli", "bpftrace": "bpftrace"}
    if contender.name not in programs:
        return {}
    command = [programs[contender.name], "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {"version": (done.stdout or done.stderr).strip().splitlines()[0]}

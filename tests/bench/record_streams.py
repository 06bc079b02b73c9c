"""Records the streams and rings that the sections ``hash`` and ``scale`` are fed with.

    .venv/bin/python tests/bench/record_streams.py [NAME…]

Run as root; without names it records them all, into ``tests/data/streams`` (see
``harness/streams.py`` for the format) and ``tests/data/rings`` (``harness/rings.py``).
Each takes some twenty seconds. opd's own rings and parser do it: ``record_rings.c``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.harness import rings, streams
from bench.harness.loads import builder
from bench.harness.native import ROOT, built

if TYPE_CHECKING:
    from collections.abc import Iterator

HIT = struct.Struct("<IIQ")
FORKED = 0xFFFFFFFF  # instead of a CPU: a process, and its parent instead of an address
_NETWORK = """
import os, socket
listener = socket.create_server(("127.0.0.1", 0))
pid = os.fork()
if pid == 0:
    with socket.create_connection(listener.getsockname()) as end:
        while True:
            end.sendall(b"x" * 1000)
            end.recv(100)
end, _ = listener.accept()
while end.recv(65536):
    end.send(b"y" * 64)
"""
_COMPILE = (
    "while :; do for f in native/src/*.c; do"
    " cc -O2 -D_GNU_SOURCE -Inative/include -Inative/src -c $f -o /dev/null & "
    "cc -O0 -D_GNU_SOURCE -Inative/include -Inative/src -c $f -o /dev/null; wait; done; done"
)


@dataclass(frozen=True)
class Load:
    """What runs while a stream is recorded: shell commands, side by side."""

    commands: tuple[str, ...]
    rate: int = 1993
    seconds: float = 20
    idle: bool = False  # hits of the idle task, and no others


LOADS = {
    "compile": Load((_COMPILE,), rate=3989),
    "idle": Load((), idle=True),
    "network": Load((f"exec {sys.executable} -c '{_NETWORK}'",)),
    "faults": Load(("exec {faults} 64", "exec {faults} 8")),
    "syscalls": Load(
        (
            "while :; do dd if=/dev/zero of=/dev/null bs=512 count=2000000 2>/dev/null; done",
            "exec cat /dev/zero >/dev/null",
        ),
        rate=3989,
    ),
    "find": Load(
        (
            "while :; do find / -xdev -newer /etc/passwd >/dev/null; done",
            "while :; do ls -lR /usr >/dev/null; done",
        )
    ),
}
# Rate and seconds: files stay below 60 KB.
RINGS = {"mixed-99hz": (99, 8.0), "mixed-997hz": (997, 1.5)}


def kernel_text() -> tuple[int, int]:
    """Give the addresses of ``_stext`` and ``_etext``."""
    found = {}
    with Path("/proc/kallsyms").open(encoding="ascii") as lines:
        for line in lines:
            address, _, name = line.split()[:3]
            if name in ("_stext", "_etext"):
                found[name] = int(address, 16)
    if not found.get("_stext"):
        raise SystemExit("/proc/kallsyms tells no addresses: run as root")
    return found["_stext"], found["_etext"]


@contextlib.contextmanager
def running(commands: tuple[str, ...]) -> Iterator[set[int]]:
    """Run shell commands, each in a process group that is ended at the end; their pids."""
    started = [
        subprocess.Popen(["/bin/sh", "-c", command], cwd=ROOT, start_new_session=True)
        for command in commands
    ]
    try:
        yield {process.pid for process in started}
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def record(
    recorder: Path, what: str, rate: int, seconds: float, commands: tuple[str, ...]
) -> tuple[bytes, set[int]]:
    """Record while commands run that start once the rings are open; the file, and their pids."""
    with tempfile.TemporaryDirectory(prefix="opd-bench-") as folder:
        out = Path(folder) / "recording"
        arguments = [str(recorder), what, str(rate), str(seconds), str(out)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            if process.stdout.readline() != "recording\n":
                raise SystemExit(f"record_rings: exit status {process.wait()}")
            with running(commands) as pids:
                print("   ", process.stdout.readline().strip())
        return out.read_bytes(), pids


def stream_of(name: str, load: Load, data: bytes, pids: set[int]) -> streams.Stream:
    """Keep what the load's own processes did in the kernel's own text."""
    start, end = kernel_text()
    hits = list(HIT.iter_unpack(data))
    family = {0} if load.idle else set(pids)
    before = 0
    while len(family) > before:  # a CPU's records may tell of a child before those of its parent
        before = len(family)
        family |= {pid for cpu, pid, parent in hits if cpu == FORKED and parent in family}
    cpus: dict[int, list[int]] = {}
    for cpu, pid, address in hits:
        if cpu != FORKED and pid in family and start <= address < end:
            cpus.setdefault(cpu, []).append(address - start)
    return streams.Stream(name, load.rate, [cpus[cpu] for cpu in sorted(cpus)])


def main(names: list[str]) -> int:
    """Record; 2 for a name that there is not."""
    known = (*LOADS, *RINGS)
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no load {unknown[0]!r}; there are: {' '.join(known)}", file=sys.stderr)
        return 2
    streams.FOLDER.mkdir(parents=True, exist_ok=True)
    rings.FOLDER.mkdir(parents=True, exist_ok=True)
    with built("record_rings") as recorder, builder() as loads:
        faults = str(loads.build("faults.c"))
        for name, load in LOADS.items():
            if names and name not in names:
                continue
            commands = tuple(command.replace("{faults}", faults) for command in load.commands)
            print(name)
            data, pids = record(recorder, "addresses", load.rate, load.seconds, commands)
            stream = stream_of(name, load, data, pids)
            path = streams.FOLDER / f"{name}.stream"
            path.write_bytes(streams.encode(stream))
            distinct = len(stream.slots(0))
            size = path.stat().st_size
            print(f"    {stream.hits} hits, {distinct} addresses, {size} bytes: {path}")
        for name, (rate, seconds) in RINGS.items():
            if not names or name in names:
                print(name)
                _record_rings(recorder, name, rate, seconds)
    return 0


def _record_rings(recorder: Path, name: str, rate: int, seconds: float) -> None:
    mixed = f"exec {sys.executable} tests/bench/loads/mixed.py 1e9"
    data, pids = record(recorder, "rings", rate, seconds, (_COMPILE, mixed))
    data = rings.of_family(data, pids)
    path = rings.FOLDER / f"{name}.rings"
    path.write_bytes(rings.pack(data))
    print(f"    {len(data)} bytes, packed {path.stat().st_size}: {path}")


if __name__ == "__main__":
    began = time.monotonic()
    status = main(sys.argv[1:])
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(status)

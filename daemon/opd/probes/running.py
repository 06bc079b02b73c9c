"""The parent's side of a probe: starts its process, bounds it, takes what it tells.

Used by the daemon's thread for probes, and by opctl without a daemon. The
child dies with the thread that called.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opd import errors
from opd.errors import OpdError, OperationFailedError
from opd.probes.measuring import VoidRunError
from opd.probes.wire import (
    Began,
    Detail,
    Ended,
    FromChild,
    Judged,
    Note,
    Planned,
    Progress,
    Samples,
    Splitter,
    Wrong,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opd.probes.asker import Asker

PLAN_SECONDS = 60.0
# Watching costs the probe cycles: seldom.
_LOOK_SECONDS = 0.5
_GRACE_SECONDS = 1.0
# The interpreter and opd's own modules.
_OWN_BYTES = 128 << 20
_COMPLAINT_MOST = 4096
_PAGE = os.sysconf("SC_PAGESIZE")


class Column(msgspec.Struct):
    """Samples of a metric in order, and of each the repeat."""

    repeats: array[int]
    values: array[float]


class Outcome(msgspec.Struct, kw_only=True):
    """What became of a run: ``samples`` by (arm, metric, worker). ``void`` says why it is none.

    ``verdicts``: the probe's own, by arm.
    """

    started_ns: int
    ended_ns: int = 0
    machine: dict[str, Any] = {}
    samples: dict[tuple[int, str, int], Column] = {}
    notes: dict[int, list[str]] = {}
    details: dict[int, dict[str, Any]] = {}
    verdicts: dict[int, dict[str, Any]] = {}
    void: str = ""


class Limits(msgspec.Struct, kw_only=True, frozen=True):
    """What a run may use: seconds of the clock, bytes of memory (0: as much as there is)."""

    seconds: float
    memory_bytes: int = 0


def plan(probe: str, text: str, *, asker: Asker | None = None) -> Planned:
    """Ask a process of its own what the options come to. Raises what is wrong with them."""
    planned: Planned | None = None
    wrong: OpdError | None = None
    child = _Child({"probe": probe, "text": text}, asker)
    with child:
        until = time.monotonic() + PLAN_SECONDS
        for message in child.messages():
            if isinstance(message, Planned):
                planned = message
            elif isinstance(message, Wrong):
                wrong = error_of(message)
            if time.monotonic() > until:
                child.kill()
    if wrong is not None:
        raise wrong
    if planned is None:
        raise OperationFailedError(f"probe {probe}: {child.how_it_ended()}")
    return planned


def prepare(
    probe: str,
    parameters: list[dict[str, Any]],
    *,
    asker: Asker | None,
    tell: Callable[[str], None],
    cancelled: Callable[[], str],
) -> None:
    """Have what measurements need made ready, in a process of its own. Raises OpdError."""
    wrong: OpdError | None = None
    has_ended = False
    reason = ""
    child = _Child({"probe": probe, "arms": parameters, "prepare": True}, asker)
    with child:
        for message in child.messages():
            if isinstance(message, Progress):
                tell(message.words)
            elif isinstance(message, Wrong):
                wrong = error_of(message)
            elif isinstance(message, Ended):
                has_ended = True
            if not reason and (reason := cancelled()):
                child.kill()
    if wrong is not None:
        raise wrong
    if not has_ended:
        raise OperationFailedError(f"probe {probe}: {reason or child.how_it_ended()}")


def measure(
    probe: str,
    arms: list[dict[str, Any]],
    *,
    limits: Limits,
    asker: Asker | None = None,
    rounds: int = 1,
    seed: int = 0,
    progress: Callable[[float, float], None] | None = None,
    cancelled: Callable[[], str] | None = None,
    began: Callable[[int], None] | None = None,
) -> Outcome:
    """Run the arms in turn in one process; never raises for what happens to it.

    ``cancelled`` gives the reason once the run is to end. ``began``: its pid.
    """
    outcome = Outcome(started_ns=time.time_ns())
    oom_before = _oom_kills()
    killed = ""
    until = time.monotonic() + limits.seconds
    work = {"probe": probe, "arms": arms, "rounds": rounds, "seed": seed}
    child = _Child(work, asker)
    with child:
        if began is not None:
            began(child.pid)
        for message in child.messages():
            if isinstance(message, Progress) and progress is not None:
                progress(message.done, message.of)
            elif message is not None:
                _take(outcome, message)
            if not killed and (killed := _why_end(child, limits, until, cancelled)):
                child.kill()
    outcome.ended_ns = time.time_ns()
    if killed or child.trouble:
        outcome.void = killed or child.trouble
    elif "run" not in outcome.machine and not outcome.void:
        outcome.void = child.how_it_ended()
        if child.signal == signal.SIGKILL and _oom_kills() > oom_before:
            outcome.void = "killed by the OOM killer: the machine or its cgroup ran out of memory"
    return outcome


def _why_end(
    child: _Child, limits: Limits, until: float, cancelled: Callable[[], str] | None
) -> str:
    if cancelled is not None and (reason := cancelled()):
        return reason
    if time.monotonic() > until:
        return f"it took longer than its time limit, {limits.seconds:g} s, and was killed"
    if limits.memory_bytes and (used := child.memory()) > limits.memory_bytes + _OWN_BYTES:
        from opd.probes.room import size_text

        return (
            f"it used {size_text(used)}, more than its memory cap,"
            f" {size_text(limits.memory_bytes)}, and was killed"
        )
    return ""


def _take(outcome: Outcome, message: FromChild) -> None:
    if isinstance(message, Samples):
        values = array("d", message.values)
        key = (message.arm, message.metric, message.worker)
        column = outcome.samples.setdefault(key, Column(array("I"), array("d")))
        column.repeats.extend(array("I", [message.repeat]) * len(values))
        column.values.extend(values)
    elif isinstance(message, Began):
        outcome.machine |= message.machine
    elif isinstance(message, Ended):
        outcome.machine |= {"run": message.machine}
    elif isinstance(message, Wrong):
        outcome.void = message.message
    elif isinstance(message, Note):
        outcome.notes.setdefault(message.arm, []).append(message.text)
    elif isinstance(message, Detail):
        outcome.details.setdefault(message.arm, {})[message.name] = json.loads(message.json)
    elif isinstance(message, Judged):
        outcome.verdicts[message.arm] = json.loads(message.json)


class _Child:
    """A probe's process group and the pipe that it tells through."""

    def __init__(self, work: dict[str, Any], asker: Asker | None = None) -> None:
        self._read, write = os.pipe2(os.O_CLOEXEC)
        become = asker.spawning() if asker is not None else {}
        if asker is not None and not become and not asker.is_us:
            work = work | {"stranger": asker.words}
        text = json.dumps(work)
        command = [sys.executable, "-P", "-m", "opd.probes.child", str(write), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                [*command, text],
                pass_fds=[write],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=0,
                **become,
            )
        except OSError as error:
            os.close(self._read)
            raise OperationFailedError(f"cannot start a probe: {error.strerror}") from error
        finally:
            os.close(write)
        self.pid = self._process.pid
        self.trouble = ""
        self._splitter = Splitter()
        self._complaint = bytearray()

    def __enter__(self) -> None:
        """Nothing: it runs already."""

    def __exit__(self, *_: object) -> None:
        """End all of its processes and reap it."""
        self._end_group()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        os.close(self._read)

    def messages(self) -> Iterator[FromChild | None]:
        """What it tells, and None now and then, until it has ended."""
        assert self._process.stdout is not None  # noqa: S101 - for mypy; it is a pipe
        said = self._process.stdout.fileno()
        pidfd = os.pidfd_open(self.pid)
        poll = select.poll()
        for fd in (self._read, said, pidfd):
            poll.register(fd, select.POLLIN)
        try:
            while True:
                ready = {fd for fd, _events in poll.poll(_LOOK_SECONDS * 1000)}
                if said in ready:
                    self._listen(poll, said)
                if self._read in ready:
                    data = os.read(self._read, 1 << 18)
                    if not data:
                        poll.unregister(self._read)
                    yield from self._split(data)
                elif pidfd in ready:
                    # Others of its group may hold the pipe open: it is over all the same.
                    break
                yield None
        finally:
            os.close(pidfd)

    def _split(self, data: bytes) -> list[FromChild]:
        try:
            return self._splitter.feed(data)
        except (ValueError, msgspec.MsgspecError) as error:
            self.trouble = f"it told nonsense: {error}"
            self.kill()
            return []

    def _listen(self, poll: select.poll, fd: int) -> None:
        words = os.read(fd, 65536)
        if not words:
            poll.unregister(fd)
        self._complaint += words
        del self._complaint[:-_COMPLAINT_MOST]

    def kill(self) -> None:
        """End it and all that it started."""
        self._end_group()

    def _end_group(self) -> None:
        # Not reaped yet, so that the number is still its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    @property
    def signal(self) -> int:
        """The signal that ended it, 0 for none."""
        return max(0, -(self._process.returncode or 0))

    def how_it_ended(self) -> str:
        """In words."""
        if self.signal:
            return f"its process was killed by {signal.Signals(self.signal).name}"
        last = self._complaint.decode(errors="replace").strip().splitlines()[-1:]
        return f"its process ended with status {self._process.returncode}: {' '.join(last)}"

    def memory(self) -> int:
        """Bytes that it and its children hold; what they share counts once."""
        own = shared = 0
        pending = [self.pid]
        while pending:
            pid = pending.pop()
            base = Path(f"/proc/{pid}")
            try:
                resident, common = map(int, (base / "statm").read_text().split()[1:3])
                children = (base / f"task/{pid}/children").read_text().split()
            except (OSError, ValueError):
                continue  # it has ended
            own += resident - common
            shared = max(shared, common)
            pending += map(int, children)
        return (own + shared) * _PAGE


def error_of(wrong: Wrong) -> OpdError:
    """The error that a child told."""
    kinds: dict[str, type[OpdError]] = {
        kind.code: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, OpdError)
    }
    kinds[VoidRunError.code] = OperationFailedError
    return kinds.get(wrong.code, OperationFailedError)(wrong.message, hint=wrong.hint)


def _oom_kills() -> int:
    """How often the kernel killed for want of memory, here or in any cgroup."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0

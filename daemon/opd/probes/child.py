"""A probe's own process: ``python -m opd.probes.child FD PARENT WORK-as-JSON``.

It tells through the pipe FD (opd.probes.wire), so that what a probe prints
does no harm. It is the first to go when memory runs out, and dies with the
thread that started it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opd.errors import OpdError
from opd.probes import machine, room
from opd.probes.asker import drop_capabilities
from opd.probes.measuring import Measuring, VoidRunError
from opd.probes.plan import find_probe, from_parameters, plan, prepare
from opd.probes.wire import Began, Ended, FromChild, Progress, Wrong, frame
from opd.process import die_with, name_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.features.declared import Probe, ProbeOptions
    from opd.features.registry import Registry

NAME = "opd-probe"  # opd.service.processes knows both
_PLANNING = "opd-plan"  # not what profiles are to leave out
_SLICE = Path("/sys/fs/cgroup/opd.slice/opd-probe.slice/cgroup.procs")


class Work(msgspec.Struct, kw_only=True):
    """What a child is to do: ``text`` to be planned, or ``arms`` to be measured.

    Each round measures every arm once, in an order drawn by ``seed`` and the
    round. ``prepare``: what the arms need is made ready, no more. ``stranger``:
    who asked, where this process could not become that user.
    """

    probe: str
    text: str | None = None
    prepare: bool = False
    stranger: str = ""
    arms: list[dict[str, Any]] = []
    rounds: int = 1
    seed: int = 0


def main(arguments: Sequence[str]) -> int:
    """Do the work; exit status 0 also when it went wrong and that was told."""
    fd, parent, text = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with(int(parent))
    work = msgspec.json.decode(text, type=Work)
    name_process(NAME if work.text is None and not work.prepare else _PLANNING)
    pipe = int(fd)
    os.set_inheritable(pipe, False)  # noqa: FBT003 - its only argument

    def send(message: FromChild) -> None:
        data = memoryview(frame(message))
        while data:
            data = data[os.write(pipe, data) :]

    try:
        _do(work, send)
    except OpdError as error:
        send(Wrong(error.code, error.message, error.hint))
    except MemoryError:
        send(Wrong(VoidRunError.code, "it could not get the memory it asked for"))
    except Exception as error:  # noqa: BLE001 - foreign code
        send(Wrong(VoidRunError.code, f"the probe broke: {type(error).__name__}: {error}"))
    return 0


def _do(work: Work, send: Any) -> None:
    from opd.features.registry import Registry

    registry = Registry()
    if work.text is not None:
        send(plan(registry, work.probe, work.text, stranger=work.stranger))
    elif work.prepare:
        drop_capabilities()
        prepare(registry, work.probe, work.arms, lambda words: send(Progress(0, 0.0, 0.0, words)))
        send(Ended({}))
    else:
        _measure(work, registry, send)


def _measure(work: Work, registry: Registry, send: Any) -> None:
    probe = find_probe(registry, work.probe)
    arms = [from_parameters(probe, parameters) for parameters in work.arms]
    if any(map(probe.runs_code, arms)):
        # What the daemon may is not for code that somebody else brings.
        drop_capabilities()
    state = machine.machine_state() | {"slice": _enter_slice()}
    Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    cpus = room.cpus_of(arms[0])
    os.sched_setaffinity(0, cpus)
    _schedule(probe, arms[0])
    state["cpus"] = list(cpus)
    state["nice"] = os.nice(0)
    run = Measuring(probe.metrics, cpus, send)
    send(Began(state))
    before = machine.moment()
    repeats = [0] * len(arms)
    order = list(range(len(arms)))
    draw = random.Random(work.seed)  # noqa: S311 - no secret
    for _round in range(work.rounds):
        draw.shuffle(order)
        for arm in order:
            run.begin(arm, repeats[arm])
            probe.measure(arms[arm], run)
            repeats[arm] += run.repeats
    send(Ended(machine.over(before, machine.moment())))


def _schedule(probe: Probe, options: ProbeOptions) -> None:
    """Take the nice value and policy asked for. Raises what room.check_policy foresees."""
    if options.nice:
        os.setpriority(os.PRIO_PROCESS, 0, options.nice)
    if options.fifo and not probe.sets_fifo:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(options.fifo))


def _enter_slice() -> str:
    """Go to the slice of probes where the service has one; its name, or why not."""
    try:
        _SLICE.write_text(str(os.getpid()), encoding="ascii")
    except OSError as error:
        return f"none: {error.strerror}"
    return "opd-probe.slice"


if __name__ == "__main__":
    from opd import quick

    quick.begin()
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)

"""Probes of the daemon: one at a time, each in a process of its own, asked for or on a schedule.

A window is cut where a probe begins and where it ends, so that reports of the
time beside it have none of it.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from opd.errors import ConfigError, OpdError, OperationFailedError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from opd.config.settings import ProbeSettings
    from opd.probes.asker import Asker
    from opd.probes.jobs import Comparison
    from opd.probes.schedule import Schedule
    from opd.probes.wire import Planned
    from opd.query.endpoint import Peer
    from opd.service.daemon import Daemon

CLOSE_SECONDS = 10.0
REMEMBERED = 16
_IDLE_SECONDS = 2.0
_IDLE_SHARE = 0.1
_AGAIN_SECONDS = 30.0
_TURN_SECONDS = 1.0
_NUMBERS_MOST = 1 << 30


class _Job:
    """One thing asked for. Its thread changes it, under the lock of Probing."""

    def __init__(self, number: int, words: str, origin: str, asker: Asker | None) -> None:
        self.asker = asker
        self.number = number
        self.words = words
        self.origin = origin
        self.started = time.time()
        self.runs: list[int] = []
        self.progress: dict[str, Any] = {}
        self.error: OpdError | None = None
        self.cancelled = ""
        self.ended = threading.Event()
        self.turn = -1  # descriptor of the machine's lock

    def view(self) -> dict[str, Any]:
        """What a client is told."""
        return {
            "job": self.number,
            "what": self.words,
            "origin": self.origin,
            "running": not self.ended.is_set(),
            "started": self.started,
            "progress": dict(self.progress),
            "runs": list(self.runs),
            "failed": str(self.error) if self.error else None,
        }


class _Turn:
    """When a schedule comes next (CLOCK_MONOTONIC), and what became of its turns."""

    def __init__(
        self, schedule: Schedule, due: float, *, is_set: bool, asker: Asker | None
    ) -> None:
        self.asker = asker
        self.schedule = schedule
        self.is_set = is_set  # by the settings, not by a client
        self.base = self.due = due  # without and with jitter
        self.until = due + (schedule.every or 86_400.0)
        self.runs = 0
        self.skipped = 0
        self.last_error = ""

    def view(self, number: int) -> dict[str, Any]:
        """What a client is told."""
        fields = msgspec.structs.asdict(self.schedule)
        wait = max(0.0, self.due - time.monotonic())
        return {
            "schedule": number,
            **fields,
            "due_seconds": round(wait, 3),
            "runs": self.runs,
            "skipped": self.skipped,
            "last_error": self.last_error or None,
        }


class Probing:
    """The daemon's probes; any thread may call."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._changed = threading.Condition()
        self._running: _Job | None = None
        self._jobs: dict[int, _Job] = {}
        self._turns: dict[int, _Turn] = {}
        self._set: Counter[str] = Counter()  # schedules of the settings, as they are written
        self._number = 0
        self._closed = False
        self._clock: threading.Thread | None = None

    def start(self, settings: ProbeSettings) -> None:
        """Begin the schedules of the settings; those of earlier ones go on, or end."""
        wanted = Counter(text.strip() for text in settings.schedule)
        gone, fresh = self._set - wanted, wanted - self._set
        self._set = wanted
        with self._changed:
            for number, turn in list(self._turns.items()):
                if turn.is_set and gone[turn.schedule.text]:
                    gone[turn.schedule.text] -= 1
                    del self._turns[number]
            self._changed.notify_all()
        if fresh:
            from opd.probes.schedule import parse_schedules

            for schedule in parse_schedules(tuple(fresh.elements())):
                self._schedule(schedule, is_set=True)

    def answer(
        self, method: str, params: dict[str, Any], peer: Peer | None = None
    ) -> dict[str, Any]:
        """Answer one of the methods of probes. ``peer``: who asks. Raises OpdError."""
        from opd.probes.asker import asker_of
        from opd.query.probes import number_of, probe_answer

        asker = asker_of(peer.uid, peer.gid) if peer is not None else None
        if method == "probe_run":
            return self._run(params, asker)
        if method == "probe_poll":
            return self._poll(params["job"])
        if method == "probe_cancel":
            return self._cancel(params.get("job"))
        if method == "probe_compare" and any(number_of(params[side]) is None for side in "ab"):
            return self._compare(params, asker)
        with self._changed:
            begun = list(self._running.runs) if self._running else []
        with self._reader() as reader:
            answer = probe_answer(reader, method, params, begun=begun)
        if method == "probe_list":
            with self._changed:
                answer["running"] = self._running.view() if self._running else None
                answer["schedules"] = [turn.view(at) for at, turn in self._turns.items()]
        return answer

    def close(self) -> None:
        """End the one that runs, and the schedules; wait for both."""
        with self._changed:
            self._closed = True
            job = self._running
            if job is not None:
                job.cancelled = "opd ended"
            self._changed.notify_all()
        if job is not None:
            job.ended.wait(CLOSE_SECONDS)

    # ---- asked for

    def _run(self, params: dict[str, Any], asker: Asker | None) -> dict[str, Any]:
        from opd.probes.running import plan
        from opd.probes.schedule import parse_schedule

        probe, options = params["probe"], params.get("options", "")
        try:
            schedule = parse_schedule(f"{probe}:{options}")
        except ConfigError as error:
            raise UsageError(error.message, hint=error.hint) from error
        planned = plan(schedule.probe, schedule.options, asker=asker)
        if schedule.every:
            return self._schedule(schedule, asker=asker)
        return self._begin(f"{probe}:{options}", "asked", planned, asker=asker).view()

    def _compare(self, params: dict[str, Any], asker: Asker | None) -> dict[str, Any]:
        from opd.probes.jobs import Comparison, check_comparable
        from opd.probes.running import plan
        from opd.query.probes import check_both_measured, measure_of

        check_both_measured(params["a"], params["b"])
        a, b = (plan(*measure_of(params[side]), asker=asker) for side in "ab")
        how = Comparison(
            metric=params.get("metric", ""),
            **{name: max(1, params[name]) for name in ("rounds", "processes") if name in params},
        )
        check_comparable(a, b, how)
        return self._begin(
            f"{params['a']} against {params['b']}", "compare", a, against=(b, how), asker=asker
        ).view()

    def _begin(
        self,
        words: str,
        origin: str,
        planned: Planned,
        *,
        against: tuple[Planned, Comparison] | None = None,
        wait: bool = False,
        asker: Asker | None = None,
    ) -> _Job:
        """Take the one place there is. Raises OperationFailedError when it is taken."""
        with self._changed:
            turn = self._take_machine(wait=wait)
            self._number = self._number % _NUMBERS_MOST + 1
            job = _Job(self._number, words, origin, asker)
            job.turn = turn
            self._running = self._jobs[job.number] = job
            while len(self._jobs) > REMEMBERED:
                del self._jobs[next(iter(self._jobs))]
        # Its children end with the thread that started them: one that stays as long.
        threading.Thread(
            target=self._work, args=(job, planned, against), name="opd-probe", daemon=True
        ).start()
        return job

    def _take_machine(self, *, wait: bool) -> int:
        """The machine's turn (opd.probes.alone), this daemon's own first. Lock held."""
        from opd.probes.alone import OtherProbeRunsError, take

        while True:
            if wait:
                self._changed.wait_for(lambda: self._closed or self._running is None)
            if self._closed:
                raise OperationFailedError("the daemon is ending")
            if (other := self._running) is not None:
                raise OperationFailedError(
                    f"probe job {other.number} is running: {other.words}",
                    hint=f"wait, or end it: opctl probe cancel {other.number}",
                )
            try:
                return take(self._daemon.directory)
            except OtherProbeRunsError:
                if not wait:
                    raise
                # Nobody tells when a process lets a file go.
                self._changed.wait(_TURN_SECONDS)

    def _poll(self, number: int) -> dict[str, Any]:
        job = self._find(number)
        if job.error is not None:
            raise job.error
        view = job.view()
        if not view["running"]:
            from opd.probes.results import result_map

            with self._reader() as reader:
                view["results"] = [result_map(reader.probe_run(run)) for run in view["runs"]]
        return view

    def _cancel(self, number: int | None) -> dict[str, Any]:
        """End a job (the running one unless named), or a schedule by its number."""
        with self._changed:
            if number is not None and number in self._turns:
                turn = self._turns.pop(number)
                self._changed.notify_all()
                return {"cancelled": turn.schedule.text}
            job = self._running
        if number is None and job is None:
            raise OperationFailedError("no probe is running")
        if number is not None:
            job = self._find(number)
        if job is None:
            return {}
        if job.ended.is_set():
            raise OperationFailedError(f"probe job {job.number} has ended: {job.words}")
        job.cancelled = "cancelled"
        return {"cancelled": job.words, **job.view()}

    def _find(self, number: int) -> _Job:
        with self._changed:
            if number in self._jobs:
                return self._jobs[number]
        raise UnknownNameError(
            f"no probe job {number} of this daemon", hint="opctl probe list shows what runs"
        )

    def _reader(self) -> Any:
        from opd.store.queries import open_reader

        return open_reader(self._daemon.directory)

    # ---- a job's thread

    def _work(
        self, job: _Job, planned: Planned, against: tuple[Planned, Comparison] | None
    ) -> None:
        from opd.probes.jobs import Control, compare_now, measure_all

        log = self._daemon.log
        log.info("probe.started", job=job.number, what=job.words, origin=job.origin)
        control = Control(lambda: job.cancelled, lambda *told: self._tell(job, *told), job.asker)
        try:
            if against is not None:
                compare_now(planned, *against, _Keeper(self._daemon, job), control)
            else:
                measure_all(planned, job.origin, _Keeper(self._daemon, job), control)
        except OpdError as error:
            job.error = error
        except Exception as error:  # noqa: BLE001 - a probe's end is not the daemon's
            job.error = OperationFailedError(f"the probe job broke: {error!r}")
        os.close(job.turn)
        with self._changed:
            self._running = None
            job.ended.set()
            self._changed.notify_all()
        if job.error is not None:
            log.error("probe.failed", job=job.number, error=str(job.error))
        else:
            log.info("probe.ended", job=job.number, runs=job.runs)

    def _tell(self, job: _Job, done: float, of: float, words: str) -> None:
        job.progress = {"done": done, "of": of, "words": words}

    # ---- schedules

    def _schedule(
        self, schedule: Schedule, *, is_set: bool = False, asker: Asker | None = None
    ) -> dict[str, Any]:
        from opd.probes.schedule import SCHEDULES_MOST

        with self._changed:
            if len(self._turns) >= SCHEDULES_MOST and not is_set:
                raise OperationFailedError(
                    f"there are {len(self._turns)} schedules, at most {SCHEDULES_MOST}",
                    hint="end one: opctl probe cancel NUMBER",
                )
            self._number += 1
            due = time.monotonic() + random.uniform(0, schedule.jitter)  # noqa: S311
            turn = self._turns[self._number] = _Turn(schedule, due, is_set=is_set, asker=asker)
            if self._clock is None:
                self._clock = threading.Thread(target=self._tick, name="opd-probes", daemon=True)
                self._clock.start()
            self._changed.notify_all()
            return turn.view(self._number)

    def _tick(self) -> None:
        """Wait for turns and take them, one after the other."""
        while True:
            with self._changed:
                if self._closed:
                    return
                due = min(self._turns.items(), key=lambda item: item[1].due, default=None)
                wait = None if due is None else due[1].due - time.monotonic()
                if due is None or wait is None or wait > 0:
                    self._changed.wait(wait)
                    continue
            self._take_turn(*due)

    def _take_turn(self, number: int, turn: _Turn) -> None:
        from opd.probes.running import plan

        schedule, now = turn.schedule, time.monotonic()
        if schedule.when == "idle" and not self._is_idle():
            if now < turn.until:
                turn.due = min(now + _AGAIN_SECONDS, turn.until)
                return
            turn.skipped += 1
            self._daemon.log.info("probe.skipped", what=schedule.text, reason="never idle")
        else:
            try:
                planned = plan(schedule.probe, schedule.options, asker=turn.asker)
                job = self._begin(schedule.text, "schedule", planned, wait=True, asker=turn.asker)
                job.ended.wait()
                turn.runs += 1
                turn.last_error = str(job.error) if job.error else ""
            except OpdError as error:
                turn.skipped += 1
                turn.last_error = str(error)
                self._daemon.log.error("probe.not_run", what=schedule.text, reason=str(error))
        with self._changed:
            if not schedule.every:
                self._turns.pop(number, None)
            # Turns missed are not made up for.
            turn.base = max(turn.base + schedule.every, time.monotonic())
            turn.due = turn.base + random.uniform(0, schedule.jitter)  # noqa: S311
            turn.until = turn.due + schedule.every

    def _is_idle(self) -> bool:
        """Whether others use less than a tenth of the CPUs, over two seconds."""
        from opd.probes.machine import moment

        before = moment()
        with self._changed:
            if self._changed.wait_for(lambda: self._closed, _IDLE_SECONDS):
                return False
        after = moment()
        busy = (after.busy - before.busy) - (after.own - before.own)
        return busy / (after.at - before.at) < _IDLE_SHARE * (os.cpu_count() or 1)


class _Keeper:
    """Stores through the worker; notes the runs with their job."""

    def __init__(self, daemon: Daemon, job: _Job) -> None:
        self._daemon = daemon
        self._job = job

    def begin(self, params: dict[str, Any]) -> int:
        """See opd.probes.jobs.Keeper."""
        params = params | {"at_ns": self._cut() or params["at_ns"]}
        number = int(self._daemon.link.request("probe_begin", params)["id"])
        self._job.runs.append(number)
        return number

    def end(self, params: dict[str, Any]) -> None:
        """See opd.probes.jobs.Keeper."""
        params = params | {"mark_ns": self._cut() or params["ended_ns"]}
        self._daemon.link.request("probe_end", params)

    def judge(self, params: dict[str, Any]) -> None:
        """See opd.probes.jobs.Keeper."""
        self._daemon.link.request("probe_judge", params)

    def _cut(self) -> int:
        """Have a window end here; when, 0 where nothing is sampled.

        A mark at that moment divides windows without a rest on either side.
        """
        with self._daemon.state_lock:
            loop = self._daemon.loop
        if loop is None:
            return 0
        try:
            loop.cut_now()
        except OpdError as error:
            self._daemon.log.warning("probe.not_cut", reason=str(error))
            return 0
        return loop.last_end_ns

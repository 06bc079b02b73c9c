"""Bursts that begin by themselves when the machine, or a unit, is in trouble."""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from opd.config.triggers import parse_triggers
from opd.errors import OpdError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from opd.config.triggers import Condition, Trigger
    from opd.service.daemon import Daemon

EVERY_SECONDS = 1.0
DAY_SECONDS = 86400.0
# A unit that is not there is looked for again so often.
_FIND_SECONDS = 30.0
_FOLDERS_MOST = 4096
NS = 1_000_000_000


class _Group(NamedTuple):
    folder: Path | None
    looked: float
    used_ns: int
    at: float


class Readings:
    """Reads what conditions compare; None where it cannot be had.

    ``unavailable`` says why, by the condition's text.
    """

    def __init__(self, *, proc: str = "/proc", cgroups: Sequence[str] | None = None) -> None:
        self._proc = Path(proc)
        self._roots = [Path(root) for root in cgroups] if cgroups is not None else None
        self._groups: dict[str, _Group] = {}
        self.unavailable: dict[str, str] = {}

    def read(self, condition: Condition, now: float) -> float | None:
        """Give the value now (``now`` is a monotonic clock); cores need two readings."""
        value: float | None
        try:
            if condition.kind == "psi":
                value = self._psi(condition)
            elif condition.kind == "load":
                value = self._load(condition.detail[0])
            else:
                value = self._cores(condition, now)
        except (OSError, ValueError, IndexError, KeyError) as error:
            self.unavailable[condition.text] = str(error)
            return None
        if value is not None:
            self.unavailable.pop(condition.text, None)
        return value

    def _psi(self, condition: Condition) -> float:
        text = (self._proc / "pressure" / condition.subject).read_text()
        for line in text.splitlines():
            head, *fields = line.split()
            if head == condition.detail[0]:
                return float(dict(field.split("=") for field in fields)[condition.detail[1]])
        raise ValueError(f"the kernel has no line {condition.detail[0]!r} for {condition.subject}")

    def _load(self, minutes: str) -> float:
        fields = (self._proc / "loadavg").read_text().split()
        return float(fields[("1", "5", "15").index(minutes)])

    def _cores(self, condition: Condition, now: float) -> float | None:
        name = condition.subject
        group = self._groups.get(name)
        folder = group.folder if group is not None else None
        if folder is None:
            if group is not None and now - group.looked < _FIND_SECONDS:
                return None
            folder = self._find(condition)
            if folder is None:
                self._groups[name] = _Group(None, now, 0, now)
                raise ValueError(f"no cgroup of {name} with CPU accounting")
        try:
            used = _used_ns(folder)
        except OSError:
            self._groups[name] = _Group(None, now - _FIND_SECONDS, 0, now)
            return None  # it ended; a new one is looked for
        self._groups[name] = _Group(folder, now, used, now)
        if group is None or group.folder is None or now <= group.at:
            return None
        return max(used - group.used_ns, 0) / NS / (now - group.at)

    def _find(self, condition: Condition) -> Path | None:
        roots = self._roots if self._roots is not None else _accounting_roots(self._proc)
        for root in roots:
            if condition.kind == "cgroup":
                place = root / condition.subject.lstrip("/")
                if _accounts(place):
                    return place
                continue
            for seen, (folder, folders, _files) in enumerate(os.walk(root)):
                if condition.subject in folders and _accounts(Path(folder, condition.subject)):
                    return Path(folder, condition.subject)
                if seen > _FOLDERS_MOST:
                    break
        return None


def _accounts(folder: Path) -> bool:
    return (folder / "cpu.stat").exists() or (folder / "cpuacct.usage").exists()


def _used_ns(folder: Path) -> int:
    usage = folder / "cpuacct.usage"
    if usage.exists():
        return int(usage.read_text())
    for line in (folder / "cpu.stat").read_text().splitlines():
        if line.startswith("usage_usec "):
            return int(line.split()[1]) * 1000
    raise OSError(f"{folder}/cpu.stat: no usage_usec")


def _accounting_roots(proc: Path) -> list[Path]:
    """Where cgroup v2, and v1's cpuacct, are mounted."""
    roots = []
    for line in (proc / "self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _source, options = right.split(" ", 2)
        if kind == "cgroup2" or (kind == "cgroup" and "cpuacct" in options.split(",")):
            roots.append(Path(left.split()[4]))
    return roots


class _Watch:
    """One trigger and how it stands."""

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger
        self.since: float | None = None  # it holds since then
        self.rest_until = 0.0
        self.fired: deque[float] = deque()


class Watching:
    """Decides which trigger fires; ``read`` and the clock are given."""

    def __init__(
        self, triggers: Sequence[Trigger], read: Callable[[Condition, float], float | None]
    ) -> None:
        self._watches = [_Watch(trigger) for trigger in triggers]
        self._read = read

    def due(self, now: float) -> tuple[Trigger, float] | None:
        """Look at all of them; the first one that fires, with its value."""
        found: tuple[Trigger, float] | None = None
        for watch in self._watches:
            trigger = watch.trigger
            value = self._read(trigger.when, now)
            if value is None or not trigger.when.holds(value):
                watch.since = None
                continue
            if watch.since is None:
                watch.since = now
            while watch.fired and now - watch.fired[0] >= DAY_SECONDS:
                watch.fired.popleft()
            ready = now - watch.since >= trigger.hold and now >= watch.rest_until
            if ready and len(watch.fired) < trigger.most_per_day and found is None:
                found = (trigger, value)
        return found

    def fired(self, trigger: Trigger, now: float) -> None:
        """Its burst began: it rests for the burst and the cooldown."""
        for watch in self._watches:
            if watch.trigger is trigger:
                watch.fired.append(now)
                watch.rest_until = now + trigger.seconds + trigger.cooldown
                watch.since = None

    def refused(self, trigger: Trigger, now: float) -> None:
        """Its burst could not begin: another runs, or something is wrong."""
        for watch in self._watches:
            if watch.trigger is trigger:
                watch.rest_until = now + min(trigger.cooldown, 60.0)


class Triggers:
    """The daemon's duty of looking at its triggers; on its main thread."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._tables: tuple[dict[str, Any], ...] = ()
        self._watching: Watching | None = None
        self._readings = Readings()
        self._told: set[str] = set()

    def tick(self) -> None:
        """Look, and begin a burst where one is due. Without triggers it costs nothing."""
        tables = self._daemon.config.burst.trigger
        if tables != self._tables:
            self._tables = tables
            triggers = parse_triggers(tables)
            self._watching = Watching(triggers, self._readings.read) if triggers else None
        if self._watching is None:
            return
        now = time.monotonic()
        due = self._watching.due(now)
        for condition, reason in self._readings.unavailable.items():
            if condition not in self._told:
                self._told.add(condition)
                self._daemon.log.warning("trigger.unavailable", when=condition, reason=reason)
        if due is not None:
            self._fire(*due, now)

    def _fire(self, trigger: Trigger, value: float, now: float) -> None:
        from opd.recording import Burst

        assert self._watching is not None  # noqa: S101 - for mypy; the caller looked
        burst = Burst(
            events=trigger.events,
            rate=trigger.rate,
            seconds=trigger.seconds,
            comms=trigger.comms,
            origin=f"{trigger.when.text} (was {value:.4g})",
            store_bytes=self._daemon.config.burst.store_mib << 20,
        )
        try:
            session = self._daemon.bursts.start(burst, lease=None)["session"]
        except OpdError as error:
            self._watching.refused(trigger, now)
            self._daemon.log.warning(
                "trigger.refused", when=trigger.when.text, value=value, reason=str(error)
            )
            return
        self._watching.fired(trigger, now)
        self._daemon.log.info("trigger.fired", when=trigger.when.text, value=value, session=session)

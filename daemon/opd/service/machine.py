"""Marks what changes under the profile: boots, kernels, microcode, packages, clock, suspends.

What was seen last is kept in the store, so that a change while opd was not
running is a mark too. On a store that has seen nothing yet, nothing is marked.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from opd.sampling.kernel import boot_id, kernel_build_id
from opd.service import packages

if TYPE_CHECKING:
    from collections.abc import Callable

    from opd.store.handover import WorkerLink

EVERY_S = 5.0
# The main thread waits for the worker once.
_SEEN_TIMEOUT_S = 2.0
_NS = 1_000_000_000
_STEP_NS = _NS // 2
# A clock that is only disciplined drifts too; ppm that are no step over a restart.
_DRIFT_PPM = 200
_KEPT_WITHIN_NS = _NS // 10
_SUSPENDED_NS = _NS // 2
_CPUINFO_BYTES = 4096

Mark = tuple[int, str, str]


class Clocks(NamedTuple):
    """One moment, in ns: the wall clock, since boot with suspends, and without."""

    wall: int
    boot: int
    running: int


def read_clocks() -> Clocks:
    """Read them, near enough at once."""
    return Clocks(time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.monotonic_ns())


class MachineWatch:
    """Looks every EVERY_S and posts marks through the worker. ``root`` holds proc, sys, var."""

    def __init__(
        self,
        link: WorkerLink,
        *,
        root: Path = Path("/"),
        clocks: Callable[[], Clocks] = read_clocks,
    ) -> None:
        self._link = link
        self._root = root
        self._clocks = clocks
        self._seen: dict[str, str] | None = None
        self._boot = boot_id(str(root / "proc"))
        self._offset: int | None = None
        self._slept: int | None = None
        self._packages = packages.Watch(root)

    def turn(self) -> None:
        """Look, and post what is new. Raises OperationFailedError while the worker is stuck."""
        first = self._seen is None
        if self._seen is None:
            self._seen = self._link.request("seen", {}, _SEEN_TIMEOUT_S)["seen"]
        clocks = self._clocks()
        marks: list[Mark] = []
        now: dict[str, str] = {}
        if first:
            self._compare_boot(clocks, marks, now)
        for look in (self._compare_microcode, self._compare_clock, self._compare_suspend):
            look(clocks, marks, now)
        self._packages.look(self._seen, clocks.wall, marks, now)
        changed = {what: value for what, value in now.items() if self._seen.get(what) != value}
        if marks or changed:
            self._link.post("mark", {"marks": marks, "seen": changed})
            self._seen |= changed

    def _known(self, what: str) -> str | None:
        return None if self._seen is None else self._seen.get(what)

    def _numbers(self, what: str) -> tuple[int | None, int | None]:
        """The two numbers kept of this boot; None where there are none."""
        match (self._known(what) or "").split():
            case [boot, one, other] if boot == self._boot:
                try:
                    return int(one), int(other)
                except ValueError:
                    pass
        return None, None

    def _compare_boot(self, clocks: Clocks, marks: list[Mark], now: dict[str, str]) -> None:
        """What cannot change while opd runs: the boot, and the kernel with it."""
        booted = clocks.wall - clocks.boot
        now["boot"] = self._boot
        release, build = os.uname().release, kernel_build_id(str(self._root / "sys"))
        now["kernel"] = f"{release} {build}".strip()
        before = self._known("boot")
        if before is not None and before != self._boot:
            marks.append((booted, "boot", f"booted, kernel {release}"))
        known = self._known("kernel")
        if known is not None and known != now["kernel"]:
            old = known.partition(" ")[0]
            text = f"kernel {old} → {release}" if old != release else f"another build of {release}"
            marks.append((booted, "kernel", text))

    def _compare_microcode(self, clocks: Clocks, marks: list[Mark], now: dict[str, str]) -> None:
        revision = self._microcode()
        if not revision:
            return
        now["microcode"] = revision
        known = self._known("microcode")
        if known is not None and known != revision:
            marks.append((clocks.wall, "microcode", f"microcode {known} → {revision}"))

    def _microcode(self) -> str:
        """The revision of the first CPU, "" when it is not told."""
        try:
            version = self._root / "sys/devices/system/cpu/cpu0/microcode/version"
            return version.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            pass
        try:
            with (self._root / "proc/cpuinfo").open("rb") as file:
                lines = file.read(_CPUINFO_BYTES).splitlines()
        except OSError:
            return ""
        for line in lines:
            name, _, value = line.partition(b":")
            if name.strip() == b"microcode":
                return value.strip().decode("ascii", "replace")
        return ""

    def _compare_clock(self, clocks: Clocks, marks: list[Mark], now: dict[str, str]) -> None:
        """Whether somebody set the wall clock since the last look, or since opd last ran."""
        offset = clocks.wall - clocks.boot
        before, slack = self._offset, _STEP_NS
        known, at = self._numbers("clock")
        if before is None and known is not None:
            before = known
            slack += abs(clocks.boot - (at or 0)) * _DRIFT_PPM // 1_000_000
        if before is not None and abs(offset - before) > slack:
            seconds = (offset - before) / _NS
            way = "forward" if seconds > 0 else "back"
            marks.append((clocks.wall, "clock", f"clock set {way} by {_span(abs(seconds))}"))
        self._offset = offset
        if known is None or abs(offset - known) > _KEPT_WITHIN_NS:
            now["clock"] = f"{self._boot} {offset} {clocks.boot}"

    def _compare_suspend(self, clocks: Clocks, marks: list[Mark], now: dict[str, str]) -> None:
        """Whether the machine slept: the time since boot that it did not run."""
        slept = clocks.boot - clocks.running
        known, _at = self._numbers("suspend")
        before = known if self._slept is None else self._slept
        if before is not None and slept - before > _SUSPENDED_NS:
            span = slept - before
            text = f"suspended for {_span(span / _NS)}"
            marks.append((clocks.wall - span, "suspend", text))
        self._slept = slept
        if known is None or slept - known > _SUSPENDED_NS:
            now["suspend"] = f"{self._boot} {slept} {clocks.boot}"


def _span(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (whole % 60, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)

"""Copies, fills and compares by an Intel DSA (opd/dsa.h): what is there, and the functions."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple

from opd_native._core import ffi, lib
from opd_native.dto import Functions, Op
from opd_native.errors import NativeError

if TYPE_CHECKING:
    from collections.abc import Sequence

NOWHERE = (1 << 64) - 1
_TEXT = 256
_COUNTED = (
    "calls",
    "small",
    "nested",
    "near_overlap",
    "descriptors",
    "device_bytes",
    "cpu_bytes",
    "busy",
    "refused",
    "faults",
    "redone",
    "timeouts",
)
_STATUSES = 128


class Wait(enum.IntEnum):
    """How a completion is waited for; the last two need WAITPKG."""

    BUSYPOLL = 0
    YIELD = 1
    UMWAIT = 2
    TPAUSE = 3


class DsaCheck(NamedTuple):
    """One check: ``what`` was looked at, ``where`` (dsa0, wq0.0, or nothing).

    ``remedy`` is empty when it is ``ok``.
    """

    ok: bool
    what: str
    where: str
    text: str
    remedy: str


class DsaReport(NamedTuple):
    """What was found. ``usable`` queues; ``reason``: the check that failed when none is."""

    usable: int
    reason: str
    checks: tuple[DsaCheck, ...]
    beyond: int


class DsaUnavailableError(NativeError):
    """No queue can be used, or not so; ``str()`` says why."""

    def __init__(self, errno: int, report: DsaReport) -> None:
        super().__init__(errno, report.reason)
        self.report = report

    def __str__(self) -> str:
        return self.report.reason


class Crossover(NamedTuple):
    """Device against CPU of one operation by size: wins of so many pairs, medians in ns.

    ``least``: bytes from which on the device wins surely, NOWHERE: it does not.
    """

    sizes: tuple[int, ...]
    pairs: int
    wins_needed: int
    wins: tuple[int, ...]
    device_ns: tuple[float, ...]
    cpu_ns: tuple[float, ...]
    least: int


def cpu_instructions() -> dict[str, int]:
    """What CPUID says: enqcmd, movdir64b, waitpkg (0 or 1), tsc_hz (0: not said)."""
    cpu = ffi.new("struct opd_dsa_cpu *")
    lib.opd_dsa_cpu(cpu)
    return {name: getattr(cpu, name) for name in ("enqcmd", "movdir64b", "waitpkg", "tsc_hz")}


def examine(*, sys: str = "/sys", dev: str = "/dev", attempt: bool = True) -> DsaReport:
    """Every check, told one by one.

    ``attempt``: one shared queue is opened and given one NOOP; else only looked at.
    """
    try:
        dsa = Dsa(sys=sys, dev=dev, look_only=1 if attempt else 2)
    except DsaUnavailableError as error:
        return error.report
    dsa.close()
    return dsa.report


class Dsa:
    """Queues, tried. Raises DsaUnavailableError; at most four live in a process.

    ``least``: bytes below which a call is the CPU's, one for all operations or
    four. ``fallback``: what the CPU does; libc where left out. ``queues``: their
    names; empty: all. ``timeout``: seconds after which a queue is given up.
    ``look_only`` 1: one shared queue is opened at most, 2: none.
    """

    def __init__(
        self,
        *,
        sys: str = "/sys",
        dev: str = "/dev",
        queues: Sequence[str] = (),
        fallback: Functions | None = None,
        least: int | Sequence[int] = 0,
        timeout: float = 2.0,
        wait: Wait = Wait.BUSYPOLL,
        near: bool = False,
        look_only: int = 0,
    ) -> None:
        options = ffi.new("struct opd_dsa_options *")
        held = [ffi.new("char[]", text.encode()) for text in (sys, dev, " ".join(queues))]
        options.sys, options.dev = held[:2]
        if queues:
            options.queues = held[2]
        if fallback is not None:
            options.fallback = fallback.pointer
        options.least = [least] * len(Op) if isinstance(least, int) else list(least)
        options.timeout_ns = int(timeout * 1e9)
        options.wait, options.near, options.look_only = wait, near, look_only
        report = ffi.new("struct opd_dsa_report *")
        out = ffi.new("struct opd_dsa **")
        rc = lib.opd_dsa_create(options, report, out)
        self.report = _report_of(report)
        if rc < 0:
            raise DsaUnavailableError(-rc, self.report)
        self._pointer = ffi.gc(out[0], lib.opd_dsa_destroy)
        self._fallback = fallback

    @property
    def functions(self) -> Functions:
        """The four of them; a process that calls them opens the queues then."""
        return Functions(lib.opd_dsa_functions(self._pointer), self)

    def queues(self) -> list[str]:
        """Each that is used, and how descriptors go into it."""
        room = ffi.new("char[]", _TEXT)
        texts = []
        for index in range(lib.opd_dsa_queue_count(self._pointer)):
            lib.opd_dsa_queue_text(self._pointer, index, room, _TEXT)
            texts.append(ffi.string(room).decode(errors="replace"))
        return texts

    def counts(self) -> dict[Op, dict[str, int]]:
        """Calls and bytes by operation, of this process and those it forked."""
        out = self._counted()
        return {op: {name: getattr(out.ops[op], name) for name in _COUNTED} for op in Op}

    def statuses(self) -> dict[str, int]:
        """How often descriptors ended with each status, in words; those that came."""
        out = self._counted()
        return {
            f"0x{status:02x} {ffi.string(lib.opd_dsa_status_text(status)).decode()}": number
            for status in range(_STATUSES)
            if (number := out.status[status])
        }

    def opened(self) -> tuple[int, int]:
        """How many processes opened queues, and how many could not."""
        out = self._counted()
        return out.opened, out.open_failed

    def cross(self, op: Op, most: int, pairs: int = 31) -> Crossover:
        """Measure from which size on the device pays, and offload that op from there on."""
        out = ffi.new("struct opd_dsa_crossover *")
        rc = lib.opd_dsa_cross(self._pointer, 1 << op, most, pairs, out)
        self.let_go()
        if rc < 0:
            raise NativeError(-rc, "measuring from which size on the device pays")
        size = out.sizes
        return Crossover(
            tuple(out.bytes[0:size]),
            out.pairs,
            out.wins_needed,
            tuple(out.wins[op][0:size]),
            tuple(out.device_ns[op][0:size]),
            tuple(out.cpu_ns[op][0:size]),
            out.least[op],
        )

    def let_go(self) -> None:
        """Close this process's queues until the next call: a dedicated one may be another's."""
        lib.opd_dsa_let_go(self._pointer)

    def close(self) -> None:
        """Give all back; the functions may not be called any more."""
        ffi.release(self._pointer)

    def _counted(self) -> Any:
        out = ffi.new("struct opd_dsa_counts *")
        lib.opd_dsa_counts(self._pointer, out)
        return out


def _text(value: Any) -> str:
    return str(ffi.string(value).decode(errors="replace"))


def _report_of(report: Any) -> DsaReport:
    checks = tuple(
        DsaCheck(
            bool(one.ok), _text(one.what), _text(one.where), _text(one.text), _text(one.remedy)
        )
        for one in report.findings[0 : report.count]
    )
    return DsaReport(report.usable, _text(report.reason), checks, report.beyond)

"""Modes dsa and dsa_auto: libc and our own kernels with a DSA in front of them.

A library that offloads by itself is told so by its variables (modes.py); libc
and the kernels cannot, so here the device does what they would, and they are
what the CPU does: calls that are too small, the rest of one that met a page
fault, all that the device refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from opd.errors import OperationFailedError
from opd.features.dto.implementations import sources_of
from opd_native.dto import KERNELS, Op
from opd_native.dsa import NOWHERE, Dsa, DsaUnavailableError, Wait, examine

if TYPE_CHECKING:
    from opd.features.dto.options import DtoOptions
    from opd.probes.measuring import Measuring
    from opd_native.dsa import Crossover
    from opd_native.dto import Functions

OFFLOADING = ("dsa", "dsa_auto")
_SIDES = ("baseline", "current")
_CROSS_LEAST, _CROSS_MOST = 64 << 10, 4 << 20
_PAIRS = 31


class Pairing(Protocol):
    """What a pair of sides is to the cells (Pair of implementations)."""

    layouts: int

    def functions(self, layout: int) -> tuple[Functions, Functions]:
        """Baseline and current."""

    def details(self) -> dict[str, Any]:
        """What was compared."""

    def close(self) -> None:
        """Give files back."""


def check_device(options: DtoOptions) -> None:
    """OperationFailedError: mode dsa or dsa_auto, and no queue can be used: the check that failed.

    A process of its own asks it; a queue that only one may have open is not opened.
    """
    if options.mode not in OFFLOADING:
        return
    report = examine()
    if not report.usable:
        remedy = next((one.remedy for one in reversed(report.checks) if not one.ok), "")
        raise OperationFailedError(
            f"mode={options.mode}: unavailable: {report.reason}", hint=remedy or None
        )


def offloaded(pair: Pairing, options: DtoOptions, run: Measuring) -> Pairing:
    """The pair with the device in front of what cannot offload by itself.

    Raises OperationFailedError: the device cannot be used. In other modes the pair itself.
    """
    if options.mode not in OFFLOADING:
        return pair
    try:
        return _Offloaded(pair, options, run)
    except DsaUnavailableError as error:
        raise OperationFailedError(f"mode={options.mode}: unavailable: {error}") from error


class _Offloaded:
    """A pair whose own kernels are what the CPU does beside the device."""

    def __init__(self, pair: Pairing, options: DtoOptions, run: Measuring) -> None:
        self._pair, self._options, self._run = pair, options, run
        self.layouts = pair.layouts
        self._dsa: list[Dsa | None] = [None, None]
        self._crossed: dict[str, Any] = {}
        names = sources_of(options).sides()
        for at, functions in enumerate(pair.functions(0)):
            if names[at] not in KERNELS:
                run.note(f"{_SIDES[at]}: {names[at]} is told to offload by its own variables")
                continue
            self._dsa[at] = dsa = Dsa(
                queues=options.queues,
                fallback=functions,
                timeout=options.dsa_timeout,
                wait=Wait[options.wait.upper()],
                near=options.near,
            )
            if options.mode == "dsa_auto":
                self._cross(at, dsa)

    def _cross(self, at: int, dsa: Dsa) -> None:
        """Measure from which size on the device pays, and have it do those alone."""
        most = min(max(2 * self._options.size, _CROSS_LEAST), _CROSS_MOST)
        crossed = dsa.cross(most, _PAIRS)[Op[self._options.op.upper()]]
        self._crossed[_SIDES[at]] = told(crossed)
        where = "at no size measured" if crossed.least == NOWHERE else f"from {crossed.least} bytes"
        self._run.note(f"{_SIDES[at]}: the device pays {where} on ({crossed.pairs} pairs a size)")

    def functions(self, layout: int) -> tuple[Functions, Functions]:
        """Baseline and current, the device in front."""
        first, second = (
            functions if dsa is None else dsa.functions
            for dsa, functions in zip(self._dsa, self._pair.functions(layout), strict=True)
        )
        return first, second

    def details(self) -> dict[str, Any]:
        """What was compared, and what the device did of it. The run is void when it hung."""
        details = self._pair.details()
        run, options = self._run, self._options
        for side, dsa in zip(_SIDES, self._dsa, strict=True):
            if dsa is None:
                continue
            counts = dsa.counts()[Op[options.op.upper()]]
            details[f"{side}_dsa"] = {
                "queues": dsa.queues(),
                "counts": counts,
                "statuses": dsa.statuses(),
                "crossover": self._crossed.get(side),
            }
            run.note(f"{side}: {in_words(counts)}")
            if counts["timeouts"]:
                run.void(
                    f"{side}: the device did not complete {counts['timeouts']} descriptors within"
                    f" {options.dsa_timeout:g} s and was given up"
                )
            if options.mode == "dsa" and not counts["descriptors"]:
                run.void(f"{side}: the device did nothing: {in_words(counts)}")
        return details

    def close(self) -> None:
        """Give queues and files back."""
        for dsa in self._dsa:
            if dsa is not None:
                dsa.close()
        self._pair.close()


def told(crossed: Crossover) -> dict[str, Any]:
    """A crossover for the result's details."""
    return crossed._asdict() | {"least": None if crossed.least == NOWHERE else crossed.least}


def in_words(counts: dict[str, int]) -> str:
    """What became of the calls.

    >>> in_words({"calls": 10, "device_bytes": 3, "cpu_bytes": 1, "busy": 2, "small": 0})
    '10 calls, 75.0 % of their bytes by the device, 2 busy'
    """
    total = counts["device_bytes"] + counts["cpu_bytes"]
    words = [f"{counts['calls']} calls"]
    if total:
        words.append(f"{100 * counts['device_bytes'] / total:.1f} % of their bytes by the device")
    words += [
        f"{counts[name]} {text}" for name, text in _WHYS.items() if counts.get(name)
    ]
    return ", ".join(words)


_WHYS = {
    "small": "too small",
    "near_overlap": "overlap by all but a page",
    "busy": "busy",
    "refused": "without a queue",
    "faults": "page faults",
    "redone": "done again by the CPU",
    "nested": "in signal handlers",
    "timeouts": "never completed",
}

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
from opd_native.dsa import NOWHERE, Dsa, DsaUnavailableError, Wait, examine
from opd_native.dto import KERNELS, Op

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
        self._before: list[dict[str, int]] = [{}, {}]
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
        crossed = dsa.cross(Op[self._options.op.upper()], most, _PAIRS)
        self._crossed[_SIDES[at]] = told(crossed)
        where = f"at no size up to {crossed.sizes[-1]} bytes"
        if crossed.least != NOWHERE:
            where = f"from {crossed.least} bytes on"
        self._run.note(f"{_SIDES[at]}: the device pays {where} ({crossed.pairs} pairs a size)")
        self._before[at] = self._counts(dsa)

    def _counts(self, dsa: Dsa) -> dict[str, int]:
        return dsa.counts()[Op[self._options.op.upper()]]

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
        for side, dsa, before in zip(_SIDES, self._dsa, self._before, strict=True):
            if dsa is None:
                continue
            counts = {
                name: number - before.get(name, 0) for name, number in self._counts(dsa).items()
            }
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

    >>> in_words({"calls": 10, "device_bytes": 3, "cpu_bytes": 1, "busy": 2, "small": 4})
    '10 calls, 4 too small; of the others 75.0 % of the bytes by the device, 2 busy'
    """
    words = f"{counts['calls']} calls"
    small, total = counts["small"], counts["device_bytes"] + counts["cpu_bytes"]
    if small:
        words += f", {small} too small"
    if total:
        share = 100 * counts["device_bytes"] / total
        words += "; of the others " if small else ", "
        words += f"{share:.1f} % of the bytes by the device"
    whys = [f"{counts[name]} {text}" for name, text in _WHYS.items() if counts.get(name)]
    return ", ".join([words, *whys])


_WHYS = {
    "near_overlap": "overlap by all but a page",
    "busy": "busy",
    "refused": "without a queue",
    "faults": "page faults",
    "redone": "done again by the CPU",
    "nested": "in signal handlers",
    "timeouts": "never completed",
}

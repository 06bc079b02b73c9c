"""The core's and the uncore's frequency held still, where this machine lets them be.

What stood there is put back on every way out: a guard process waits for the
probe's end, whatever ends it (opd/dto.h).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from opd_native.dto import DtoError, Hold

if TYPE_CHECKING:
    from collections.abc import Callable

_SYS = Path("/sys")
_KHZ = 1000


class Wanted(NamedTuple):
    """Files to write with their values, and what cannot be held still, and why."""

    settings: list[tuple[str, str]]
    notes: list[str]


def wanted(cpu: int, core_mhz: int, uncore_mhz: int, sys: Path = _SYS) -> Wanted:
    """What is to be written for these frequencies; 0: leave it."""
    found = Wanted([], [])
    cpus = sys / "devices/system/cpu"
    if core_mhz:
        place = cpus / f"cpu{cpu}/cpufreq"
        names = ("scaling_max_freq", "scaling_min_freq")
        limits = _number(place / "cpuinfo_min_freq"), _number(place / "cpuinfo_max_freq")
        if not place.is_dir():
            found.notes.append(f"core frequency not pinned: CPU {cpu} has no cpufreq here")
        else:
            _add(found, "core", core_mhz, [place / name for name in names], limits)
    if uncore_mhz:
        package = _number(cpus / f"cpu{cpu}/topology/physical_package_id")
        dies = sorted((cpus / "intel_uncore_frequency").glob(f"package_{package or 0:02}_die_*"))
        if not dies:
            found.notes.append("uncore frequency not pinned: no driver for it here")
        for die in dies:
            limits = _number(die / "initial_min_freq_khz"), _number(die / "initial_max_freq_khz")
            files = [die / "max_freq_khz", die / "min_freq_khz"]
            _add(found, "uncore", uncore_mhz, files, limits)
    return found


def _add(
    found: Wanted,
    what: str,
    mhz: int,
    files: list[Path],
    limits: tuple[int | None, int | None],
) -> None:
    if not all(os.access(file, os.W_OK) for file in files):
        found.notes.append(f"{what} frequency not pinned: {files[0]} is not writable (needs root)")
        return
    khz = mhz * _KHZ
    least, most = limits
    if least is not None and most is not None and not least <= khz <= most:
        khz = min(max(khz, least), most)
        found.notes.append(
            f"{what} frequency pinned at {khz // _KHZ} MHz: {mhz} MHz is beyond"
            f" {least // _KHZ} to {most // _KHZ}"
        )
    found.settings.extend((str(file), str(khz)) for file in files)


def hold(asked: Wanted, note: Callable[[str], None]) -> Hold | None:
    """Write it, and say what could not be; None when there is nothing to put back."""
    for text in asked.notes:
        note(text)
    if not asked.settings:
        return None
    try:
        held = Hold(asked.settings)
    except DtoError as error:
        note(f"frequencies not pinned: {error}")
        return None
    shown = ", ".join(f"{Path(path).name}={value}" for path, value in asked.settings)
    note(f"pinned: {shown}")
    return held


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None  # not of this kernel

"""The IBS PMUs of this machine as sysfs tells them: nothing of them is taken for granted."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from opd.sampling.kernel import cpuid
from opd_native.ibs import Machine

DEVICES = "/sys/bus/event_source/devices"
_WORDS = ("config", "config1", "config2")


class Field(NamedTuple):
    """Where a value goes: which word of the attr, and its bits from the lowest."""

    word: str
    bits: tuple[int, ...]

    def place(self, value: int) -> int:
        """The value in the word. ValueError: it does not fit."""
        if value >> len(self.bits):
            raise ValueError(f"{value} needs more than {len(self.bits)} bits")
        return sum((value >> at & 1) << bit for at, bit in enumerate(self.bits))


class Pmu(NamedTuple):
    """One PMU: its dynamic type, format fields and the texts of its caps."""

    name: str
    type: int
    fields: dict[str, Field]
    caps: dict[str, str]


class PmuError(Exception):
    """A PMU whose files cannot be read; the message names the file."""


def missing(name: str) -> str:
    """Why a machine without the PMU cannot run the feature."""
    return f"no {name} PMU (virtual machine / not AMD / disabled in BIOS: caps 0)"


def read_pmu(name: str, devices: str = DEVICES) -> Pmu | None:
    """The PMU called ``name``, None when there is none. Raises PmuError."""
    folder = Path(devices, name)
    try:
        text = (folder / "type").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise PmuError(f"{folder / 'type'}: cannot read it: {error}") from error
    if not text.isdigit():
        raise PmuError(f"{folder / 'type'}: expected a number, got {text[:40]!r}")
    return Pmu(
        name,
        int(text),
        {file.name: _field(file) for file in _files(folder / "format")},
        {file.name: _text(file) for file in _files(folder / "caps")},
    )


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if file.is_file())
    except FileNotFoundError:
        return []  # older kernels have no caps
    except OSError as error:
        raise PmuError(f"{folder}: cannot read it: {error}") from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PmuError(f"{file}: cannot read it: {error}") from error


def _field(file: Path) -> Field:
    """``config:0-15,20-26``. Raises PmuError."""
    text = _text(file)
    word, _, ranges = text.partition(":")
    bits: list[int] = []
    try:
        for part in ranges.split(","):
            low, _, high = part.partition("-")
            bits += range(int(low), int(high or low) + 1)
        good = word in _WORDS and bits and max(bits) < 64
    except ValueError:
        good = False
    if not good:
        raise PmuError(f"{file}: expected such as config:0-15,20, got {text[:60]!r}")
    return Field(word, tuple(bits))


def read_machine(proc: str = "/proc", release: str = "") -> Machine | None:
    """Family and model of this machine, None unless AMD made it."""
    return Machine.of(cpuid(proc), release)

"""PMUs as sysfs tells them: number, fields of their events, named events, abilities."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from opd.errors import EventError

DEVICES = "bus/event_source/devices"
_FIELD = re.compile("(config[0-9]?):([0-9,-]+)")
_RANGE = re.compile("([0-9]{1,2})(?:-([0-9]{1,2}))?")
_FILE_BYTES = 4096
_DIGITS = re.compile("[0-9]{1,10}")
# Suffixes of files beside an event's, which say how to read it.
_BESIDE = (".scale", ".unit", ".snapshot", ".per-pkg", ".retirement_latency")

# What the kernel shows of PMUs that a machine may lack: there what is asked for
# is still understood, and refused for the machine, not for its words.
_ELSEWHERE = {
    "cpu": {
        "event": "config:0-7,32-35",
        "umask": "config:8-15",
        "edge": "config:18",
        "inv": "config:23",
        "cmask": "config:24-31",
    },
    "ibs_fetch": {
        "maxcnt": "config:0-15",
        "rand_en": "config:57",
        "l3missonly": "config:59",
        "fetchlat": "config1:0-10",
        "swfilt": "config2:0",
    },
    "ibs_op": {
        "maxcnt": "config:0-15,20-26",
        "l3missonly": "config:16",
        "cnt_ctl": "config:19",
        "ldlat": "config1:0-11",
        "strmst": "config1:12",
        "swfilt": "config2:0",
    },
}


class Field(msgspec.Struct, frozen=True):
    """Bits of one of the config words; the value's lowest go into the first range."""

    word: str
    ranges: tuple[tuple[int, int], ...]

    @property
    def bits(self) -> int:
        """How wide a value it takes."""
        return sum(last - first + 1 for first, last in self.ranges)

    def put(self, value: int) -> int:
        """The value where it belongs in the word. Raises ValueError when it is too wide."""
        if value >> self.bits:
            raise ValueError(f"{value:#x} has more than {self.bits} bits")
        word = 0
        for first, last in self.ranges:
            width = last - first + 1
            word |= (value & ((1 << width) - 1)) << first
            value >>= width
        return word

    def __str__(self) -> str:
        parts = [f"{a}" if a == b else f"{a}-{b}" for a, b in self.ranges]
        return f"{self.word}:{','.join(parts)}"


class Pmu(msgspec.Struct, frozen=True, kw_only=True):
    """One PMU. ``type`` None: this machine has none such, ``fields`` are the kernel's elsewhere.

    ``events`` are named events as their terms, ``caps`` abilities by name, both
    as sysfs has them. ``cpus`` are those it counts on, "" for all.
    """

    name: str
    type: int | None
    fields: dict[str, Field]
    events: dict[str, str] = {}
    caps: dict[str, str] = {}
    cpus: str = ""


def pmu_names(*, sysfs: str = "/sys") -> list[str]:
    """The PMUs of this machine, in order of name."""
    try:
        return sorted(os.listdir(f"{sysfs}/{DEVICES}"))  # noqa: PTH208
    except OSError:
        return []


def read_pmu(name: str, *, sysfs: str = "/sys") -> Pmu | None:
    """The PMU of that name; None when neither this machine nor others have one.

    Raises EventError for files that say what nobody understands.
    """
    place = Path(sysfs, DEVICES, name)
    if "/" in name or name in {"", ".", ".."} or not place.is_dir():
        known = _ELSEWHERE.get(name)
        if known is None:
            return None
        fields = {term: parse_field(text) for term, text in known.items()}
        return Pmu(name=name, type=None, fields=fields)
    number = _text(place / "type")
    if not _DIGITS.fullmatch(number):
        raise EventError(f"PMU {name!r}: expected a number in {place / 'type'}, got {number!r}")
    fields = {}
    for term, text in _files(place / "format").items():
        try:
            fields[term] = parse_field(text)
        except ValueError as error:
            raise EventError(f"PMU {name!r}: {place / 'format' / term}: {error}") from error
    events = {
        event: terms
        for event, terms in _files(place / "events").items()
        if not event.endswith(_BESIDE)
    }
    return Pmu(
        name=name,
        type=int(number),
        fields=fields,
        events=events,
        caps=_files(place / "caps"),
        cpus=_text(place / "cpumask") or _text(place / "cpus"),
    )


def parse_field(text: str) -> Field:
    """``config:0-7,32-35``. Raises ValueError when it is not of that form."""
    match = _FIELD.fullmatch(text.strip())
    ranges = []
    for part in match[2].split(",") if match else [""]:
        bits = _RANGE.fullmatch(part)
        if match is None or bits is None:
            raise ValueError(f"expected bits such as config:0-7,32-35, got {text[:80]!r}")
        first, last = int(bits[1]), int(bits[2] or bits[1])
        if not first <= last <= 63:
            raise ValueError(f"expected bits from 0 to 63, got {text[:80]!r}")
        ranges.append((first, last))
    assert match is not None  # noqa: S101 - or the loop had raised
    return Field(match[1], tuple(ranges))


def _files(place: Path) -> dict[str, str]:
    try:
        names = sorted(os.listdir(place))  # noqa: PTH208
    except OSError:
        return {}
    return {name: _text(place / name) for name in names if (place / name).is_file()}


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(_FILE_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""

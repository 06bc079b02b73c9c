"""CPU types: which one this machine is, and where their events files are.

A type is a folder such as ``x86-64/family19`` with the files ``events`` and
``unit_masks``. Each is looked for in the directory of the settings first
(default /etc/opd/events), then among those that opd brings.
"""

from __future__ import annotations

import functools
import platform
import re
from pathlib import Path

from opd.config.nearest import did_you_mean
from opd.errors import EventError

TIMER = "timer"
GENERIC = "x86-64/generic"
OVERRIDES = "/etc/opd/events"
# What others include; nothing is of such a type.
BASES = frozenset({"x86-64/ibs", "x86-64/ibs-zen"})

# By vendor, then CPUID's family: AMD's names have it in hexadecimal.
_FAMILIES = {
    "AuthenticAMD": {
        0x10: "x86-64/family10",
        0x12: "x86-64/family12",
        0x14: "x86-64/family14",
        0x15: "x86-64/family15",
        0x17: "x86-64/family17",
        0x19: "x86-64/family19",
        0x1A: "x86-64/family1a",
    },
    "HygonGenuine": {0x18: "x86-64/family17"},  # a Zen of its own number
}
# What a machine can be found to be. Of any other type it is when somebody says so.
DETECTED = frozenset(
    {TIMER, GENERIC, *(name for families in _FAMILIES.values() for name in families.values())}
)
_WORD = r"[A-Za-z0-9][\w.+-]{0,31}"
_TYPE = re.compile(f"{_WORD}(/{_WORD})?", re.ASCII)
_CPUINFO_BYTES = 1 << 14


@functools.cache
def shipped() -> Path:
    """The events files that opd brings: in the package, or in the source it runs from."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "etc" / "events"
    return inside if inside.is_dir() else package.parent.parent / "etc" / "opd" / "events"


def search_path(events_dir: str = "") -> tuple[Path, ...]:
    """Where a CPU type's files are looked for, first come first."""
    return Path(events_dir or OVERRIDES), shipped()


def detect(*, proc: str = "/proc", machine: str | None = None) -> str:
    """This machine's CPU type, by CPUID's vendor and family as /proc/cpuinfo tells them.

    An x86-64 of another maker or family is ``x86-64/generic``, any other
    machine ``timer``.
    """
    facts = _cpuinfo(proc)
    known = _FAMILIES.get(facts.get("vendor_id", ""), {})
    family = facts.get("cpu family", "")
    if family.isdecimal() and int(family) in known:
        return known[int(family)]
    x86 = (machine or platform.machine()) in {"x86_64", "amd64"}
    return GENERIC if x86 and "vendor_id" in facts else TIMER


def is_amd(*, proc: str = "/proc") -> bool:
    """Whether it is a CPU of AMD's, whatever its family."""
    return _cpuinfo(proc).get("vendor_id", "") in _FAMILIES


def _cpuinfo(proc: str) -> dict[str, str]:
    try:
        with Path(proc, "cpuinfo").open("rb") as stream:
            text = stream.read(_CPUINFO_BYTES).decode(errors="replace")
    except OSError:
        return {}
    facts = {}
    for line in text.partition("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    return facts


def known_types(path: tuple[Path, ...]) -> list[str]:
    """Every CPU type that has an events file, in order of name."""
    found = set()
    for place in path:
        for file in [*place.glob("*/events"), *place.glob("*/*/events")]:
            name = str(file.parent.relative_to(place))
            if _TYPE.fullmatch(name) and name not in BASES:
                found.add(name)
    return sorted(found)


def check_type(name: str, path: tuple[Path, ...]) -> str:
    """The type meant by ``name``; ``x86-64/family10h`` is ``x86-64/family10`` too.

    Raises EventError that lists those that there are.
    """
    there = known_types(path)
    for meant in (name, name.removesuffix("h"), name + "h"):
        if meant in there:
            return meant
    raise EventError(
        f"unknown CPU type {name[:80]!r}{did_you_mean(name, there)}",
        hint=f"valid: {', '.join(there)}",
    )


def find_file(name: str, file: str, path: tuple[Path, ...]) -> Path | None:
    """The first ``NAME/FILE`` along the path; None when there is none."""
    if not _TYPE.fullmatch(name):
        return None
    for place in path:
        candidate = place / name / file
        if candidate.exists():
            return candidate
    return None

"""The events of a CPU type, read from its events files (oprofile's format).

``event:0xNN [counters:a,b,… | ext:WORD] um:MASK[,MASK…] minimum:N name:NAME : text``,
one a line, ``#`` a comment; ``include:CPU`` alone on its line, before them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from opd.config.problems import raise_problems
from opd.events.catalogue import BY_NAME
from opd.events.cputype import find_file
from opd.events.files import Line, Problems, read_lines, split_includes
from opd.events.unitmasks import ZERO, UnitMask, merge, parse_unit_masks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INCLUDES_MOST = 8
EVENTS_MOST = 4096
COUNTER_MOST = 31
# How many there are where CPUID has to be asked: what every such CPU has.
CPUID_COUNTERS = (0, 1, 2, 3)

_TAGS = frozenset({"event", "counters", "ext", "um", "minimum", "name", "filter"})
_EVENT = re.compile("0[xX][0-9a-fA-F]{1,8}")
_DECIMAL = re.compile("[0-9]{1,18}")
# Without blanks, and without what a SPEC and a path are made of.
_NAME = re.compile("[A-Za-z0-9_][!-~]{0,127}")
_NOT_IN_NAMES = frozenset(":,'\"\\")
_WORD = re.compile(r"[A-Za-z_][\w-]{0,63}", re.ASCII)


class CpuEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a CPU type.

    ``counters`` are those that can count it, empty when it needs none;
    ``ext`` is the feature that has it, or "". ``minimum`` is the least count.
    """

    name: str
    number: int
    counters: tuple[int, ...] = ()
    ext: str = ""
    mask: UnitMask = ZERO
    minimum: int = 0
    text: str = ""
    place: str = ""


class CpuEvents(msgspec.Struct, frozen=True, kw_only=True):
    """All events of a CPU type, in the order of the files; one name may stand for several,
    which differ by their unit masks.
    """  # noqa: D205 - one sentence

    cpu_type: str
    events: tuple[CpuEvent, ...]
    by_name: dict[str, list[CpuEvent]]

    @property
    def counters(self) -> int:
        """How many counters the CPU has, as far as its events tell."""
        return max((max(event.counters) + 1 for event in self.events if event.counters), default=0)


def load(cpu_type: str, path: tuple[Path, ...]) -> CpuEvents:
    """Read the files of a CPU type, and what they include.

    Raises one ConfigError with every mistake: file, line, reason.
    """
    problems = Problems()
    events = _load(cpu_type, path, problems)
    raise_problems(problems.all())
    by_name: dict[str, list[CpuEvent]] = {}
    for event in events:
        by_name.setdefault(event.name, []).append(event)
    return CpuEvents(cpu_type=cpu_type, events=tuple(events), by_name=by_name)


def _load(cpu_type: str, path: tuple[Path, ...], problems: Problems) -> list[CpuEvent]:
    masks: dict[str, UnitMask | None] = {ZERO.name: ZERO}
    own: dict[str, str] = {}
    for at, lines in _included(cpu_type, "unit_masks", path, problems):
        # A type's own masks take the place of those it includes.
        read = parse_unit_masks(lines)
        masks |= read
        own = dict.fromkeys(read, f"{lines[0].file}") if at == cpu_type and lines else own
    events: list[CpuEvent] = []
    used: set[str] = set()
    for _, lines in _included(cpu_type, "events", path, problems):
        for line in lines:
            event = _read_event(line, masks, used)
            if event is not None and len(events) < EVENTS_MOST:
                events.append(event)
            elif event is not None:
                line.refuse(f"more than {EVENTS_MOST} events")
                break
    # Those of another directory than the events serve more than these.
    beside = _same_folder(cpu_type, path)
    for name, file in own.items():
        if beside and name not in used and name != ZERO.name:
            problems.add(file, f"unit mask {name!r} is used by no event of {cpu_type}")
    return events


def _same_folder(cpu_type: str, path: tuple[Path, ...]) -> bool:
    files = [find_file(cpu_type, file, path) for file in ("events", "unit_masks")]
    return len({file.parent for file in files if file is not None}) == 1


def _included(
    cpu_type: str, file: str, path: tuple[Path, ...], problems: Problems
) -> Iterator[tuple[str, list[Line]]]:
    """``(CPU type, lines)`` of all that is included, then of the type itself."""
    done: list[str] = []

    def visit(name: str, line: Line | None, chain: tuple[str, ...]) -> None:
        where = find_file(name, file, path)
        if where is None:
            if line is not None:
                line.refuse(f"include: there is no {file} of CPU type {name[:80]!r}")
            elif file == "events":
                problems.add(name, "this CPU type has no events file")
            return
        if name in chain:
            assert line is not None  # noqa: S101 - a chain begins without a line
            line.refuse(f"include: {' includes '.join((*chain, name))}, itself")
            return
        if len(chain) >= INCLUDES_MOST:
            assert line is not None  # noqa: S101
            line.refuse(f"include: more than {INCLUDES_MOST} deep")
            return
        if name in done:
            return
        done.append(name)
        includes, lines = split_includes(read_lines(where, problems))
        for at, wanted in includes:
            if lines and lines[0].number < at.number:
                at.refuse("include: stands before all else")
                continue
            visit(wanted, at, (*chain, name))
        found.append((name, lines))

    found: list[tuple[str, list[Line]]] = []
    visit(cpu_type, None, ())
    yield from found


def _read_event(line: Line, masks: dict[str, UnitMask | None], used: set[str]) -> CpuEvent | None:
    if line.indented and not line.text.strip().startswith("event:"):
        line.refuse(f"expected event:, got {line.text.strip()[:40]!r}")
        return None
    tags = line.tags(_TAGS, described=True)
    if tags is None:
        return None
    reasons = list(_wrong_tags(tags))
    mask = ZERO
    names = tags.get("um", ZERO.name).split(",")
    used.update(names)
    unknown = [name for name in names if name not in masks]
    if unknown:
        reasons.append(f"um: there is no unit mask {unknown[0][:40]!r}")
    else:
        right = [found for name in names if (found := masks[name]) is not None]
        try:
            # One that is wrong has been told of where it stands.
            mask = merge(right) if len(right) == len(names) else ZERO
        except ValueError as error:
            reasons.append(f"um: {error}")
    for reason in reasons:
        line.refuse(reason)
    if reasons:
        return None
    return CpuEvent(
        name=tags["name"],
        number=int(tags["event"], 16),
        counters=_counters(tags.get("counters", "")) or (),
        ext=tags.get("ext", ""),
        mask=mask,
        minimum=int(tags["minimum"]),
        text=tags.get("", ""),
        place=line.place,
    )


def _wrong_tags(tags: dict[str, str]) -> Iterator[str]:
    """Reasons, one for each tag that is missing or wrong."""
    for tag in ("event", "um", "minimum", "name"):
        if tag not in tags:
            yield f"{tag}: is missing"
    if "counters" in tags and "ext" in tags:
        yield "counters: and ext: exclude each other"
    for tag, value in tags.items():
        reason = _CHECKS[tag](value) if tag in _CHECKS else ""
        if reason:
            yield f"{tag}: {reason}"


def _wrong_number(value: str) -> str:
    return "" if _DECIMAL.fullmatch(value) else f"expected a number, got {value[:40]!r}"


def _wrong_event(value: str) -> str:
    good = _EVENT.fullmatch(value)
    return "" if good else f"expected a number such as 0x76, got {value[:40]!r}"


def _wrong_counters(value: str) -> str:
    if _counters(value) is not None:
        return ""
    return f"expected numbers from 0 to {COUNTER_MOST} by commas, or cpuid, got {value[:40]!r}"


def _wrong_ext(value: str) -> str:
    return "" if _WORD.fullmatch(value) else f"expected the name of a feature, got {value[:40]!r}"


def _wrong_name(name: str) -> str:
    if "/" in name or "." in name:
        return f"{name[:40]!r} has a / or a ."
    if not _NAME.fullmatch(name) or _NOT_IN_NAMES & set(name):
        return f"expected a word of letters, digits and _, got {name[:40]!r}"
    return f"{name!r} is perf's, and stands for that" if name in BY_NAME else ""


_CHECKS = {
    "event": _wrong_event,
    "counters": _wrong_counters,
    "ext": _wrong_ext,
    "minimum": _wrong_number,
    "filter": _wrong_number,
    "name": _wrong_name,
}


def _counters(text: str) -> tuple[int, ...] | None:
    """The counters of a list, None when it is wrong."""
    if text == "cpuid":
        return CPUID_COUNTERS
    counters = set()
    for part in text.split(",") if text else []:
        if not _DECIMAL.fullmatch(part) or int(part) > COUNTER_MOST:
            return None
        counters.add(int(part))
    return tuple(sorted(counters))

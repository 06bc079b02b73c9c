"""Unit masks: the file ``unit_masks`` of a CPU type, and which masks an event takes.

``name:NAME type:mandatory|bitmask|exclusive default:0xHH|ENTRYNAME`` begins
one; its entries follow, indented: ``0xHH [extra:[FLAGS] NAME] description``.
FLAGS, by commas, are ``edge inv any none pebs cmask=0xHH``. ``include:CPU``
takes over those of another CPU type.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from opd.config.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opd.events.files import Line

MaskType = Literal["mandatory", "bitmask", "exclusive"]

ENTRIES_MOST = 64
VALUE_MOST = 0xFFFF
_TYPES = ("mandatory", "bitmask", "exclusive")
_HEX = re.compile("0[xX][0-9a-fA-F]{1,8}")
_NUMBER = re.compile("0[xX][0-9a-fA-F]{1,8}|[0-9]{1,9}")
_WORD = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)
_FLAGS = {"edge": 1 << 18, "pebs": 1 << 19, "any": 1 << 21, "none": 1 << 22, "inv": 1 << 23}


class MaskEntry(msgspec.Struct, frozen=True):
    """One mask: its bits, what else it sets in the control register, its name (or "")."""

    value: int
    text: str
    name: str = ""
    extra: int = 0


class UnitMask(msgspec.Struct, frozen=True):
    """The masks of an event; ``default`` is a value, or an entry's name."""

    name: str
    type: MaskType
    default: int | str
    entries: tuple[MaskEntry, ...]

    def choose(self, token: str) -> tuple[int, int]:
        """``(mask, extra bits)`` of what was typed; "" is the default.

        Raises ValueError with what is wrong, and the masks that are right.
        """
        if not token:
            if isinstance(self.default, str):
                return self._named(self.default)
            return self._default_value(self.default)
        if not token[0].isdigit():
            return self._named(token)
        value = _number(token) if _NUMBER.fullmatch(token) else VALUE_MOST + 1
        return self._valued(token, value)

    def _named(self, token: str) -> tuple[int, int]:
        found = {(entry.value, entry.extra) for entry in self.entries if entry.name == token}
        if len(found) == 1:
            return found.pop()
        if found:
            numbers = " or ".join(f"{value:#04x}" for value, _ in sorted(found))
            raise ValueError(f"unit mask {token!r} is ambiguous: say {numbers}")
        names = [entry.name for entry in self.entries if entry.name]
        near = did_you_mean(token, names)
        raise ValueError(f"unknown unit mask {token!r}{near}; {self.describe()}")

    def _default_value(self, value: int) -> tuple[int, int]:
        # The first, where a value is there twice: as oprofile does.
        exact = [entry for entry in self.entries if entry.value == value]
        return (value, exact[0].extra) if exact else (value, 0)

    def _valued(self, token: str, value: int) -> tuple[int, int]:
        exact = [entry for entry in self.entries if entry.value == value]
        if len(exact) > 1:
            names = " or ".join(entry.name for entry in exact)
            raise ValueError(f"unit mask {token[:20]!r} is ambiguous: say {names}")
        if exact:
            return value, exact[0].extra
        parts = [entry for entry in self.entries if entry.value and entry.value & value]
        union = 0
        for entry in parts:
            if entry.value & ~value == 0:
                union |= entry.value
        if self.type != "bitmask" or value == 0 or union != value:
            raise ValueError(
                f"unit mask {token[:20]!r} is not one of this event: {self.describe()}"
            )
        values = [entry.value for entry in parts if entry.value & ~value == 0]
        doubled = next((each for each in values if values.count(each) > 1), None)
        if doubled is not None:
            raise ValueError(
                f"unit mask {token[:20]!r} is ambiguous: {doubled:#04x} stands for"
                f" {' or '.join(entry.name for entry in parts if entry.value == doubled)}"
            )
        return value, 0

    def describe(self) -> str:
        """The masks that are right, in one line."""
        entries = [
            f"{entry.value:#04x}" + (f" ({entry.name})" if entry.name else "")
            for entry in self.entries
        ]
        if self.type == "mandatory":
            return f"only {entries[0]} is right"
        default = self.default if isinstance(self.default, str) else f"{self.default:#04x}"
        how = "any of" if self.type == "exclusive" else "any combination of"
        return f"{how} {', '.join(entries)}; default {default}"


def _number(text: str) -> int:
    return int(text, 16 if text[:2].lower() == "0x" else 10)


ZERO = UnitMask("zero", "mandatory", 0, (MaskEntry(0, "no unit mask"),))


def merge(masks: list[UnitMask]) -> UnitMask:
    """Several as one. Raises ValueError when they do not go together."""
    if len(masks) == 1:
        return masks[0]
    types = {mask.type for mask in masks}
    if len(types) > 1 or "mandatory" in types:
        raise ValueError("unit masks go together when all are bitmask, or all exclusive")
    entries = tuple(entry for mask in masks for entry in mask.entries)
    if len(entries) > ENTRIES_MOST:
        raise ValueError(f"more than {ENTRIES_MOST} entries together")
    name = ",".join(mask.name for mask in masks)
    return UnitMask(name, masks[0].type, masks[0].default, entries)


class _Draft:
    """A mask while its entries are read."""

    def __init__(self, line: Line, name: str, kind: MaskType, default: int | str) -> None:
        self.line, self.name, self.kind, self.default = line, name, kind, default
        self.entries: list[MaskEntry] = []
        self.broken = False


def parse_unit_masks(lines: Iterable[Line]) -> dict[str, UnitMask | None]:
    """The masks of one file by name, None for one that is wrong.

    What is wrong is told to ``line.refuse``.
    """
    drafts: list[_Draft] = []
    orphaned = False
    for line in lines:
        if not line.indented:
            draft = _read_head(line)
            orphaned = draft is None
            if draft is not None:
                drafts.append(draft)
        elif drafts and not orphaned:
            draft = drafts[-1]
            draft.broken = not _read_entry(line, draft) or draft.broken
        elif not orphaned:
            line.refuse("an entry before the first name:")
    masks: dict[str, UnitMask | None] = {}
    for draft in drafts:
        if draft.name in masks:
            draft.line.refuse(f"unit mask {draft.name!r} is there twice")
        elif draft.broken:
            masks[draft.name] = None
        elif reason := _incoherent(draft):
            draft.line.refuse(f"unit mask {draft.name!r}: {reason}")
            masks[draft.name] = None
        else:
            masks[draft.name] = UnitMask(
                draft.name, draft.kind, draft.default, tuple(draft.entries)
            )
    return masks


def _read_head(line: Line) -> _Draft | None:
    tags = line.tags({"name", "type", "default"}, described=False)
    if tags is None:
        return None
    wrong = False
    for tag in ("name", "type", "default"):
        if tag not in tags:
            line.refuse(f"{tag}: is missing")
            wrong = True
    name = tags.get("name", "x")
    if not _WORD.fullmatch(name):
        line.refuse(f"name: expected a word, got {name[:40]!r}")
        wrong = True
    kind = tags.get("type", "mandatory")
    if kind not in _TYPES:
        near = did_you_mean(kind, _TYPES)
        line.refuse(f"type: expected mandatory, bitmask or exclusive, got {kind[:40]!r}{near}")
        wrong = True
    typed = tags.get("default", "0x0")
    default: int | str = typed
    if _HEX.fullmatch(typed):
        default = int(typed, 16)
    elif not _WORD.fullmatch(typed):
        line.refuse(f"default: expected a mask such as 0x01 or an entry's name, got {typed[:40]!r}")
        wrong = True
    return None if wrong else _Draft(line, name, kind, default)  # type: ignore[arg-type]


def _read_entry(line: Line, draft: _Draft) -> bool:
    """Add the entry; whether it is right."""
    value, *behind = line.text.split(None, 1)
    if not _HEX.fullmatch(value) or int(value, 16) > VALUE_MOST:
        line.refuse(f"expected a mask such as 0x01 (at most {VALUE_MOST:#x}), got {value[:40]!r}")
        return False
    extra, name, text = 0, "", behind[0].strip() if behind else ""
    if text.startswith("extra:"):
        words = text.removeprefix("extra:").split(None, 2)
        # FLAGS may be missing, and then there is a blank in their place.
        flags = "" if text[len("extra:") :][:1].isspace() or not words else words.pop(0)
        name, text = words[0] if words else "", " ".join(words[1:])
        bits = _read_extra(line, flags)
        if bits is None:
            return False
        extra = bits
        if not _WORD.fullmatch(name):
            line.refuse(f"extra: expected a name behind it, got {name[:40]!r}")
            return False
    if len(draft.entries) == ENTRIES_MOST:
        line.refuse(f"unit mask {draft.name!r} has more than {ENTRIES_MOST} entries")
        return False
    draft.entries.append(MaskEntry(int(value, 16), text.strip(), name, extra))
    return True


def _read_extra(line: Line, flags: str) -> int | None:
    bits = 0
    for flag in flags.split(",") if flags else []:
        word, _, value = flag.partition("=")
        if word == "cmask" and _NUMBER.fullmatch(value) and _number(value) <= 0xFF:
            bits |= _number(value) << 24
        elif flag in _FLAGS:
            bits |= _FLAGS[flag]
        else:
            line.refuse(
                f"extra: expected {', '.join(_FLAGS)} or cmask=0xHH, by commas, got {flag[:40]!r}"
            )
            return None
    return bits


def _incoherent(draft: _Draft) -> str:
    """Why it cannot be right, or ""."""
    if not draft.entries:
        return "it has no entries"
    if draft.kind == "mandatory" and len(draft.entries) != 1:
        return f"a mandatory mask has one entry, it has {len(draft.entries)}"
    if isinstance(draft.default, str):
        known = any(entry.name == draft.default for entry in draft.entries)
        return "" if known else f"default: no entry is named {draft.default!r}"
    return _wrong_default(draft, draft.default)


def _wrong_default(draft: _Draft, default: int) -> str:
    values = [entry.value for entry in draft.entries]
    union = 0
    for value in values:
        if value & ~default == 0:
            union |= value
    if default in values or (draft.kind == "bitmask" and union == default != 0):
        return ""
    how = "covered by the entries" if draft.kind == "bitmask" else "an entry"
    return f"default: {default:#04x} is not {how}"

"""oprofile's ``ibs:fetch:EV,..:COUNT:UM|op:EV,..:COUNT:UM`` as ibs_fetch and ibs_op.

Facts of oprofile 0.9.9: all three fields are needed, COUNT is decimal, UM is
hex with or without 0x. Of ``op``: 0x01 counts dispatched ops (else cycles),
0x02 keeps memory accesses, 0x04 branch targets. ``fetch`` knows no bits.
"""

from __future__ import annotations

from opd.errors import ConfigError
from opd.features.arguments import Argument, AskedFeature, escape, shown

_DISPATCHED, _MEMORY, _BRANCH = 1, 2, 4
_HINT = "oprofile's form is ibs:fetch:EVENT,..:COUNT:MASK|op:EVENT,..:COUNT:MASK"


def parse_ibs(args: str, where: str) -> list[AskedFeature]:
    """The features of one argument. Raises ConfigError that names the token."""
    asked: list[AskedFeature] = []
    for section in (part.lstrip(" ") for part in args.split("|")):
        if not section:
            continue
        word, *fields = section.split(":")
        if word not in ("fetch", "op"):
            raise ConfigError(
                f"{where}: expected fetch or op, got {shown(word)}",
                hint=f"{_HINT}; the features are ibs_fetch and ibs_op",
            )
        if len(fields) != 3:
            raise ConfigError(
                f"{where}: {word} needs events, a count and a unit mask, got {shown(section)}",
                hint=_HINT,
            )
        name = f"ibs_{word}"
        if any(name == other.name for other in asked):
            raise ConfigError(f"{where}: {word} is given twice", hint=_HINT)
        asked.append(AskedFeature(name, tuple(_arguments(word, fields, where))))
    if not asked:
        raise ConfigError(f"{where}: neither fetch nor op", hint=_HINT)
    return asked


def _arguments(word: str, fields: list[str], where: str) -> list[Argument]:
    names, count, mask = fields
    events = names.split(",")
    if not all(events):
        raise ConfigError(f"{where}: an event without a name in {shown(names)}", hint=_HINT)
    if not (count.isascii() and count.isdigit() and int(count)):
        raise ConfigError(f"{where}: expected a count of 1 or more, got {shown(count)}", hint=_HINT)
    try:
        bits = int(mask, 16)
    except ValueError:
        raise ConfigError(
            f"{where}: expected a unit mask in hex, got {shown(mask)}", hint=_HINT
        ) from None
    allowed = _DISPATCHED | _MEMORY | _BRANCH if word == "op" else 0
    if bits & ~allowed or bits < 0:
        raise ConfigError(f"{where}: unit mask {shown(mask)}: {word} allows 0 to {allowed:#x}")
    given = {"events": "+".join(map(escape, events)), "count": count}
    if word == "op":
        given |= {
            "cnt_ctl": str(bits & _DISPATCHED),
            "memaccess": str(int(bool(bits & _MEMORY))),
            "branch_target": str(int(bool(bits & _BRANCH))),
        }
    return [Argument(key, text, where) for key, text in given.items()]

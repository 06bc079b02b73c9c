"""``--where 'unit=nginx.service and cpu=1'``: which samples an answer is about.

    expression   either ``and`` either, either ``or`` either, ``not`` either, ( expression )
    test         KEY=VALUE  KEY!=VALUE, and of numbers  <  <=  >  >=
    value        up to the next space or ``)``, or in '…' or "…"; of a text a pattern
                 as in opd.store.patterns

``not`` binds closest, then ``and``, then ``or``. Texts become sets of numbers
once; what is asked of each row is a look into a set.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from opd.errors import UnknownNameError, UsageError
from opd.store.keys import KEYS, MODES, KeyInfo, read_labels
from opd.store.patterns import Pattern
from opd_native.scan import LARGEST_CELL, InRange, InSet, Operator, Step

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Sequence

LENGTH_LIMIT = 4096
TESTS_LIMIT = 256
NESTING_LIMIT = 30  # two results may wait at each level, and a scan holds 64

_ORDERS = ("<=", ">=", "<", ">")
_OPERATORS = ("!=", "=", *_ORDERS)
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9-]*")
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_SHOWN = 72


class Comparison(NamedTuple):
    """``key operator value``; ``at``: where key, operator and value stand in the text."""

    key: str
    operator: str
    value: str
    at: tuple[int, int, int]


class Where:
    """A parsed expression: its tests and operators, operands before their operator."""

    def __init__(self, text: str) -> None:
        """Parse. Raises UsageError, or UnknownNameError for a key there is not."""
        self.text = text
        self.steps: list[Comparison | Operator] = []
        if len(text) > LENGTH_LIMIT:
            raise UsageError(
                f"--where has {len(text)} characters; at most {LENGTH_LIMIT} are taken"
            )
        self._at = 0
        self._depth = 0
        self._tests = 0
        self._skip()
        self._either()
        if self._at < len(text):
            self.fail(self._at, "expected 'and', 'or' or the end")

    @property
    def keys(self) -> set[str]:
        """The keys that are asked for."""
        return {step.key for step in self.steps if isinstance(step, Comparison)}

    def fail(self, at: int, what: str, *, hint: str = "", unknown: bool = False) -> NoReturn:
        """Raise with the text and a caret under what is wrong."""
        first = max(0, min(at - _SHOWN // 2, len(self.text) - _SHOWN))
        shown = self.text[first : first + _SHOWN]
        shown = "".join(letter if letter.isprintable() else "?" for letter in shown)
        before, after = "…" if first else "", "…" if first + _SHOWN < len(self.text) else ""
        caret = " " * (at - first + len(before)) + "^"
        kind = UnknownNameError if unknown else UsageError
        raise kind(f"--where: {what}\n  {before}{shown}{after}\n  {caret}", hint=hint or None)

    # ---- parsing

    def _skip(self) -> None:
        found = _SPACE.match(self.text, self._at)
        self._at = found.end() if found else self._at

    def _take(self, word: str) -> bool:
        found = _WORD.match(self.text, self._at)
        if found is None or found[0].lower() != word:
            return False
        self._at = found.end()
        self._skip()
        return True

    def _either(self) -> None:
        self._both()
        while self._take("or"):
            self._both()
            self.steps.append(Operator.OR)

    def _both(self) -> None:
        self._one()
        while self._take("and"):
            self._one()
            self.steps.append(Operator.AND)

    def _one(self) -> None:
        start = self._at
        self._depth += 1
        if self._depth > NESTING_LIMIT:
            self.fail(start, f"more than {NESTING_LIMIT} levels of 'not' and parentheses")
        if self._take("not"):
            self._one()
            self.steps.append(Operator.NOT)
        elif self.text.startswith("(", self._at):
            self._at += 1
            self._skip()
            self._either()
            if not self.text.startswith(")", self._at):
                self.fail(self._at, "expected 'and', 'or' or ')'")
            self._at += 1
            self._skip()
        else:
            self._test()
        self._depth -= 1

    def _test(self) -> None:
        start = self._at
        found = _WORD.match(self.text, start)
        if found is None:
            self.fail(
                start,
                "expected KEY=VALUE",
                hint="for example comm=nginx and not mode=kernel",
            )
        name = found[0]
        self._at = found.end()
        self._skip()
        key = KEYS.get(name.lower())
        if key is None:
            from opd.config.nearest import did_you_mean  # for mistakes alone

            self.fail(
                start,
                f"unknown key {name!r}{did_you_mean(name, KEYS)}",
                hint=f"valid: {', '.join(KEYS)}",
                unknown=True,
            )
        where = self._at
        operator = next((it for it in _OPERATORS if self.text.startswith(it, where)), None)
        if operator is None:
            self.fail(where, f"expected = or != after {name}")
        if operator in _ORDERS and key.kind != "number":
            self.fail(
                where,
                f"{key.name} is text and takes = or !=",
                hint="pid, thread and cpu are numbers",
            )
        self._at += len(operator)
        self._skip()
        at = self._at
        value = self._value()
        if key.kind == "number" and not _NUMBER.fullmatch(value):
            self.fail(at, f"{key.name} is a number")
        self._tests += 1
        if self._tests > TESTS_LIMIT:
            self.fail(start, f"more than {TESTS_LIMIT} tests")
        self.steps.append(Comparison(key.name, operator, value, (start, where, at)))

    def _value(self) -> str:
        start = self._at
        quote = self.text[start : start + 1]
        if quote and quote in "'\"":
            end = self.text.find(quote, start + 1)
            if end < 0:
                self.fail(start, f"this {quote} has no end")
            value = self.text[start + 1 : end]
            self._at = end + 1
        else:
            end, depth = start, 0
            while end < len(self.text) and not self.text[end].isspace():
                depth += {"(": 1, ")": -1}.get(self.text[end], 0)
                if depth < 0:
                    break
                end += 1
            value = self.text[start:end]
            self._at = end
            if not value:
                self.fail(start, "expected a value", hint="'' is the empty one")
        self._skip()
        return value

    # ---- what it means in a store

    def resolve(
        self,
        connection: sqlite3.Connection,
        events: Sequence[str],
        *,
        not_separated: Collection[str] = (),
    ) -> list[Step]:
        """The filter of a scan. ``events``: their names by number.

        UnknownNameError for a key in ``not_separated``.
        """
        known: dict[tuple[str, str], InSet] = {}
        steps: list[Step] = []
        for step in self.steps:
            if isinstance(step, Operator):
                steps.append(step)
                continue
            key = KEYS[step.key]
            if step.key in not_separated:
                valid = ", ".join(name for name in KEYS if name not in not_separated)
                self.fail(
                    step.at[0],
                    f"{step.key} was not separated in this session",
                    hint=f"valid: {valid}",
                    unknown=True,
                )
            if key.kind == "number":
                steps.append(_range_of(key, step))
            else:
                about = (step.key, step.value)
                if about not in known:
                    known[about] = _set_of(connection, key, step.value, events)
                steps.append(known[about])
            if step.operator == "!=":
                steps.append(Operator.NOT)
        return steps


def _range_of(key: KeyInfo, test: Comparison) -> InRange:
    """The cells (one more than the number) that pass; of ``!=`` those that do not."""
    number = int(test.value) + 1
    low, high = {
        "<": (0, number - 1),
        "<=": (0, number),
        ">": (number + 1, LARGEST_CELL),
        ">=": (number, LARGEST_CELL),
    }.get(test.operator, (number, number))
    low, high = max(low, 0), min(high, LARGEST_CELL)
    return InRange(key.column, low, high) if low <= high else InRange(key.column, 1, 0)


def _set_of(
    connection: sqlite3.Connection, key: KeyInfo, value: str, events: Sequence[str]
) -> InSet:
    """The cells whose text the pattern matches."""
    pattern = Pattern(value, paths=key.name in ("image", "cgroup"))
    if key.kind == "text":
        return InSet(key.column, bits_of(pattern.names(connection)))
    if key.kind == "label":
        labels = read_labels(connection, key.field)
        good = pattern.matching(connection, labels.texts)
        return InSet(
            key.column, bits_of(cell for cell, text in enumerate(labels.which) if good[text])
        )
    good = pattern.matching(connection, MODES if key.kind == "mode" else events)
    return InSet(key.column, bits_of(cell for cell, yes in enumerate(good) if yes))


def bits_of(numbers: Iterable[int]) -> bytearray:
    """A set of numbers, a bit each."""
    kept = list(numbers)
    bits = bytearray(max(kept, default=0) // 8 + 1)
    for number in kept:
        bits[number >> 3] |= 1 << (number & 7)
    return bits

"""Sample files as hooks see them, and their rows of a window as whole columns."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import msgspec

from opd.features.declared import U64_MOST

if TYPE_CHECKING:
    from collections.abc import Iterable


class SampleFile(msgspec.Struct, frozen=True):
    """What samples are counted under. ``tid`` and ``cpu`` are -1 unless kept apart.

    ``event`` is the event's name, ``image`` the path of the leaf's image ("":
    not known), ``mode`` ``user`` or ``kernel``, ``cgroup`` the number of its
    cgroup within the run, 0 for unknown, ``session`` which of the run's
    sessions, from 0.
    """

    event: str
    comm: str
    tgid: int
    image: str
    mode: str
    tid: int = -1
    cpu: int = -1
    cgroup: int = 0
    session: int = 0


class SampleWindow:
    """The rows of one sample file in one window: equally long columns, a cell a stack.

    ``sequence``, ``start_ns`` and ``end_ns`` (since 1970) are the window's.
    ``stack`` tells stacks of this window apart, ``hits`` counts samples,
    ``weight`` sums in the event's unit. Reading changes nothing.
    """

    def __init__(
        self,
        *,
        sequence: int,
        start_ns: int,
        end_ns: int,
        stack: array[int],
        hits: array[int],
        weight: array[int],
        columns: Iterable[str],
    ) -> None:
        self.sequence = sequence
        self.start_ns = start_ns
        self.end_ns = end_ns
        self.stack = stack
        self.hits = hits
        self.weight = weight
        self._columns = tuple(columns)
        self._set: dict[str, array[int]] = {}

    def __len__(self) -> int:
        return len(self.stack)

    def set_column(self, name: str, values: Iterable[int]) -> None:
        """Give an extra column that the event declares: a number of u64 for each row.

        Raises ValueError for a column that it does not declare, another number
        of values than rows, or one that does not fit.
        """
        if name not in self._columns:
            raise ValueError(f"no extra column {name!r}; there are: {' '.join(self._columns)}")
        column = array("Q")
        for value in values:
            if type(value) is not int or not 0 <= value <= U64_MOST:
                raise ValueError(f"{name}: a value is no u64")
            if len(column) == len(self.stack):
                raise ValueError(f"{name}: more than {len(self.stack)} values")
            column.append(value)
        if len(column) != len(self.stack):
            raise ValueError(f"{name}: expected {len(self.stack)} values, got {len(column)}")
        self._set[name] = column

    def take_columns(self) -> dict[str, array[int]]:
        """What was set; for opd, not for plugins."""
        return self._set

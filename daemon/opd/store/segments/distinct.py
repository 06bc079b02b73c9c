"""Distinct numbers of a column, without sorting it where the numbers are dense."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

# Numbers of the store begin at 1 and are given out in turn: mostly a table of all is small.
_WIDEST = 1 << 24


def distinct(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """The distinct numbers, ascending, and for each number which of them it is.

    >>> [column.tolist() for column in distinct(np.array([7, 3, 7]))]
    [[3, 7], [1, 0, 1]]
    """
    if not len(numbers):
        return numbers, numbers
    least = int(numbers.min())
    width = int(numbers.max()) - least + 1
    if width > max(_WIDEST, 4 * len(numbers)):
        values, which = np.unique(numbers, return_inverse=True)
        return values, which
    there = np.zeros(width, bool)
    there[numbers - least] = True
    which = (np.cumsum(there) - 1)[numbers - least]
    return np.flatnonzero(there) + least, which

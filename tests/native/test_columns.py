"""Whole columns from Python: what plain loops give."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opd_native import columns
from opd_native.errors import NativeError

u64 = st.integers(0, (1 << 64) - 1)


@given(st.lists(st.integers(0, 3)))
def test_runs(numbers):
    """Each number's run begins at the first of its equal neighbours."""
    which, firsts = columns.runs(array("I", numbers), 4, len(numbers))
    assert [numbers[firsts[run]] for run in which] == numbers
    assert list(firsts) == [i for i, n in enumerate(numbers) if i == 0 or n != numbers[i - 1]]


@given(st.lists(u64), u64)
def test_steps_and_shifts_undo(numbers, by):
    """Differences add up to the numbers, and a shift goes back, modulo 2**64."""
    at, back = by, []
    for step in columns.steps(array("Q", numbers), by):
        at = (at + step) % (1 << 64)
        back.append(at)
    assert back == numbers
    there = columns.shifted(array("Q", numbers), by)
    assert list(columns.shifted(there, -by)) == numbers
    kept = columns.shifted(array("Q", numbers), -1, but_zero=True)
    assert list(kept) == [max(number - 1, 0) for number in numbers]


def test_gather():
    """A look-up beyond the table is refused."""
    table = array("I", [7, 8])
    assert list(columns.gather(table, array("I", [1, 0, 1]))) == [8, 7, 8]
    with pytest.raises(NativeError):
        columns.gather(table, array("I", [2]))

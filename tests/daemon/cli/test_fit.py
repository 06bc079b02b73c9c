"""Rows fitted to a terminal."""

from __future__ import annotations

from opd.cli.fit import GAP, LEAST, fit

HEADER = ["samples", "percent", "comm", "image", "symbol"]
ROW = ["8", "10.00", "python3", "/usr/lib/x86_64-linux-gnu/libc.so.6", "__memmove_avx_unaligned"]


def width_of(table):
    """The widest line."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return sum(widths) + GAP * (len(widths) - 1)


def test_numbers_and_names_survive_a_terminal_of_80():
    """Folders go first, from the left; the rest is whole."""
    header, row = fit(HEADER, [ROW], 80)
    assert header == HEADER
    assert row[:3] == ROW[:3]
    assert row[3].startswith("…")
    assert row[3].endswith("/libc.so.6")
    assert row[4] == ROW[4]
    assert width_of([header, row]) <= 80


def test_a_narrow_terminal_cuts_symbols_too():
    """Then symbols, from the right; no column of text gets shorter than LEAST."""
    _, row = fit(HEADER, [ROW], 50)
    assert row[:3] == ROW[:3]
    assert len(row[3]) == LEAST
    assert row[4].endswith("…")


def test_what_fits_is_left_alone():
    """A wide terminal cuts nothing."""
    assert fit(HEADER, [ROW], 200) == [HEADER, ROW]

"""The closest valid words."""

from opd.config.nearest import did_you_mean, nearest


def test_close_words_come_best_first():
    """A letter swapped still finds the word."""
    assert nearest("cylces", ["cycles", "instructions"]) == ["cycles"]
    assert did_you_mean("cylces", ["cycles"]) == "; did you mean cycles?"


def test_nothing_close_says_nothing():
    """No guess is better than a wild one."""
    assert nearest("zzz", ["cycles"]) == []
    assert did_you_mean("zzz", ["cycles"]) == ""


def test_an_endless_word_is_cut():
    """A megabyte of junk costs no minutes."""
    assert nearest("x" * 1_000_000, ["cycles"]) == []

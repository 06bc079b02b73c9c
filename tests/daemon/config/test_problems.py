"""Mistakes told together."""

import pytest

from opd.config import Problem, raise_problems
from opd.errors import ConfigError, EventError


def test_no_problem_raises_nothing():
    """An empty list is fine."""
    raise_problems([])


def test_one_line_a_problem_with_place_and_key():
    """The message lists all, the data has them apart, a hint stands once."""
    problems = [
        Problem("f.toml", "a.b", "expected x", "try y"),
        Problem("--flag", "", "wrong", "try y"),
    ]
    with pytest.raises(ConfigError) as caught:
        raise_problems(problems)
    assert caught.value.message == "f.toml: a.b: expected x\n--flag: wrong"
    assert caught.value.hint == "try y"
    assert caught.value.data["problems"][0] == {
        "source": "f.toml",
        "key": "a.b",
        "message": "expected x",
    }
    assert not isinstance(caught.value, EventError)


def test_only_events_make_an_event_error():
    """The kind of error says what is wrong."""
    with pytest.raises(EventError):
        raise_problems([Problem("-e", "", "no", is_event=True)])

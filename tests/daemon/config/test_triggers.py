"""Triggers as they stand in opd.toml: what is read, and what a mistake is told."""

from __future__ import annotations

import pytest

from opd.config import load
from opd.config.triggers import Trigger, parse_condition, parse_trigger
from opd.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "what", "operator", "number"),
    [
        ("psi.cpu.some.avg10 > 40", ("psi", "cpu", ("some", "avg10")), ">", 40.0),
        ("psi.io.full.avg300>=0.5", ("psi", "io", ("full", "avg300")), ">=", 0.5),
        ("load15 < 2", ("load", "", ("15",)), "<", 2.0),
        ("unit:nginx.service cpu > 1.5", ("unit", "nginx.service", ()), ">", 1.5),
        ("cgroup:/a/b cpu <= 3", ("cgroup", "/a/b", ()), "<=", 3.0),
    ],
)
def test_conditions(text, what, operator, number):
    """Each form, with and without spaces."""
    condition = parse_condition(text)
    assert (condition.kind, condition.subject, condition.detail) == what
    assert (condition.operator, condition.number) == (operator, number)
    assert condition.holds(number) == ("=" in operator)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no comparison"),
        ("load1", "no comparison"),
        ("load1 > many", "'many' is not a number"),
        ("load1 > -1", "'-1' is not a number of 0 or more"),
        ("load1 > nan", "is not a number"),
        ("load2 > 1", "did you mean load1?"),
        ("psi.cpu.most.avg10 > 1", "did you mean psi.cpu.some.avg10"),
        ("unit:a.service > 1", "nothing is called 'unit:a.service'"),
        ("cgroup:a cpu > 1", "begins with /"),
    ],
)
def test_wrong_conditions_say_what_is_right(text, said):
    """The error has the wrong word and forms that are right."""
    with pytest.raises(ConfigError) as caught:
        parse_condition(text)
    assert said in str(caught.value)


def test_a_whole_table():
    """Times as texts or numbers of seconds; a word or a list of them."""
    trigger = parse_trigger(
        {
            "when": "load1 > 8",
            "hold": 5,
            "for": "1m",
            "rate": 999,
            "cooldown": "1h",
            "most_per_day": 2,
            "events": ["cpu-clock", "page-faults"],
            "comm": "nginx*",
        }
    )
    assert trigger == Trigger(
        when=parse_condition("load1 > 8"),
        hold=5.0,
        seconds=60.0,
        rate=999,
        cooldown=3600.0,
        most_per_day=2,
        events=("cpu-clock", "page-faults"),
        comms=("nginx*",),
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("for = '30s'", "trigger 1: it has no `when`"),
        ("when = 'load1 > 8'\nfro = '30s'", "no such key 'fro'; did you mean for?"),
        ("when = 'load1 > 8'\nfor = '30 weeks'", "trigger 1: for: expected a time"),
        ("when = 'load1 > 8'\nfor = 0", "expected a time from 1s"),
        ("when = 'load1 > 8'\nrate = 0.5", "rate: expected a whole number"),
        ("when = 'load1 > 8'\nevents = []", "events: expected a text or a list"),
        ("when = 8", "when: expected a text, got 8"),
        ("when = 'load9 > 8'", "when: nothing is called 'load9'"),
    ],
)
def test_mistakes_name_file_and_key(tmp_path, lines, said):
    """As with every other setting."""
    file = tmp_path / "opd.toml"
    file.write_text(f"[[burst.trigger]]\n{lines}\n")
    with pytest.raises(ConfigError) as caught:
        load(config_path=str(file), environ={})
    assert str(caught.value).startswith(f"{file}: burst.trigger: ")
    assert said in str(caught.value)


def test_the_second_of_two_is_named(tmp_path):
    """And a right file is read."""
    file = tmp_path / "opd.toml"
    good = "[[burst.trigger]]\nwhen = 'psi.memory.full.avg60 > 5'\n"
    file.write_text(good + "[[burst.trigger]]\nwhen = 'x'\n")
    with pytest.raises(ConfigError, match="trigger 2: when"):
        load(config_path=str(file), environ={})
    file.write_text(good * 2)
    assert len(load(config_path=str(file), environ={}).burst.trigger) == 2
    file.write_text(good * 17)
    with pytest.raises(ConfigError, match="at most 16"):
        load(config_path=str(file), environ={})

"""Flags, tables and events together: what runs, with which options."""

from __future__ import annotations

from typing import Annotated

import pytest
from inline_plugin import Inline, plugin_of

from opd.config.settings import Features
from opd.errors import ConfigError
from opd.features.asked import PulledIn, resolve
from opd.features.declared import Feature, Options, about


class IbsLike(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a feature that events pull in."""

    events: Annotated[tuple[str, ...], about("Which.")] = ("ALL",)
    count: Annotated[int, about("A period.", ge=10)] = 100
    memaccess: Annotated[bool, about("Keep accesses.")] = False


class Known:
    """A registry of one plugin."""

    def __init__(self):
        self.plugin = plugin_of(Inline(Feature(name="ibs_op", summary="x", options=IbsLike)))

    def find(self, name):
        """Give it, if that is its name."""
        if name != "ibs_op":
            raise ConfigError(f"no feature {name!r}", hint="a hint")
        return self.plugin, self.plugin.features[0]


def options_of(flags=(), tables=None, pulled=()):
    """Options of the one feature."""
    features = Features(flags=tuple(flags), tables=tables or {})
    [activation] = resolve(features, Known(), pulled)
    return activation.options


def test_nothing_asked_nothing_runs():
    """An empty list."""
    assert resolve(Features(), Known()) == []


def test_a_flags_option_wins_over_a_tables():
    """Key by key."""
    table = {"ibs_op": {"count": (50, "a.toml"), "memaccess": (True, "a.toml")}}
    assert options_of(["ibs-op:count=60"], table) == IbsLike(count=60, memaccess=True)


def test_flags_of_one_feature_add_up():
    """Only the same option twice is a mistake."""
    assert options_of(["ibs_op:count=60", "ibs_op:memaccess=1"]) == IbsLike(
        count=60, memaccess=True
    )
    with pytest.raises(
        ConfigError, match="count is already set by --ext-feature 'ibs_op:count=60'"
    ):
        options_of(["ibs_op:count=60", "ibs_op:count=70"])


def test_a_table_may_take_a_feature_back():
    """By enabled = false, of any file."""
    assert resolve(Features(tables={"ibs_op": {"enabled": (False, "b.toml")}}), Known()) == []
    assert options_of(tables={"ibs_op": {"enabled": (True, "b.toml")}}) == IbsLike()
    with pytest.raises(ConfigError, match=r"b.toml: feature.ibs_op.enabled: expected true or"):
        resolve(Features(tables={"ibs_op": {"enabled": (1, "b.toml")}}), Known())


def test_events_pull_their_feature_in():
    """With their names and count; one that is listed already is not listed twice."""
    pulled = [PulledIn("ibs_op", "A", 60), PulledIn("ibs_op", "B", 60), PulledIn("ibs_op", "A")]
    assert options_of(pulled=pulled) == IbsLike(events=("A", "B"), count=60)
    assert options_of(["ibs_op:events=C"], pulled=pulled).events == ("C", "A", "B")
    table = {"ibs_op": {"events": (["A"], "a.toml")}}
    assert options_of(tables=table, pulled=pulled).events == ("A", "B")


def test_events_that_want_different_counts_are_a_mistake():
    """The hardware has one."""
    pulled = [PulledIn("ibs_op", "A", 60), PulledIn("ibs_op", "B", 70)]
    with pytest.raises(ConfigError) as error:
        options_of(pulled=pulled)
    assert "B: count 70, but --event has 60" in str(error.value)
    assert "share one count" in str(error.value)


def test_all_mistakes_are_told_at_once():
    """Of flags, tables and names."""
    with pytest.raises(ConfigError) as error:
        resolve(
            Features(
                flags=("ibs_op:count=1", "nothing", "ibs_op:x"),
                tables={"ibs_op": {"memaccess": ("yes", "a.toml")}},
            ),
            Known(),
        )
    lines = error.value.message.splitlines()
    assert len(lines) == 4
    assert any("got 'x'" in line for line in lines)
    assert any("no feature 'nothing'" in line for line in lines)
    assert any(
        "a.toml: [feature.ibs_op]: memaccess: expected true or false" in line for line in lines
    )
    assert any("count: expected a whole number of 10 or more, got '1'" in line for line in lines)
